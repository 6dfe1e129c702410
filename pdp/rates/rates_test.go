package rates_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/pdp/rates"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// Each decision counts in its minute, and a point is gone after an hour.
func TestPointsHaveTheLastHour(t *testing.T) {
	var r rates.Ring
	r.Decided(noon, 5*time.Microsecond, rates.Counts{Allowed: 2, Denied: 1, PolicyErrors: 3})
	r.Decided(noon.Add(time.Minute), 2*time.Microsecond, rates.Counts{Denied: 1})
	r.Failed(noon.Add(time.Minute))
	points := r.Points(noon.Add(time.Minute + time.Second))
	want := []rates.Point{
		{Time: noon, Allowed: 2, Denied: 1, PolicyErrors: 3, P99: 5},
		{Time: noon.Add(time.Minute), Denied: 1, Errors: 1, P99: 2},
	}
	if diff := cmp.Diff(want, points[rates.Minutes-2:]); diff != "" || len(points) != rates.Minutes {
		t.Errorf("%d points (-want +got):\n%s", len(points), diff)
	}
	for i, p := range points[:rates.Minutes-2] {
		if want := (rates.Point{Time: noon.Add(time.Duration(i-rates.Minutes+2) * time.Minute)}); p != want {
			t.Errorf("point %d is %+v, want %+v", i, p, want)
		}
	}
	if p := r.Points(noon.Add(time.Hour)); p[0].Denied != 1 || p[0].Allowed != 0 {
		t.Errorf("after an hour the first point is %+v", p[0])
	}
	if r.Answers() != 2 {
		t.Errorf("%d answers were counted, want 2", r.Answers())
	}
}

// The slot of a minute is used again for a later one, without the old counts, and not for an earlier
// one.
func TestSlotsAreUsedAgain(t *testing.T) {
	var r rates.Ring
	at := noon
	for range 3 * rates.Minutes {
		r.Decided(at, time.Millisecond, rates.Counts{Allowed: 1})
		at = at.Add(time.Minute)
	}
	r.Decided(noon, time.Second, rates.Counts{Denied: 1})
	for _, p := range r.Points(at.Add(-time.Minute)) {
		if p.Allowed != 1 || p.Denied != 0 {
			t.Errorf("%+v", p)
		}
	}
}

// The percentile is exact to an eighth, for any duration.
func TestPercentile(t *testing.T) {
	for _, us := range []int64{0, 1, 7, 8, 15, 16, 100, 999, 12_345, 750_000, 2_000_000, 1 << 31} {
		var r rates.Ring
		for range 99 {
			r.Decided(noon, time.Duration(us)*time.Microsecond, rates.Counts{Allowed: 1})
		}
		r.Decided(noon, time.Hour, rates.Counts{Allowed: 1})
		got := r.Points(noon)[rates.Minutes-1].P99
		if got < us || got > us+us/8 {
			t.Errorf("p99 of %d µs is %d µs", us, got)
		}
	}
}

// Concurrent counts are all there, also when the minute turns.
func TestConcurrentCounts(t *testing.T) {
	var r rates.Ring
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 10_000 {
				r.Decided(noon.Add(time.Duration(i)*time.Minute/5_000), time.Microsecond, rates.Counts{Allowed: 1})
			}
		})
	}
	all.Wait()
	var n int64
	for _, p := range r.Points(noon.Add(2 * time.Minute)) {
		n += p.Allowed
	}
	if n != 80_000 {
		t.Errorf("%d decisions were counted, want 80,000", n)
	}
}

// Counting allocates nothing.
func TestCountingAllocatesNothing(t *testing.T) {
	var r rates.Ring
	at := noon
	if n := testing.AllocsPerRun(1000, func() {
		at = at.Add(time.Second)
		r.Decided(at, time.Millisecond, rates.Counts{Allowed: 1})
		r.Failed(at)
	}); n != 0 {
		t.Errorf("a decision allocates %v times", n)
	}
}

func BenchmarkDecided(b *testing.B) {
	var r rates.Ring
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			at := time.Now()
			r.Decided(at, time.Millisecond, rates.Counts{Allowed: 1})
		}
	})
}
