package capability

import (
	"context"
	"time"
)

// answer returns a copy of the capability with its uses.
func (e *entry) answer() *Capability {
	c := *e.Capability
	if e.uses != nil {
		c.Used = e.uses.used()
	}
	return &c
}

// Active returns the number of active capabilities.
func (s *Service) Active() int { return s.index.active() }

// Get returns a capability, for operators.
func (s *Service) Get(ctx context.Context, id string) (*Capability, error) {
	if err := s.outbox.Settle(ctx); err != nil {
		return nil, err
	}
	e := s.index.get(id)
	if e == nil {
		return nil, ErrUnknown
	}
	return e.answer(), nil
}

// Own returns a capability to the PEP that asked for it. For other callers it returns ErrUnknown.
func (s *Service) Own(ctx context.Context, c Caller, id string) (*Capability, error) {
	found, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if found.Tenant != c.Tenant || found.Caller != c.ID {
		return nil, ErrUnknown
	}
	return found, nil
}

// Usable returns a capability of a tenant that its holder can use now, without a use. For any other
// capability it returns ErrUnknown.
func (s *Service) Usable(ctx context.Context, tenant, id string) (*Capability, error) {
	found, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	now := s.moment()
	if e := s.index.get(id); e == nil || s.checkChain(e, now) != "" {
		return nil, ErrUnknown
	}
	if found.Tenant != tenant || found.State != Active || now.Before(found.Constraints.ValidFrom) || !now.Before(found.Constraints.ValidUntil) ||
		found.limited() && found.Used >= found.Constraints.MaxUses {
		return nil, ErrUnknown
	}
	return found, nil
}

// ByTask returns the capability that waits, or waited, for a task.
func (s *Service) ByTask(ctx context.Context, task string) (*Capability, error) {
	if err := s.outbox.Settle(ctx); err != nil {
		return nil, err
	}
	e := s.index.byTask(task)
	if e == nil || task == "" {
		return nil, ErrUnknown
	}
	return e.answer(), nil
}

// ByApproval returns the capability that was issued with an approval.
func (s *Service) ByApproval(ctx context.Context, approval string) (*Capability, error) {
	if err := s.outbox.Settle(ctx); err != nil {
		return nil, err
	}
	e := s.index.byApproval(approval)
	if e == nil || approval == "" {
		return nil, ErrUnknown
	}
	return e.answer(), nil
}

// Wait returns a capability of a caller when it is no longer pending. It returns the current state
// after most, at the end of ctx, or when the service stops.
func (s *Service) Wait(ctx context.Context, c Caller, id string, most time.Duration) (*Capability, error) {
	return s.wait(ctx, most, func() (*Capability, error) { return s.Own(ctx, c, id) })
}

// WaitByTask is [Service.Wait] for the capability of a task, for operators.
func (s *Service) WaitByTask(ctx context.Context, task string, most time.Duration) (*Capability, error) {
	return s.wait(ctx, most, func() (*Capability, error) { return s.ByTask(ctx, task) })
}

func (s *Service) wait(ctx context.Context, most time.Duration, find func() (*Capability, error)) (*Capability, error) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		changed := s.outbox.Changed()
		found, err := find()
		if err != nil || found.State != Pending {
			return found, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return found, nil
		case <-s.stopped:
			return found, nil
		case <-ctx.Done():
			return found, nil
		}
	}
}
