package pdp

import (
	"context"
	"log/slog"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

const (
	clockLook = time.Second
	// clockStep is the smallest difference, within clockLook, between the wall clock and the
	// elapsed time that counts as a step of the clock.
	clockStep = 500 * time.Millisecond
)

// A clock returns the wall clock time and the elapsed time since a fixed moment. Nobody can set the
// elapsed time.
type clock func() (wall time.Time, passed time.Duration)

func hostClock() clock {
	start := time.Now()
	return func() (time.Time, time.Duration) {
		now := time.Now()
		return now.Round(0), now.Sub(start)
	}
}

// watchClock compares the clock with the elapsed time at every tick of look. It calls note with the
// size of each step.
func watchClock(ctx context.Context, look <-chan time.Time, read clock, note func(context.Context, time.Duration)) error {
	wall, passed := read()
	for {
		select {
		case <-look:
			w, p := read()
			if step := w.Sub(wall) - (p - passed); step.Abs() >= clockStep {
				note(ctx, step)
			}
			wall, passed = w, p
		case <-ctx.Done():
			return nil
		}
	}
}

// A clockStepped is the request of an entry about a step of the clock.
type clockStepped struct {
	Action string `json:"action"` // clock_step
	Millis int64  `json:"step_ms"`
}

// noteStep returns a function that records a step of the clock in the decision log. The entry
// explains the times of the decisions around it.
func noteStep(log *decisionlog.Log, program *slog.Logger) func(context.Context, time.Duration) {
	return func(ctx context.Context, step time.Duration) {
		program.Warn("the clock was set", "by", step)
		if err := recordStep(ctx, log, step); err != nil {
			program.Error("step of the clock not recorded", "error", err)
		}
	}
}

func recordStep(ctx context.Context, log *decisionlog.Log, step time.Duration) error {
	entry, err := adminEntry(clockStepped{"clock_step", step.Milliseconds()})
	if err != nil {
		return err
	}
	return log.Append(ctx, entry)
}
