package capability

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Find returns the capability that covers a request: the one that the claim names, or of those that the
// subject holds the one with the earliest end. It reads memory only. It is the engine's.
func (s *Service) Find(ctx context.Context, q *authzen.CapabilityQuestion) (authzen.CapabilityStatus, error) {
	if err := s.outbox.Settle(ctx); err != nil {
		return authzen.CapabilityStatus{}, err
	}
	now := s.clock.observe(q.Time)
	if q.Claim.Presents() {
		return s.presented(newQuestion(q, now))
	}
	held := s.index.heldBy(holderOf(q.Tenant, q.Request.Subject))
	if len(held) == 0 {
		return authzen.CapabilityStatus{}, nil
	}
	question := newQuestion(q, now)
	var missing authzen.CapabilityReason
	rank := 0
	for _, e := range held {
		if !e.names(question) {
			continue
		}
		reason := s.reason(e, question)
		if reason == "" && e.Key != nil && question.claim().JKT != e.Key.JKT {
			reason = authzen.CapabilityProofMissing
		}
		if reason == "" {
			status := s.status(e, question)
			if status.Capability != nil {
				return status, nil
			}
			reason = status.Missing
		}
		if of := e.rank(reason); of > rank {
			missing, rank = reason, of
		}
	}
	return authzen.CapabilityStatus{Missing: missing}, nil
}

// rank orders the reasons of several capabilities, the highest first: the PEP can send arguments, the
// caller can heed what a capability permits that has uses left, and nobody can use one that has none.
func (e *entry) rank(reason authzen.CapabilityReason) int {
	switch {
	case reason == authzen.CapabilityArgumentsMissing:
		return 3
	case e.uses == nil || e.uses.used() < e.Constraints.MaxUses:
		return 2
	}
	return 1
}

// presented returns the status of the capability that the claim presents. It is unknown to everybody
// but its holder.
func (s *Service) presented(q *question) (authzen.CapabilityStatus, error) {
	id, expires, ok := s.named(q.Tenant, q.Claim)
	e := s.index.get(id)
	if !ok || e == nil || holderOf(e.Tenant, e.Holder) != holderOf(q.Tenant, q.Request.Subject) {
		return denied(authzen.CapabilityUnknown), nil
	}
	if !expires.IsZero() && !q.now.Before(expires) {
		return denied(authzen.CapabilityExpired), nil
	}
	if reason := s.reason(e, q); reason != "" {
		return denied(reason), nil
	}
	switch claim := q.claim(); {
	case claim.Proof != nil && e.Key == nil:
		return denied(authzen.CapabilityProofInvalid), nil
	case claim.Proof != nil:
		return s.proved(e, q)
	case e.Key != nil && claim.JKT != e.Key.JKT:
		return denied(authzen.CapabilityProofMissing), nil
	}
	return s.status(e, q), nil
}

// proved returns the status of a capability whose claim has a proof, and takes the proof. The proof of
// a call for which there is no use left is not taken.
func (s *Service) proved(e *entry, q *question) (authzen.CapabilityStatus, error) {
	timestamp, reason := e.prove(q)
	if reason != "" {
		return denied(reason), nil
	}
	status := s.status(e, q)
	if status.Capability == nil {
		return status, nil
	}
	id := proofIDOf(e.Key.JKT, q.claim().Proof.Nonce)
	status.Capability.Proof = id.String()
	if q.Proven[status.Capability.Proof] {
		return status, nil
	}
	reason, err := s.proofs.take(id, holderOf(e.Tenant, e.Holder), timestamp, s.clock.last)
	if reason != "" || err != nil {
		return denied(reason), err
	}
	if q.Proven != nil {
		q.Proven[status.Capability.Proof] = true
	}
	return status, nil
}

func denied(reason authzen.CapabilityReason) authzen.CapabilityStatus {
	return authzen.CapabilityStatus{Denied: reason}
}

// status returns the status of a capability that covers the question, if it has a use for it.
func (s *Service) status(e *entry, q *question) authzen.CapabilityStatus {
	verified := e.verified()
	counted := s.counted(e)
	if len(counted) == 0 {
		return authzen.CapabilityStatus{Capability: verified}
	}
	use := q.claim().Use
	if use == nil {
		return q.without(authzen.CapabilityUseMissing)
	}
	call := ""
	if *use {
		call = e.callOf(q)
	}
	if verified.UsesLeft = counted.left(call, q.now); verified.UsesLeft == 0 {
		return q.without(authzen.CapabilityExhausted)
	}
	status := authzen.CapabilityStatus{Capability: verified}
	if *use {
		verified.Call = call
		status.Consume = func() (bool, error) { return s.take(counted, call, q.now) }
	}
	return status
}

// without returns the status of a question that a capability does not cover.
func (q *question) without(reason authzen.CapabilityReason) authzen.CapabilityStatus {
	if !q.Claim.Presents() {
		return authzen.CapabilityStatus{Missing: reason}
	}
	return authzen.CapabilityStatus{Denied: reason}
}

// take takes a use of each capability of a chain. After the last one, a sweep ends the capability.
func (s *Service) take(all counted, call string, at time.Time) (bool, error) {
	taken, err := all.take(call, at)
	for _, e := range all {
		if taken && e.uses.used() >= e.Constraints.MaxUses {
			s.spentMu.Lock()
			s.spent[e.ID] = true
			s.spentMu.Unlock()
		}
	}
	return taken, err
}

// A clock never runs backwards. The zero one is at the beginning of time.
type clock struct{ latest atomic.Int64 }

// last returns the latest time that any call has had.
func (c *clock) last() time.Time { return c.observe(time.Time{}) }

// observe returns the latest time that any call has had. The zero time is none.
func (c *clock) observe(now time.Time) time.Time {
	for {
		latest := c.latest.Load()
		if now.IsZero() || now.UnixNano() <= latest {
			return time.Unix(0, latest).UTC()
		}
		c.latest.CompareAndSwap(latest, now.UnixNano())
	}
}
