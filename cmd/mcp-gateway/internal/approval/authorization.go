package approval

import (
	"cmp"
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp/client"
)

// Bounds of what a caller is told of its own call: the bytes of its arguments, and the
// characters of the reason.
const (
	maxToldArguments = 4 << 10
	maxToldReason    = 512
)

const needsApproval = "the policies require the approval of a person"

// authorizationRequest returns what a person is asked about a call, for its caller.
// Arguments that are too long or cannot be masked are left out.
func (s *Service) authorizationRequest(d *enforce.DeniedCall, r *record) *enforce.AuthorizationRequest {
	asked := &enforce.AuthorizationRequest{
		ID: r.Task.Task.ID, Tool: r.Name, Requester: plain.Text(r.Subject.Type + ":" + r.Subject.ID), ExpiresAt: r.decideBy().UTC().Truncate(time.Second),
	}
	if d.Refusal.Message != enforce.AccessDenied {
		asked.Reason = d.Refusal.Message
	}
	if r.Authorization != nil {
		asked.Reason = cmp.Or(asked.Reason, r.Authorization.Message)
	}
	asked.Reason = plain.Cut(plain.Text(cmp.Or(asked.Reason, needsApproval)), maxToldReason)
	if arguments := d.Binding.Arguments; len(arguments) <= maxToldArguments {
		asked.Arguments = s.masked(arguments)
	}
	return asked
}

// decideBy is when the first of the tasks expires without a decision.
func (r *record) decideBy() time.Time {
	first := r.expires()
	for _, a := range r.asks() {
		if by := client.DecideBy(a.Task); by.Before(first) {
			first = by
		}
	}
	return first
}

// masked returns a value with what looks like secrets masked, or nil.
func (s *Service) masked(v jsontext.Value) jsontext.Value {
	if v == nil || s.cfg.Mask == nil {
		return v
	}
	masked, err := s.cfg.Mask(v)
	if err != nil {
		return nil
	}
	return masked
}

// isLate reports whether the time is over in which the tool wants somebody to agree.
func (s *Service) isLate(r *record) bool {
	until := r.Authorization.Until(r.Created)
	return r.waits() && !until.IsZero() && !s.cfg.Now().Before(until)
}

// expire ends a call to which nobody has agreed in time, and what was asked about it.
func (s *Service) expire(ctx context.Context, r *record) {
	s.refuse(ctx, r, enforce.ReasonNotApproved)
	if r.State == refused && r.isBounded() {
		s.cancel(ctx, r, noLongerNeeded)
	}
}

// isBounded reports whether the tool bounds the time in which somebody has to agree.
func (r *record) isBounded() bool { return !r.Authorization.Until(r.Created).IsZero() }
