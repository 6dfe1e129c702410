package decisionlog_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

var slow = flag.Duration("slow", 0, "how long TestSlowReader measures; 0 skips it")

// A slowWriter accepts 10 KB a second.
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
// most. A machine with other work is not as fast at all times, so windows of
// both kinds take turns, each is compared with its neighbor, and it is the
// middle one of the ratios that counts. The control is a commit that has to
// wait now and then.
func TestSlowReader(t *testing.T) {
	if *slow == 0 {
		t.Skip("it measures time: run it with -slow 60s")
	}
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	fill(t, l, 0, 2000)
	beside := p99Ratios(t, l, *slow, func(ctx context.Context) { _, _ = l.Export(ctx, slowWriter{ctx}, 0, -1) })
	held := p99Ratios(t, l, *slow/4, func(ctx context.Context) {
		for ctx.Err() == nil {
			release := l.HoldRecords()
			time.Sleep(slowWindow / 8)
			release()
			time.Sleep(slowWindow / 32)
		}
	})
	t.Logf("p99 beside a slow reader, as a ratio to that alone: %v", beside)
	t.Logf("control: held up, as a ratio to that alone: %v", held)
	if beside.middle > mostSlower {
		t.Error("a slow reader makes entries slower")
	}
	if held.middle <= mostSlower {
		t.Error("control: it does not show that entries are held up")
	}
}

const (
	slowWindow = 200 * time.Millisecond // how long one of the two is measured at a time
	mostSlower = 1.1
)

// ratios are those of windows in turn: the middle one, and between which two
// the middle of all that could be measured is, at odds of a hundred to one.
type ratios struct {
	middle, low, high float64
	windows           int
}

func (r ratios) String() string {
	return fmt.Sprintf("%.3f (%.3f to %.3f, %d windows)", r.middle, r.low, r.high, r.windows)
}

// p99Ratios compares how long entries take while a disturbance goes on and
// while none does. It takes the time d and, if that does not tell on which
// side of mostSlower the ratio is, up to four times as much.
func p99Ratios(t *testing.T, l *decisionlog.Log, d time.Duration, disturb func(context.Context)) (out ratios) {
	t.Helper()
	var all []float64
	for took := time.Duration(0); took < d || took < 4*d && out.low <= mostSlower && out.high >= mostSlower; took += 2 * slowWindow {
		disturbed := len(all) % 2
		var tail [2]time.Duration // without, and with
		for _, with := range []int{disturbed, 1 - disturbed} {
			ctx, cancel := context.WithCancel(t.Context())
			var disturbing sync.WaitGroup
			if with == 1 {
				disturbing.Go(func() { disturb(ctx) })
			}
			tail[with] = p99(appendFor(t, l, slowWindow))
			cancel()
			disturbing.Wait()
		}
		all = append(all, float64(tail[1])/float64(tail[0]))
		out = middleOf(all)
	}
	return out
}

func middleOf(all []float64) ratios {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	spread := int(1.29 * math.Sqrt(float64(n))) // 2.58 standard deviations of a binomial
	return ratios{sorted[n/2], sorted[max(0, n/2-spread)], sorted[min(n-1, n/2+spread)], n}
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
