package pdp

import (
	"context"
	"time"
)

// Of the time in which PEPs get decisions, background work takes a tenth, in pieces of about a
// millisecond.
const (
	workPiece = time.Millisecond
	restShare = 9
)

// A pacer lets background work give way to decisions.
type pacer struct {
	answers func() int64 // number of answers to PEPs so far
	now     func() time.Time
	sleep   func(context.Context, time.Duration) error

	began time.Time
	seen  int64
}

// rest is called between two steps of the work. It sleeps after each piece during which PEPs got
// answers.
func (p *pacer) rest(ctx context.Context) error {
	now := p.now()
	if p.began.IsZero() {
		p.began, p.seen = now, p.answers()
	}
	worked := now.Sub(p.began)
	if worked < workPiece {
		return ctx.Err()
	}
	answers := p.answers()
	if answers != p.seen {
		if err := p.sleep(ctx, restShare*worked); err != nil {
			return err
		}
	}
	p.began, p.seen = p.now(), answers
	return ctx.Err()
}

// sleepFor waits for a duration or the end of ctx.
func sleepFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
