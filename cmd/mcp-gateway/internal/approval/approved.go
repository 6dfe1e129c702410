package approval

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A told is what the caller of a call is told of the approval by which it ran.
type told struct {
	Approvers []authzen.Subject `json:"approvers,omitempty"`
	Until     time.Time         `json:"until"`
	// Changed are the arguments that the approver has changed, with their new values;
	// null for one that the approver has removed.
	Changed jsonobject.Object `json:"changed_arguments,omitempty"`
}

// hear notes who approved, and which arguments the approver has changed, of tasks that
// were polled.
func (r *record) hear(asks []approvalRequest) {
	r.approvers, r.edited = nil, nil
	for _, a := range asks {
		for _, approver := range client.Approvers(a.Task) {
			if !slices.ContainsFunc(r.approvers, func(b authzen.Subject) bool { return b.Type == approver.Type && b.ID == approver.ID }) {
				r.approvers = append(r.approvers, authzen.Subject{Type: approver.Type, ID: approver.ID})
			}
		}
		if a.Task.Result != nil && len(asks) == 1 { // with several, each would be of other arguments
			r.edited = a.Task.Result.Arguments
		}
	}
}

// edit makes a call, and what is kept of it, the one with the arguments that its approver
// has changed, and returns the question and the approvals of that. Arguments that do not
// fit the tool end the call.
func (s *Service) edit(ctx context.Context, c *enforce.Call, r *record, q *enforce.Question, approvals enforce.Approvals) (*enforce.Question, enforce.Approvals, error) {
	if r.edited == nil || s.cfg.Edited == nil {
		return q, approvals, nil
	}
	changed, err := changedArguments(c.Params.Arguments, r.edited)
	if err != nil {
		return nil, nil, err
	}
	question, digest, err := s.cfg.Edited(ctx, c, r.edited)
	var refused *enforce.Refusal
	if errors.As(err, &refused) {
		s.refuse(ctx, r, refused.Data.Reason)
	}
	if err != nil {
		return nil, nil, err
	}
	of := make(enforce.Approvals)
	for n, a := range approvals {
		if of[n], err = client.WithArguments(a, c.Params.Arguments); err != nil {
			return nil, nil, err
		}
	}
	params, err := jsonobject.Parse(r.Params)
	if err != nil {
		return nil, nil, err
	}
	params.Put("arguments", c.Params.Arguments)
	r.changed, r.Digest = changed, digest
	r.Params, err = params.Encode()
	return question, of, err
}

// changedArguments returns the arguments that differ, with their new values.
func changedArguments(was, is jsontext.Value) (jsonobject.Object, error) {
	before, err := jsonobject.Parse(was)
	if err != nil {
		return nil, err
	}
	after, err := jsonobject.Parse(is)
	if err != nil {
		return nil, err
	}
	changed := jsonobject.Object{}
	for name, value := range after {
		if before[name] == nil || !same(before[name], value) {
			changed[name] = value
		}
	}
	for name := range before {
		if after[name] == nil {
			changed[name] = jsontext.Value("null")
		}
	}
	return changed, nil
}

// tellApproval adds to the result of a call who has approved it, if the PDP tells, and
// which arguments the approver has changed.
func (r *record) tellApproval(response *wire.Message, approvals enforce.Approvals) *wire.Message {
	if response == nil || response.Result == nil || r.approvers == nil && r.changed == nil {
		return response
	}
	by := told{Approvers: r.approvers, Changed: r.changed}
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
