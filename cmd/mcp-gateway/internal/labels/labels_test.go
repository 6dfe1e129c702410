package labels_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/labels"
)

// A clock is moved by the test.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func open(t *testing.T, cfg labels.Config) *labels.Store {
	t.Helper()
	s, err := labels.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func config(t *testing.T) (labels.Config, *clock) {
	now := &clock{time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	return labels.Config{File: filepath.Join(t.TempDir(), "labels.db"), TTL: 24 * time.Hour, Now: now.Now}, now
}

var alice = labels.Caller{Tenant: "acme", Type: "user", ID: "alice"}

func add(t *testing.T, s *labels.Store, c labels.Caller, names ...string) {
	t.Helper()
	if err := s.Add(c, names); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, s *labels.Store, c labels.Caller, names ...string) {
	t.Helper()
	got, err := s.Of(c)
	if err != nil || got == nil || strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("%+v has %q, %v, want %q", c, got, err, names)
	}
}

// Labels are those of the caller and the tenant, sorted, and outlive the store.
func TestLabels(t *testing.T) {
	cfg, _ := config(t)
	s := open(t, cfg)
	want(t, s, alice)
	add(t, s, alice, "untrusted", "confidential")
	add(t, s, alice, "untrusted")
	for range 2 {
		want(t, s, alice, "confidential", "untrusted")
		for _, other := range []labels.Caller{
			{Tenant: "acme", Type: "user", ID: "bob"}, {Tenant: "acme", Type: "agent", ID: "alice"}, {Tenant: "other", Type: "user", ID: "alice"},
			{Type: "user", ID: "alice"}, {Tenant: `acme""user`, ID: "alice"}, {Tenant: `acme"`, Type: `"user`, ID: "alice"},
		} {
			want(t, s, other)
		}
		s = open(t, cfg)
	}
}

// A label ends after its time, and another result with it begins the time anew.
func TestTTL(t *testing.T) {
	cfg, now := config(t)
	s := open(t, cfg)
	add(t, s, alice, "a", "b")
	now.now = now.now.Add(23 * time.Hour)
	want(t, s, alice, "a", "b")
	add(t, s, alice, "b")
	now.now = now.now.Add(2 * time.Hour)
	want(t, s, alice, "b")
	now.now = now.now.Add(22*time.Hour - time.Second)
	want(t, s, alice, "b")
	now.now = now.now.Add(time.Hour + time.Second)
	want(t, s, alice)
}

// The labels of a session are those that came in it, or outside of any, where labels
// are narrowed to sessions. Where no session is known, all count.
func TestSessions(t *testing.T) {
	one, two := alice, alice
	one.Session, two.Session = "1", "2"
	cfg, _ := config(t)
	s := open(t, cfg)
	add(t, s, one, "a")
	want(t, s, two, "a")
	cfg.File, cfg.Sessions = cfg.File+"2", true
	s = open(t, cfg)
	add(t, s, one, "a")
	add(t, s, two, "b")
	add(t, s, alice, "c")
	want(t, s, one, "a", "c")
	want(t, s, two, "b", "c")
	want(t, s, alice, "a", "b", "c")
}

// What does not fit is an error, and changes nothing. Callers whose labels have ended
// make place.
func TestFull(t *testing.T) {
	cfg, now := config(t)
	cfg.PerCaller, cfg.Callers = 2, 2
	s := open(t, cfg)
	bob, carol := labels.Caller{ID: "bob"}, labels.Caller{ID: "carol"}
	add(t, s, alice, "a", "b", "a")
	if err := s.Add(alice, []string{"c"}); !errors.Is(err, labels.ErrFull) {
		t.Error(err)
	}
	want(t, s, alice, "a", "b")
	add(t, s, bob, "a")
	if err := s.Add(carol, []string{"a"}); !errors.Is(err, labels.ErrFull) {
		t.Error(err)
	}
	now.now = now.now.Add(25 * time.Hour)
	add(t, s, carol, "a")
	want(t, s, carol, "a")
	want(t, s, alice)
}

// A caller that gets its first label and one whose labels are read do not wait for each
// other.
func TestReadersBesideNewCallers(t *testing.T) {
	cfg, _ := config(t)
	s := open(t, cfg)
	var reading sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		reading.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					want(t, s, alice)
				}
			}
		})
	}
	for i := range 50 {
		add(t, s, labels.Caller{ID: fmt.Sprint("caller ", i)}, "a")
	}
	close(done)
	reading.Wait()
}

// Two processes see the labels of each other at once.
func TestProcesses(t *testing.T) {
	cfg, _ := config(t)
	one, two := open(t, cfg), open(t, cfg)
	want(t, two, alice)
	var adding sync.WaitGroup
	for i, s := range []*labels.Store{one, two, one, two} {
		adding.Go(func() { add(t, s, alice, fmt.Sprintf("l%d", i)) })
	}
	adding.Wait()
	want(t, one, alice, "l0", "l1", "l2", "l3")
	want(t, two, alice, "l0", "l1", "l2", "l3")
}

// Callers without labels do not fill the memory, however many ask.
func TestCacheIsBounded(t *testing.T) {
	cfg, _ := config(t)
	cfg.Callers = 10
	s := open(t, cfg)
	before := time.Now().Add(-time.Hour) // labels of a file that was just written are not cached
	if err := os.Chtimes(cfg.File, before, before); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := s.Of(labels.Caller{Type: "user", ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Cached(); n == 0 || n > cfg.Callers {
		t.Errorf("the labels of %d callers are in memory", n)
	}
}

// Sessions without number find a place for their labels. Beyond a bound the labels count
// in all sessions of the caller.
func TestManySessions(t *testing.T) {
	cfg, _ := config(t)
	cfg.Sessions, cfg.PerCaller = true, 2
	s := open(t, cfg)
	in := func(session int) labels.Caller {
		return labels.Caller{ID: alice.ID, Session: fmt.Sprint(session)}
	}
	for n := range 300 {
		add(t, s, in(n), "a")
	}
	want(t, s, in(0), "a")
	want(t, s, in(1000))
	add(t, s, in(0), "b")
	if err := s.Add(in(1), []string{"c"}); !errors.Is(err, labels.ErrFull) {
		t.Error(err)
	}
	for n := range 300 {
		add(t, s, in(300+n), "a")
	}
	want(t, s, in(0), "a", "b")
	want(t, s, in(1000), "a", "b")
	add(t, s, in(1000), "a")
}
