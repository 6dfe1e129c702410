package snapshot

import (
	"context"
	"runtime"
	"time"
)

// checkEvery is the number of candidates between checks of the time. At each check a search also yields
// the processor.
const checkEvery = 64

// A TimeBudget detects early that a search or a batch cannot finish before its deadline. The service
// then stops, and spends no more processor time on a reply that nobody receives.
type TimeBudget struct {
	start, until time.Time // until is zero without a deadline
	candidates   int       // entities of a search, or items of a batch
	results      int       // number of results that is sufficient
}

// NewTimeBudget returns a TimeBudget up to the deadline of ctx that starts now.
func NewTimeBudget(ctx context.Context, candidates, results int) TimeBudget {
	until, _ := ctx.Deadline()
	return TimeBudget{time.Now(), until, candidates, results}
}

// Check reports whether to continue after that many decisions and results. It also yields the processor.
func (f *TimeBudget) Check(ctx context.Context, decided, results int) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if decided == 0 {
		return nil
	}
	runtime.Gosched()
	if !f.until.IsZero() && f.late(time.Now(), decided, results) {
		return ErrTooLong
	}
	return nil
}

// late reports whether the rest clearly takes longer than the remaining time, at the rate so far. The
// rate counts only after a good part of the time has passed.
func (f *TimeBudget) late(now time.Time, decided, results int) bool {
	took, left := now.Sub(f.start), f.until.Sub(now)
	if took < left/8 {
		return false
	}
	rest := float64(f.candidates - decided)
	if results > 0 {
		rest = min(rest, float64(decided)*float64(f.results-results)/float64(results))
	}
	return rest/float64(decided)*float64(took) > 1.5*float64(left)
}
