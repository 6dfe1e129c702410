package snapshot

import (
	"context"
	"runtime"
	"time"
)

// checkEvery is after how many candidates a search looks at the time, and lets others
// have the processor.
const checkEvery = 64

// A foresight tells early that a search or a batch cannot end in the time that it
// has, so that it takes no processor from others for an answer that nobody gets.
type TimeBudget struct {
	start, until time.Time // until is zero where there is no end
	candidates   int       // entities of a search, items of a batch
	results      int       // that are enough
}

func NewTimeBudget(ctx context.Context, candidates, results int) TimeBudget {
	until, _ := ctx.Deadline()
	return TimeBudget{time.Now(), until, candidates, results}
}

// Check says whether to go on after decisions on so many candidates that have so
// many results, and lets others have the processor.
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

// late reports whether what is left takes clearly longer than there is time for,
// at the pace so far. The pace counts only once a good part of the time is gone.
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
