package approval

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
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

// A told is what the caller of a call is told of the approval by which it ran.
type told struct {
	Approvers []authzen.Subject `json:"approvers"`
	Until     time.Time         `json:"until"`
}

// hear notes who approved, of tasks that were polled.
func (r *record) hear(asks []approvalRequest) {
	r.approvers = nil
	for _, a := range asks {
		for _, approver := range client.Approvers(a.Task) {
			if !slices.ContainsFunc(r.approvers, func(b authzen.Subject) bool { return b.Type == approver.Type && b.ID == approver.ID }) {
				r.approvers = append(r.approvers, authzen.Subject{Type: approver.Type, ID: approver.ID})
			}
		}
	}
}

// tellApproval adds to the result of a call who has approved it, if the PDP tells.
func (r *record) tellApproval(response *wire.Message, approvals enforce.Approvals) *wire.Message {
	if response == nil || response.Result == nil || r.approvers == nil {
		return response
	}
	by := told{Approvers: r.approvers}
	for _, a := range approvals {
		if by.Until.IsZero() || a.ApprovedUntil.Before(by.Until) {
			by.Until = a.ApprovedUntil
		}
	}
	if with, err := response.WithResultMeta(wire.MetaApproval, by); err == nil {
		return with
	}
	return response
}
