package proxy_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A call that has its response is no longer in memory, however long its client had
// time to resume the stream.
func TestAnsweredCallIsForgotten(t *testing.T) {
	u, forgotten := proxy.NewUnanswered(), make(chan struct{})
	func() {
		large := new([1 << 20]byte)
		runtime.AddCleanup(large, func(c chan struct{}) { close(c) }, forgotten)
		u.Keep("1", func(_ context.Context, m *wire.Message) *wire.Message {
			large[0]++
			return m
		}, time.Hour)
		if u.Take("1") == nil {
			t.Error("the call is not known")
		}
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-forgotten:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Error("the call is in memory")
}

// Calls whose responses are due are bounded, and end when the wait for them is over.
func TestUnansweredAreBounded(t *testing.T) {
	u, ended := proxy.NewUnanswered(), make(chan struct{}, 1)
	for i := range proxy.MaxUnanswered {
		if !u.Keep(fmt.Sprint(i), nil, time.Hour) {
			t.Fatalf("call %d has no place", i)
		}
	}
	over := func(context.Context, *wire.Message) *wire.Message {
		ended <- struct{}{}
		return nil
	}
	if u.Keep("more", over, time.Hour) {
		t.Error("one call more has a place")
	}
	u.Take("0")
	if !u.Keep("more", over, time.Millisecond) {
		t.Error("there is no place after another call")
	}
	<-ended
	if u.Take("more") != nil {
		t.Error("a call whose wait is over is known")
	}
}
