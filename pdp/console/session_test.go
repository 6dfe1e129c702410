package console_test

import (
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/pdp/console"
)

// A clock is moved by hand. It is safe for concurrent use.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// A session ends when it was unused for too long and, however much it was used, when it is too old.
func TestSessionsEnd(t *testing.T) {
	c := &clock{at: time.Now()}
	s := console.NewSessions(15*time.Minute, 8*time.Hour, c.now)
	unused, used := s.Start(), s.Start()
	for range 8*4 - 1 {
		c.pass(15*time.Minute - time.Second)
		if !s.Has(used) {
			t.Fatal("a session that is used ends")
		}
	}
	if s.Has(unused) {
		t.Error("a session that nobody uses goes on")
	}
	c.pass(14 * time.Minute)
	s.Has(used)
	c.pass(10 * time.Minute)
	if s.Has(used) {
		t.Error("a session goes on after eight hours")
	}
	ended := s.Start()
	s.End(ended)
	if s.Has(ended) || s.Has("") {
		t.Error("a session goes on after signing out")
	}
}

// Beyond ten thousand sessions, the one that was unused for longest ends.
func TestSessionsAreBounded(t *testing.T) {
	c := &clock{at: time.Now()}
	s := console.NewSessions(time.Hour, 8*time.Hour, c.now)
	first := s.Start()
	c.pass(time.Second)
	second := s.Start()
	c.pass(time.Second)
	for range 9_998 {
		s.Start()
	}
	c.pass(time.Second)
	if !s.Has(first) {
		t.Fatal("the first session has ended too early")
	}
	s.Start()
	if !s.Has(first) || s.Has(second) || s.Len() != 10_000 {
		t.Errorf("there are %d sessions", s.Len())
	}
}

// What waits for the provider ends in time, is answered once, and does not fill the memory.
func TestSignInsEnd(t *testing.T) {
	c := &clock{at: time.Now()}
	s := console.NewSignIns(c.now)
	state := s.Begin(5 * time.Minute)
	c.pass(5*time.Minute - time.Second)
	if !s.End(state) || s.End(state) {
		t.Error("an answer does not count once")
	}
	state = s.Begin(5 * time.Minute)
	c.pass(5 * time.Minute)
	if s.End(state) || s.End("") {
		t.Error("an answer that came too late counts")
	}
	for range 10_050 {
		s.Begin(10 * time.Minute)
	}
	if s.Len() > 10_000 {
		t.Errorf("%d wait", s.Len())
	}
}
