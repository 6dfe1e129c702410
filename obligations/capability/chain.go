package capability

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// maxDepth is how many times a capability can be handed on.
const maxDepth = 4

// ancestors returns the capabilities from which one was handed on, its parent first. It returns the
// reason why the chain is not complete, or "".
func (x *index) ancestors(e *entry) (chain []*entry, reason authzen.CapabilityReason) {
	for parent := e.Parent; parent != ""; parent = e.Parent {
		if len(chain) == maxDepth {
			return nil, authzen.CapabilityDepth
		}
		if e = x.get(parent); e == nil {
			return nil, authzen.CapabilityRevoked // it ended long ago
		}
		chain = append(chain, e)
	}
	return chain, ""
}

// reason returns why a capability does not cover a question, or "". What an ancestor does not cover, no
// descendant does.
func (s *Service) reason(e *entry, q *question) authzen.CapabilityReason {
	if reason := e.covers(q); reason != "" || e.Parent == "" {
		return reason
	}
	chain, reason := s.index.ancestors(e)
	for _, ancestor := range chain {
		if reason == "" {
			reason = ancestor.permits(q)
		}
	}
	return reason
}

// counted returns the capabilities whose uses a use of one takes: its own, and those from which it was
// handed on. A chain that is not complete covers nothing.
func (s *Service) counted(e *entry) (all counted) {
	if e.uses != nil {
		all = append(all, e)
	}
	if e.Parent == "" {
		return all
	}
	chain, _ := s.index.ancestors(e)
	for _, ancestor := range chain {
		if ancestor.uses != nil {
			all = append(all, ancestor)
		}
	}
	return all
}

// counted are the capabilities of a chain whose uses are counted, from the last descendant on. Whoever
// locks several counters does it in this order.
type counted []*entry

// left returns the number of uses left to a call.
func (all counted) left(call string, at time.Time) int {
	left := maxUses + 1
	for _, e := range all {
		left = min(left, e.uses.left(call, at))
	}
	return left
}

// take takes a use of each, or of none. It reports false for the repetition of a call.
func (all counted) take(call string, at time.Time) (taken bool, err error) {
	for _, e := range all {
		e.uses.mu.Lock()
		defer e.uses.mu.Unlock()
	}
	for _, e := range all {
		if !e.uses.hasLeft(call, at) {
			return false, authzen.ErrCapabilityEnded
		}
	}
	for _, e := range all {
		taken = e.uses.counts.add(call, at) || taken
	}
	return taken, nil
}

// callOf returns the digest by which a repetition of a call is recognized, or "". What was handed on has
// digests of its own, because its calls count for its parent, too.
func (e *entry) callOf(q *question) string {
	call := q.call()
	if call == "" || e.Parent == "" {
		return call
	}
	return shortDigest(e.ID + " " + call)
}

// A Handover is a request by the holder of a capability to hand it on or to refresh it.
type Handover struct {
	By authzen.Subject // the holder of Terms.Parent or Terms.Refreshes
	// Proof proves that By has the key of that capability, for the request with this digest.
	Proof  *authzen.CapabilityProof
	Digest string
}

// methodRequest is the method that a proof for a request names. Its tool is "".
const methodRequest = "capabilities/request"

// HandOn returns the terms of a capability that is handed on, with the limits of its parent, and its
// depth. It refuses terms beyond those limits. The parent must be an active capability of by.By. A
// parent with a key needs the proof, which HandOn takes.
func (s *Service) HandOn(c Caller, t Terms, by Handover) (terms Terms, depth int, err error) {
	parent := s.index.get(t.Parent)
	if parent == nil || holderOf(parent.Tenant, parent.Holder) != holderOf(c.Tenant, by.By) {
		return t, 0, authzen.Invalid(pathParent, "is no capability of the subject")
	}
	asked, err := t.fingerprint()
	if err != nil {
		return t, 0, err
	}
	now := s.moment()
	if err := s.checkParent(parent, now); err != nil {
		return t, 0, err
	}
	if terms, err = t.within(parent, now); err != nil {
		return t, 0, err
	}
	terms.asked = asked
	if parent.Key != nil {
		terms.proof, err = s.proveHandover(parent, &by, now)
	}
	return terms, parent.Depth + 1, err
}

const pathParent = "/parent"

// proveHandover takes the proof of a request to hand on or refresh a capability with a key, and returns
// its id.
func (s *Service) proveHandover(parent *entry, by *Handover, now time.Time) (id string, err error) {
	reason := authzen.CapabilityProofMissing
	if by.Proof != nil {
		var timestamp time.Time
		if timestamp, reason = parent.isProven(by.Proof, &provenCall{ArgumentsDigest: by.Digest, Capability: parent.ID, Method: methodRequest}, now); reason == "" {
			taken := proofIDOf(parent.Key.JKT, by.Proof.Nonce)
			id = taken.String()
			reason, err = s.proofs.take(taken, holderOf(parent.Tenant, parent.Holder), timestamp, s.clock.last)
		}
	}
	if err == nil && reason != "" {
		err = authzen.Invalid("/proof", "does not prove that the subject has the key of %s: %s", parent.ID, reason)
	}
	return id, err
}

// checkParent refuses a parent that cannot be handed on at a time.
func (s *Service) checkParent(parent *entry, now time.Time) error {
	switch reason := s.checkChain(parent, now); {
	case reason != "":
		return authzen.Invalid(pathParent, "cannot be handed on: %s", reason)
	case parent.Depth >= maxDepth:
		return authzen.Invalid(pathParent, "was handed on %d times", maxDepth)
	case parent.Session != "":
		return authzen.Invalid(pathParent, "is bound to a session")
	}
	return nil
}

// checkChain returns why a capability, or one from which it was handed on, is not active at a time, or "".
func (s *Service) checkChain(e *entry, now time.Time) authzen.CapabilityReason {
	chain, reason := s.index.ancestors(e)
	for _, e := range append([]*entry{e}, chain...) {
		if reason == "" {
			reason = e.valid(now)
		}
		if reason == "" && (e.State != Active || e.uses != nil && e.uses.used() >= e.Constraints.MaxUses) {
			reason = authzen.CapabilityExhausted
		}
	}
	return reason
}

// within returns terms with the limits of a parent. It refuses terms that go beyond them.
func (t Terms) within(parent *entry, now time.Time) (Terms, error) {
	t, err := t.limitedBy(parent)
	if err != nil {
		return t, err
	}
	limits, outer := &t.Constraints, &parent.Constraints
	from := now
	for _, other := range []time.Time{limits.ValidFrom, outer.ValidFrom} {
		if other.After(from) {
			from = other
		}
	}
	switch {
	case limits.ValidUntil.After(outer.ValidUntil):
		return t, authzen.Invalid("/constraints/validUntil", "is later than the end of the parent, %s", outer.ValidUntil.Format(time.RFC3339))
	case t.Duration.Duration > 0 && from.Truncate(time.Second).Add(t.Duration.Duration).After(outer.ValidUntil):
		return t, authzen.Invalid("/duration", "is longer than the parent lasts, until %s", outer.ValidUntil.Format(time.RFC3339))
	}
	if from.After(now) {
		limits.ValidFrom = from
	}
	if limits.ValidUntil.IsZero() && t.Duration.Duration > 0 {
		limits.ValidUntil = outer.ValidUntil
	}
	return t, nil
}

// limitedBy returns terms with the limits of another capability on tools, uses and arguments. It refuses
// terms that go beyond them.
func (t Terms) limitedBy(outer *entry) (Terms, error) {
	for i, tool := range t.Tools {
		if !slices.ContainsFunc(outer.Tools, func(pattern string) bool { return matches(pattern, tool) }) {
			return t, authzen.Invalid(fmt.Sprintf("/tools/%d", i), "is not a tool of %s", outer.ID)
		}
	}
	if most := outer.Constraints.MaxUses; most > 0 && (t.Constraints.MaxUses == 0 || t.Constraints.MaxUses > most) {
		return t, authzen.Invalid("/constraints/maxUses", "must be 1 to %d, as that of %s", most, outer.ID)
	}
	return t.withArguments(outer)
}

// withArguments adds the limits of another capability on arguments.
func (t Terms) withArguments(from *entry) (Terms, error) {
	outer := &from.Constraints
	all := jsonobject.Object{}
	for name, value := range t.Constraints.Arguments {
		all[name] = value
	}
	for name, want := range outer.Arguments {
		value, has := all[name]
		if has && !jsonobject.Equal(value, want) {
			return t, authzen.Invalid("/constraints/arguments", "has another value of %.64q than %s", name, from.ID)
		}
		all[name] = bytes.Clone(want)
	}
	if len(all) > 0 {
		t.Constraints.Arguments = all
	}
	if t.Constraints.ArgumentsSchema == nil {
		t.Constraints.ArgumentsSchema = outer.ArgumentsSchema
	}
	return t, nil
}
