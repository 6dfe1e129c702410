package approval_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Callbacks to an unreachable PEP are retried with growing delays, and finally given up (AR-132 in
// conformance/testdata/rows.txt).
func TestNotify(t *testing.T) {
	d := open(t, plain)
	unreachable := errors.New("connection refused")
	var calls []time.Duration
	var decided time.Time
	answer := func() error { return unreachable }
	d.config.CallbackAllowed = []string{"https://pep.example.com"}
	d.config.SendCallback = func(_ context.Context, endpoint string, body []byte) error {
		calls = append(calls, d.time().Sub(decided))
		if endpoint != "https://pep.example.com/done" || !strings.Contains(string(body), `"status":"approved"`) {
			t.Errorf("called %s with %s", endpoint, body)
		}
		return answer()
	}
	d.reopen(t)
	ask := func(events ...string) {
		t.Helper()
		s := d.submission(t, push)
		s.Callback = &authzen.Callback{Endpoint: "https://pep.example.com/done", Events: events}
		task, err := d.Submit(t.Context(), gateway, "", s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Decide(t.Context(), task.Task.ID, approver("carol"), approves); err != nil {
			t.Fatal(err)
		}
		decided = d.time()
	}
	pass := func(by time.Duration) {
		t.Helper()
		for range by / time.Second {
			if err := d.Notify(t.Context()); err != nil && !errors.Is(err, unreachable) {
				t.Fatal(err)
			}
			d.pass(time.Second)
		}
	}
	ask("denied", "expired")
	pass(time.Minute)
	if len(calls) > 0 {
		t.Errorf("R-20: called for what it did not ask: %v", calls)
	}
	ask()
	pass(10 * time.Minute)
	want := []time.Duration{0, 2, 6, 14, 30, 62, 126, 254}
	for i := range want {
		want[i] *= time.Second
	}
	if len(calls) != len(want) {
		t.Fatalf("called after %v", calls)
	}
	for i := range want {
		if calls[i] != want[i] {
			t.Errorf("called after %v, want %v", calls, want)
			break
		}
	}
	calls, answer = nil, func() error { return nil }
	ask()
	pass(time.Minute)
	if len(calls) != 1 {
		t.Errorf("a PEP that was reached is called after %v", calls)
	}
	if got := d.events(t); !strings.HasSuffix(got, "approval/approve request/notify") || strings.Count(got, "notify_fail") != 8 {
		t.Errorf("the log has %s", got)
	}
}

// A PEP that does not answer delays no callback to others, and gets only a few at a time.
func TestSlowDestinationDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, plain)
		var mu sync.Mutex
		waiting, most := 0, 0
		called := make(chan string, 1)
		d.config.CallbackAllowed = []string{"https://slow.example.com", "https://pep.example.com"}
		d.config.SendCallback = func(ctx context.Context, endpoint string, _ []byte) error {
			if !strings.HasPrefix(endpoint, "https://slow.") {
				called <- endpoint
				return nil
			}
			mu.Lock()
			waiting++
			most = max(most, waiting)
			mu.Unlock()
			<-ctx.Done()
			return ctx.Err()
		}
		d.config.Now = time.Now
		d.reopen(t)
		ask := func(endpoint string) {
			t.Helper()
			d.now = time.Now()
			s := d.submission(t, push)
			s.Callback = &authzen.Callback{Endpoint: endpoint}
			task, err := d.Submit(t.Context(), gateway, "", s)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Decide(t.Context(), task.Task.ID, approver("carol"), approves); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			ask("https://slow.example.com/done")
		}
		time.Sleep(time.Second)
		ask("https://pep.example.com/done")
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := d.RunCallbacks(ctx); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		if <-called; time.Since(start) > 5*time.Second {
			t.Errorf("called after %s", time.Since(start))
		}
		time.Sleep(10 * time.Second)
		cancel()
		ended.Wait()
		if most == 0 || most > 8 {
			t.Errorf("the PEP that is slow has %d calls at once", most)
		}
	})
}
