package capability

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Known returns the capability that an earlier call of Request or Issue with the same Idempotency-Key
// made, in its current state, or nil. The error is ErrDuplicate if the terms are others.
func (s *Service) Known(ctx context.Context, c Caller, key string, t Terms) (*Capability, error) {
	if err := s.outbox.Settle(ctx); err != nil {
		return nil, err
	}
	submission, err := t.fingerprint()
	if err != nil {
		return nil, err
	}
	return s.known(idempotencyKey(c, key), submission)
}

func (s *Service) known(key, submission []byte) (*Capability, error) {
	if key == nil {
		return nil, nil
	}
	e := s.index.byKey(key)
	switch {
	case e == nil:
		return nil, nil
	case !bytes.Equal(e.Submission, submission):
		return nil, ErrDuplicate
	}
	return e.answer(), nil
}

// Request stores a pending capability, which waits for a task. If the Idempotency-Key has a capability
// with the same terms, Request returns that one.
func (s *Service) Request(ctx context.Context, c Caller, key string, t Terms, p Proposal) (*Capability, error) {
	return s.create(ctx, c, key, t, eventRequest, func(made Capability, now time.Time) (Capability, error) {
		if !p.DecideBy.Truncate(time.Second).After(now) {
			return made, fmt.Errorf("%w: its task has ended", ErrState)
		}
		if p.Task != "" && s.index.byTask(p.Task) != nil {
			return made, fmt.Errorf("%w: its task is that of another", ErrState)
		}
		made.Task, made.Template, made.DecideBy = p.Task, p.Template, p.DecideBy.UTC().Truncate(time.Second)
		made.EvaluationIDs, made.Revision = slices.Clone(p.EvaluationIDs), p.Revision
		return made, nil
	})
}

// Issue stores a capability that is active at once. If the Idempotency-Key has a capability with the
// same terms, Issue returns that one.
func (s *Service) Issue(ctx context.Context, c Caller, key string, t Terms, g Grant) (*Capability, error) {
	return s.create(ctx, c, key, t, eventIssue, func(made Capability, now time.Time) (Capability, error) {
		return made.issued(g, now)
	})
}

// create stores a new capability, unless there are too many. complete adds what the kind of event does.
func (s *Service) create(ctx context.Context, c Caller, key string, t Terms, kind eventKind, complete func(Capability, time.Time) (Capability, error)) (made *Capability, err error) {
	known, err := s.Known(ctx, c, key, t)
	if known != nil || errors.Is(err, ErrDuplicate) { // a retry has not expired
		return known, err
	}
	if err := t.check(c, s.now()); err != nil {
		return nil, err
	}
	submission, err := t.fingerprint()
	if err != nil {
		return nil, err
	}
	idempotency := idempotencyKey(c, key)
	err = s.transact(ctx, func(tx txn) error {
		if made, err = s.known(idempotency, submission); err != nil || made != nil {
			return err
		}
		at := s.moment()
		fresh := Capability{
			ID: "cap_" + s.config.NewID(), Tenant: c.Tenant, Caller: c.ID, Terms: t.stored(), Bound: t.BoundTo(), State: Pending,
			Created: at.Truncate(time.Second), Idempotency: idempotency, Submission: submission,
		}
		if fresh.Depth, err = s.depthBelow(c.Tenant, t.Parent, at); err != nil {
			return err
		}
		if fresh, err = complete(fresh, at.Truncate(time.Second)); err != nil {
			return err
		}
		if err := s.admit(&fresh); err != nil {
			return err
		}
		made = &fresh
		by := Actor{Caller: c.ID, RequestID: c.RequestID}
		if err := tx.put(nil, made, event{kind: kind, by: by}, at); err != nil {
			return err
		}
		return tx.endRefreshed(made, by, at)
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// depthBelow returns the depth of a capability with a parent, which must still be active. "" is no parent.
func (s *Service) depthBelow(tenant, parent string, now time.Time) (int, error) {
	if parent == "" {
		return 0, nil
	}
	e := s.index.get(parent)
	if e == nil || e.Tenant != tenant {
		return 0, authzen.Invalid(pathParent, "is no capability of the subject")
	}
	return e.Depth + 1, s.checkParent(e, now)
}

// admit returns ErrTooMany if the holder or the tenant has no room for a new capability.
func (s *Service) admit(c *Capability) error {
	if _, tenant := s.index.countOf(holderOf(c.Tenant, c.Holder), c.State); tenant >= s.config.MaxTenant {
		return fmt.Errorf("%w: the tenant has %d", ErrTooMany, tenant)
	}
	return s.admitState(c)
}

// admitState returns ErrTooMany if the holder has no room for a capability in its state.
func (s *Service) admitState(c *Capability) error {
	most := s.config.MaxPending
	if c.State == Active {
		most = s.config.MaxActive
	}
	if n, _ := s.index.countOf(holderOf(c.Tenant, c.Holder), c.State); n >= most {
		return fmt.Errorf("%w: the holder has %d that are %s", ErrTooMany, n, c.State)
	}
	return nil
}

// Activate issues a pending capability.
func (s *Service) Activate(ctx context.Context, id string, by Actor, g Grant) (*Capability, error) {
	return s.apply(ctx, id, event{kind: eventIssue, by: by, grant: g})
}

// Refuse ends a pending capability.
func (s *Service) Refuse(ctx context.Context, id string, by Actor, reason string) (*Capability, error) {
	if err := checkReason(reason); err != nil {
		return nil, err
	}
	return s.apply(ctx, id, event{kind: eventRefuse, by: by, reason: reason})
}

// Revoke ends a capability with immediate effect. A pending one is refused.
func (s *Service) Revoke(ctx context.Context, id string, by Actor, reason string) (*Capability, error) {
	if err := checkReason(reason); err != nil {
		return nil, err
	}
	return s.apply(ctx, id, event{kind: eventRevoke, by: by, reason: reason})
}

// RevokeHolder ends all capabilities of a holder in one transaction, with immediate effect, and returns
// them. Pending ones are refused.
func (s *Service) RevokeHolder(ctx context.Context, tenant string, of authzen.Subject, by Actor, reason string) (ended []*Capability, err error) {
	if err := checkReason(reason); err != nil {
		return nil, err
	}
	e := event{kind: eventRevoke, by: by, reason: reason}
	err = s.transact(ctx, func(tx txn) error {
		at := s.moment()
		for _, was := range s.index.liveOf(holderOf(tenant, of)) {
			if !at.Truncate(time.Second).Before(was.due()) {
				continue // it has expired, which the next sweep records
			}
			after, err := next(*was.Capability, e, at.Truncate(time.Second))
			if err != nil {
				return err
			}
			if err := tx.put(was, &after, e, at); err != nil {
				return err
			}
			after.Used = was.answer().Used
			ended = append(ended, &after)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

func checkReason(reason string) error {
	if len(reason) > maxReason {
		return authzen.Invalid("/reason", "is longer than %d bytes", maxReason)
	}
	return nil
}

// apply stores the result of an event and its record in one transaction.
func (s *Service) apply(ctx context.Context, id string, e event) (*Capability, error) {
	var after Capability
	err := s.transact(ctx, func(tx txn) error {
		was := s.index.get(id)
		if was == nil {
			return ErrUnknown
		}
		at := s.moment()
		var err error
		if after, err = next(*was.Capability, e, at.Truncate(time.Second)); err != nil {
			return err
		}
		if after.State == Active {
			if err := s.admitState(&after); err != nil {
				return err
			}
		}
		if err := tx.put(was, &after, e, at); err != nil {
			return err
		}
		return tx.endRefreshed(&after, e.by, at)
	})
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, id)
}

// Check refuses terms that Request and Issue would refuse.
func (s *Service) Check(c Caller, t Terms) error { return t.check(c, s.now()) }

// CheckIssue refuses what Issue would refuse now: terms, and one capability more than the holder or
// the tenant may have.
func (s *Service) CheckIssue(c Caller, t Terms) error {
	if err := s.Check(c, t); err != nil {
		return err
	}
	return s.admit(&Capability{Tenant: c.Tenant, Terms: Terms{Holder: t.Holder}, State: Active})
}
