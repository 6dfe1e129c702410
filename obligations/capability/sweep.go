package capability

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
)

// sweepEvery is the interval of sweeps, and so the maximum delay of an expiry in lists. Requests see it
// at once.
const sweepEvery = 2 * time.Second

// snapshotEvery is the interval at which the uses in the log are stored.
const snapshotEvery = time.Minute

// sweepBatch is the maximum number of capabilities in one transaction of a sweep.
const sweepBatch = 200

// Run sweeps until ctx ends, and then ends all calls of Wait.
func (s *Service) Run(ctx context.Context) error {
	defer close(s.stopped)
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
				s.config.OnError(err)
			}
		}
	}
}

// Sweep processes everything that is due: it ends capabilities that are exhausted or have expired,
// deletes those that ended long ago, and stores the uses in the log.
func (s *Service) Sweep(ctx context.Context) error {
	if err := errors.Join(s.exhaust(ctx), s.expire(ctx)); err != nil {
		return err
	}
	now := s.moment()
	s.index.releaseRepeated(now)
	s.proofs.forget(now)
	if !s.log.due(now) {
		return nil
	}
	return s.snapshot(ctx)
}

// exhaust ends the capabilities without a use left.
func (s *Service) exhaust(ctx context.Context) error {
	s.spentMu.Lock()
	spent := slices.Sorted(maps.Keys(s.spent))
	s.spentMu.Unlock()
	for _, id := range spent {
		if e := s.index.get(id); e != nil {
			_, err := s.apply(ctx, id, event{kind: eventExhaust, used: e.uses.used()})
			if err != nil && !errors.Is(err, ErrState) && !errors.Is(err, ErrUnknown) { // it ended otherwise
				return err
			}
		}
		s.spentMu.Lock()
		delete(s.spent, id)
		s.spentMu.Unlock()
	}
	return nil
}

// expire processes the capabilities that are due.
func (s *Service) expire(ctx context.Context) error {
	for {
		n := 0
		err := s.outbox.View(ctx, func(tx *bolt.Tx) error {
			n = len(txn{tx, s}.overdue(s.now(), 1))
			return nil
		})
		if err != nil || n == 0 { // nothing needs a commit
			return err
		}
		if err := s.transact(ctx, s.expireBatch); err != nil {
			return err
		}
	}
}

func (s *Service) expireBatch(tx txn) error {
	at := s.moment()
	e := event{kind: eventExpire}
	for _, was := range tx.overdue(at.Truncate(time.Second), sweepBatch) {
		if !was.live() {
			if err := tx.delete(was); err != nil {
				return err
			}
			continue
		}
		after, err := next(*was.Capability, e, at.Truncate(time.Second))
		if err != nil {
			return err
		}
		if err := tx.put(was, &after, e, at); err != nil {
			return err
		}
	}
	return nil
}
