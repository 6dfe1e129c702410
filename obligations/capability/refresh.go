package capability

import (
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

const pathRefreshes = "/refreshes"

// Refresh returns the terms of a capability that takes the place of Terms.Refreshes, with the limits of
// that one, and its depth. It refuses terms beyond those limits; only the end is new. The old one must be
// an active capability of by.By. One with a key needs the proof, which Refresh takes.
func (s *Service) Refresh(c Caller, t Terms, by Handover) (terms Terms, depth int, err error) {
	old := s.index.get(t.Refreshes)
	if old == nil || holderOf(old.Tenant, old.Holder) != holderOf(c.Tenant, by.By) {
		return t, 0, authzen.Invalid(pathRefreshes, "is no capability of the subject")
	}
	asked, err := t.fingerprint()
	if err != nil {
		return t, 0, err
	}
	now := s.moment()
	if reason := s.checkChain(old, now); reason != "" {
		return t, 0, authzen.Invalid(pathRefreshes, "cannot be refreshed: %s", reason)
	}
	if terms, err = s.inPlaceOf(old, t, now); err != nil {
		return t, 0, err
	}
	terms.asked = asked
	if old.Key != nil {
		terms.proof, err = s.proveHandover(old, &by, now)
	}
	return terms, old.Depth, err
}

// inPlaceOf returns terms with the limits of an old capability, and of the one from which it was handed
// on. It refuses terms that go beyond them.
func (s *Service) inPlaceOf(old *entry, t Terms, now time.Time) (Terms, error) {
	t, err := t.boundAs(old)
	if err != nil {
		return t, err
	}
	if rule := old.Constraints.ArgumentsSchema; rule != nil && t.Constraints.ArgumentsSchema != nil && !jsonobject.Equal(rule, t.Constraints.ArgumentsSchema) {
		return t, authzen.Invalid("/constraints/arguments_schema", "must be that of %s", old.ID)
	}
	if t, err = t.limitedBy(old); err != nil {
		return t, err
	}
	if most := old.Constraints.ValidUntil.Sub(old.Constraints.ValidFrom); t.lasting(now) > most {
		return t, authzen.Invalid("/duration", "is longer than the %d seconds of %s", int64(most.Seconds()), old.ID)
	}
	if old.Parent == "" {
		return t, nil
	}
	parent := s.index.get(old.Parent)
	if parent == nil {
		return t, authzen.Invalid(pathRefreshes, "cannot be refreshed: %s", authzen.CapabilityRevoked)
	}
	t.Parent = old.Parent
	return t.within(parent, now)
}

// boundAs returns terms that are bound as an old capability is: to its key and to its session. They may
// be bound to more.
func (t Terms) boundAs(old *entry) (Terms, error) {
	if old.Session != "" && (t.Session == "" || sessionDigest(t.Session) != old.Session) {
		return t, authzen.Invalid("/session", "must be that of %s", old.ID)
	}
	switch {
	case old.Key == nil:
	case t.Key == nil:
		t.Key = old.Key
	case t.Key.JKT != old.Key.JKT:
		return t, authzen.Invalid("/holder_key", "must be that of %s: ask for a new capability with another key", old.ID)
	}
	return t, nil
}

// lasting returns how long a capability lasts at most, if it is issued now or later.
func (t *Terms) lasting(now time.Time) time.Duration {
	from, until := now.Truncate(time.Second), t.Constraints.ValidUntil
	if t.Constraints.ValidFrom.After(from) {
		from = t.Constraints.ValidFrom
	}
	if lasts := t.Duration.Duration; until.IsZero() || lasts > 0 && lasts < until.Sub(from) {
		return lasts
	}
	return until.Sub(from)
}

// endRefreshed ends the capability whose place an issued one takes. One whose time or uses are over has
// ended already. ErrRefreshed means that it was revoked: what is issued then would undo that.
func (t txn) endRefreshed(made *Capability, by Actor, at time.Time) error {
	if made.Refreshes == "" || made.State != Active {
		return nil
	}
	old := t.s.index.get(made.Refreshes)
	if old == nil || old.State == Revoked {
		return ErrRefreshed
	}
	now := at.Truncate(time.Second)
	if !old.live() || !now.Before(old.due()) {
		return nil
	}
	e := event{kind: eventRevoke, by: Actor{Caller: by.Caller, RequestID: by.RequestID}, reason: "refreshed by " + made.ID}
	after, err := next(*old.Capability, e, now)
	if err != nil {
		return err
	}
	return t.put(old, &after, e, at)
}
