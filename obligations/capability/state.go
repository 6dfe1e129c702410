package capability

import (
	"fmt"
	"slices"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An event is something that happens to a capability.
type event struct {
	kind   eventKind
	grant  Grant  // of an issue
	by     Actor  // who caused it
	reason string // of a refusal or revocation
	used   int    // of an exhaustion: uses taken
}

type eventKind string

const (
	eventRequest eventKind = "request" // creates a pending one
	eventIssue   eventKind = "issue"
	eventRefuse  eventKind = "refuse"
	eventRevoke  eventKind = "revoke"
	eventExhaust eventKind = "exhaust"
	eventExpire  eventKind = "expire"
)

// retention is how long a capability is stored after its end. A revoked one is stored at least as long as
// a token of it may be valid.
const retention = 24 * time.Hour

// next returns the capability after an event, and implements the complete state machine. It returns
// ErrState if the state does not allow the event. It does not modify c.
func next(c Capability, e event, now time.Time) (Capability, error) {
	if !c.live() {
		return c, fmt.Errorf("%w: it is %s", ErrState, c.State)
	}
	overdue := !now.Before(c.due())
	if overdue != (e.kind == eventExpire) {
		return c, fmt.Errorf("%w: it is %s until %s", ErrState, c.State, c.due().Format(time.RFC3339))
	}
	switch {
	case e.kind == eventExpire:
		return c.end(Expired, e, now), nil
	case e.kind == eventIssue && c.State == Pending:
		return c.issued(e.grant, now)
	case (e.kind == eventRefuse || e.kind == eventRevoke) && c.State == Pending:
		return c.end(Refused, e, now), nil
	case e.kind == eventRevoke && c.State == Active:
		return c.end(Revoked, e, now), nil
	case e.kind == eventExhaust && c.State == Active && c.limited() && e.used >= c.Constraints.MaxUses:
		return c.end(Exhausted, e, now), nil
	}
	return c, fmt.Errorf("%w: it is %s", ErrState, c.State)
}

// end returns the capability after its end.
func (c Capability) end(state State, e event, now time.Time) Capability {
	c.State, c.Ended, c.EndReason = state, now, e.reason
	if e.by.Subject.ID != "" {
		c.EndedBy = named(e.by.Subject)
	}
	return c
}

// issued returns the capability after its issue. Its time begins with the issue.
func (c Capability) issued(g Grant, now time.Time) (Capability, error) {
	from := c.Constraints.ValidFrom
	if from.Before(now) {
		from = now
	}
	until := earliest(from.Add(c.Duration.Duration), c.Constraints.ValidUntil, g.Until)
	if c.Duration.Duration == 0 {
		until = earliest(c.Constraints.ValidUntil, g.Until)
	}
	if !from.Before(until) {
		return c, fmt.Errorf("%w: it would end at %s, before it begins", ErrState, until.Format(time.RFC3339))
	}
	c.State, c.Issued = Active, now
	c.Constraints.ValidFrom, c.Constraints.ValidUntil = from, until
	c.Issuer, c.Approvers = g.issuer(), g.approvers()
	c.EvaluationIDs = slices.Concat(c.EvaluationIDs, g.EvaluationIDs)
	c.ApprovalIDs = slices.Clone(g.ApprovalIDs)
	if g.Task != "" {
		c.Task = g.Task
	}
	if g.Template != "" {
		c.Template = g.Template
	}
	if g.Revision != "" {
		c.Revision = g.Revision
	}
	return c, nil
}

func (g Grant) issuer() *authzen.Subject {
	if g.Issuer == nil {
		return nil
	}
	return named(*g.Issuer)
}

func (g Grant) approvers() []authzen.Subject {
	var all []authzen.Subject
	for _, a := range g.Approvers {
		all = append(all, *named(a))
	}
	return all
}

// named returns an entity without its properties.
func named(e authzen.Entity) *authzen.Entity { return &authzen.Entity{Type: e.Type, ID: e.ID} }

// earliest returns the earliest of first and the non-zero others, in whole seconds.
func earliest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first.UTC().Truncate(time.Second)
}
