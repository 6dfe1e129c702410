package approval

import (
	"context"
	"time"

	"github.com/policy-service/policy-service/obligations/outbox"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// sweepEvery is the interval of sweeps, and so the maximum delay of an expiry.
const sweepEvery = 2 * time.Second

// Run sweeps until ctx ends, and then ends all calls of Wait.
func (s *Service) Run(ctx context.Context) error {
	defer close(s.stopped)
	return s.repeat(ctx, s.Sweep)
}

func (s *Service) repeat(ctx context.Context, do func(context.Context) error) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := do(ctx); err != nil && ctx.Err() == nil {
				s.config.OnError(err)
			}
		}
	}
}

// sweepBatch is the maximum number of requests in one transaction of a sweep.
const sweepBatch = 200

// Sweep processes everything that is due: it escalates, expires and deletes requests, deletes used
// binding tokens, and rotates keys.
func (s *Service) Sweep(ctx context.Context) error {
	for {
		idle, err := s.idle(ctx)
		if err != nil || idle {
			return err
		}
		if err := s.transact(ctx, s.sweep); err != nil {
			return err
		}
	}
}

// idle reports whether nothing is due. It needs no commit.
func (s *Service) idle(ctx context.Context) (idle bool, err error) {
	if err := s.rotate(); err != nil {
		return false, err
	}
	err = s.view(ctx, func(tx txn) error {
		due, err := tx.overdue(s.now(), 1)
		idle = len(due) == 0
		return err
	})
	return idle, err
}

func (s *Service) sweep(tx txn) error {
	at := s.moment()
	now := at.Truncate(time.Second)
	due, err := tx.overdue(now, sweepBatch)
	if err != nil {
		return err
	}
	for _, r := range due {
		if err := s.sweepOne(tx, r, at); err != nil {
			return err
		}
	}
	if err := tx.forgetHistory(now); err != nil {
		return err
	}
	return tx.forget(now)
}

// sweepOne processes one request that is due.
func (s *Service) sweepOne(tx txn, r *Request, at time.Time) error {
	if r.Status() != authzen.TaskPending {
		return tx.put(r, nil)
	}
	now := at.Truncate(time.Second)
	e := event{kind: eventExpire}
	if now.Before(r.DecideBy) {
		e.kind = eventEscalate
	}
	after, err := next(*r, e, now)
	if err != nil {
		return err
	}
	if err := tx.put(r, &after); err != nil {
		return err
	}
	return outbox.Append(tx.Tx, transition(&after, e, at))
}
