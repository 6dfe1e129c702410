package pdp

import (
	"context"
	"time"
)

// Of the time in which PEPs get decisions, all background work together takes a tenth, in pieces of
// about a millisecond.
const (
	workPiece = time.Millisecond
	restShare = 9
)

// A pacer lets background work give way to decisions.
type pacer struct {
	answers func() int64 // number of answers to PEPs so far
	now     func() time.Time
	sleep   func(context.Context, time.Duration) error
	turn    chan struct{} // has one place: work that shares it rests one after another

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
		if err := p.sleepInTurn(ctx, restShare*worked); err != nil {
			return err
		}
	}
	p.began, p.seen = p.now(), answers
	return ctx.Err()
}

// sleepInTurn sleeps while no other work sleeps that shares the turn.
func (p *pacer) sleepInTurn(ctx context.Context, d time.Duration) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
		return p.sleep(ctx, d)
	case <-ctx.Done():
		return ctx.Err()
	}
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
