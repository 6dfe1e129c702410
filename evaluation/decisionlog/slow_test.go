package decisionlog_test

import (
	"context"
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

var slow = flag.Duration("slow", 0, "how long TestSlowReader measures; 0 skips it")

// A slowWriter takes 10 KB a second.
type slowWriter struct{ ctx context.Context }

func (w slowWriter) Write(b []byte) (int, error) {
	select {
	case <-time.After(time.Duration(len(b)) * time.Second / 10_000):
		return len(b), nil
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	}
}

// TestSlowReader measures how long entries take while someone exports the log
// at 10 KB a second, and while nobody does: the p99 differs by ten percent at
// most. The phases take turns, for a disk is not as fast at all times. The
// control is a commit that has to wait now and then.
func TestSlowReader(t *testing.T) {
	if *slow == 0 {
		t.Skip("it measures time: run it with -slow 60s")
	}
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	fill(t, l, 0, 2000)
	const phases = 40
	var alone, beside []time.Duration
	for range phases {
		alone = append(alone, appendFor(t, l, *slow/phases/2)...)
		ctx, cancel := context.WithCancel(t.Context())
		var reading sync.WaitGroup
		reading.Go(func() { _, _ = l.Export(ctx, slowWriter{ctx}, 0, -1) })
		beside = append(beside, appendFor(t, l, *slow/phases/2)...)
		cancel()
		reading.Wait()
	}
	a, b, c := p99(alone), p99(beside), p99(heldUp(t, l))
	t.Logf("p99 alone %v (%d entries), beside a slow reader %v (%d), held up %v", a, len(alone), b, len(beside), c)
	if b > a+a/10 {
		t.Errorf("a slow reader makes the p99 %v, without it is %v", b, a)
	}
	if c <= a+a/10 {
		t.Errorf("control: held up, the p99 is %v, else %v", c, a)
	}
}

// heldUp returns how long entries take while the committer has to wait.
func heldUp(t *testing.T, l *decisionlog.Log) (took []time.Duration) {
	for range 20 {
		release := l.Hold(t)
		appended := make(chan []time.Duration)
		go func() { appended <- appendFor(t, l, time.Millisecond) }()
		time.Sleep(200 * time.Millisecond)
		release()
		took = append(took, <-appended...)
	}
	return took
}

// appendFor appends from 16 goroutines, and returns how long each entry took.
func appendFor(t *testing.T, l *decisionlog.Log, d time.Duration) (took []time.Duration) {
	var mu sync.Mutex
	var done sync.WaitGroup
	end := time.Now().Add(d)
	for caller := range 16 {
		done.Go(func() {
			var mine []time.Duration
			for start := time.Now(); start.Before(end); start = time.Now() {
				if err := l.Append(t.Context(), entry(caller)); err != nil {
					t.Error(err)
					return
				}
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	done.Wait()
	return took
}

func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}
