package endpoint_test

import (
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
)

// A flushes counts the flushes of a response.
type flushes struct {
	*httptest.ResponseRecorder
	n atomic.Int64
}

func (f *flushes) Flush() { f.n.Add(1) }

// Headers and the last event leave together where the server answers at once, and
// within two milliseconds where it does not. Other events leave at once.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &flushes{ResponseRecorder: httptest.NewRecorder()}
		r := &endpoint.Reply{W: w, Streams: true}
		e := &endpoint.Event{Data: []byte("{}")}
		want := func(when string, n int64) {
			t.Helper()
			if got := w.n.Load(); got != n {
				t.Errorf("%s: %d flushes, want %d", when, got, n)
			}
		}
		stop := r.Collect()
		r.Start()
		want("headers", 0)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		want("headers, later", 1)
		if err := r.Event(e); err != nil {
			t.Error(err)
		}
		want("an event", 2)
		if err := r.Last(e); err != nil {
			t.Error(err)
		}
		want("the last event", 2)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		want("the last event, later", 3)
		if err := r.Last(e); err != nil {
			t.Error(err)
		}
		stop()
		time.Sleep(time.Second)
		synctest.Wait()
		want("after the handler has returned", 3)
		if err := r.Last(e); err != nil {
			t.Error(err)
		}
		want("without collection", 4)
	})
}
