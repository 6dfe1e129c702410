package union_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/union"
)

// A caller that begins ever more sessions takes its own places, and not those of
// others. A session with a request under way keeps its place.
func TestSessionsAreBounded(t *testing.T) {
	const ofCaller, limit = 10, 100
	s := union.NewSessions(ofCaller, limit)
	s.Use("bob", "of bob")()
	done := s.Use("alice", "busy")
	defer done()
	for i := range 3 * ofCaller {
		s.Use("alice", fmt.Sprint(i))()
	}
	if known, _ := s.Sizes(); known != 1+ofCaller {
		t.Errorf("%d sessions are in memory", known)
	}
	last := fmt.Sprint(3*ofCaller - 1)
	if !s.Knows("of bob") || !s.Knows("busy") || !s.Knows(last) || s.Knows("0") {
		t.Error("not the sessions that were used least recently are forgotten")
	}
	for i := range 11 {
		for n := range ofCaller {
			s.Use(fmt.Sprint("caller ", i), fmt.Sprintf("%d of %d", n, i))()
		}
	}
	if known, _ := s.Sizes(); known != limit {
		t.Errorf("%d sessions of all callers are in memory", known)
	}
	if !s.Knows("busy") || s.Knows("of bob") {
		t.Error("not the sessions that were used least recently are forgotten")
	}
}

// A client that begins and ends sessions for ever fills no memory. A session that
// has ended stays ended.
func TestEndedSessionsAreBounded(t *testing.T) {
	const limit = 100
	s := union.NewSessions(10, limit)
	for i := range limit + 10 {
		s.Use("alice", fmt.Sprint(i))()
		s.End(fmt.Sprint(i))
	}
	if known, ended := s.Sizes(); known != 0 || ended != limit {
		t.Errorf("%d sessions and %d ended ones are in memory", known, ended)
	}
}

// A session has so many subscriptions, and no more: those that the client ends or
// the server refuses make place.
func TestSubscriptionsAreBounded(t *testing.T) {
	s := union.NewSubscriber()
	ask := func(method, uri string) (func(), error) { return s.Ask("resources/"+method, "a", uri) }
	for i := range union.MaxSubscriptions {
		if _, err := ask("subscribe", fmt.Sprint("file:///", i)); err != nil {
			t.Fatalf("subscription %d: %v", i, err)
		}
	}
	if _, err := ask("subscribe", "file:///0"); err != nil {
		t.Errorf("a subscription again: %v", err)
	}
	if _, err := ask("subscribe", "file:///more"); err == nil || !strings.Contains(err.Error(), "1000 subscriptions") {
		t.Errorf("one subscription more: %v", err)
	}
	if _, err := ask("unsubscribe", "file:///0"); err != nil {
		t.Error(err)
	}
	undo, err := ask("subscribe", "file:///refused")
	if err != nil {
		t.Fatalf("after the end of another: %v", err)
	}
	undo()
	if _, err := ask("subscribe", "file:///other"); err != nil {
		t.Errorf("after one that the server refused: %v", err)
	}
	if got := s.Remembers("a"); len(got) != union.MaxSubscriptions || slices.Contains(got, "file:///refused") || slices.Contains(got, "file:///0") || s.Remembers("b") != nil {
		t.Errorf("%d subscriptions are remembered", len(got))
	}
}

// The URIs of a session have so many bytes altogether.
func TestSubscribedURIsAreBounded(t *testing.T) {
	s := union.NewSubscriber()
	long := strings.Repeat("x", union.MaxSubscribedBytes/2)
	for _, test := range []struct {
		method, uri string
		refused     bool
	}{
		{"subscribe", long + "1", false},
		{"subscribe", long + "2", true},
		{"unsubscribe", long + "2", false},
		{"subscribe", "short", false},
		{"unsubscribe", long + "1", false},
		{"unsubscribe", long + "1", false},
		{"subscribe", long + "2", false},
		{"subscribe", long + "1", true},
	} {
		if _, err := s.Ask("resources/"+test.method, "a", test.uri); (err != nil) != test.refused {
			t.Errorf("%s …%s: %v", test.method, test.uri[len(test.uri)-1:], err)
		}
	}
}
