package evaluation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// decide decides one request with the status of the approval that it claims, and adds to a denial what
// the PEP can do about it. A permit uses the approval. If another request used it up first, decide
// decides again without it.
func (e *Engine) decide(ctx context.Context, a evaluationInput) (decided, error) {
	ctx, part := span(ctx, a.call, "decide")
	defer part.End()
	claim := e.approvalClaim(a.request.Context)
	standing, err := e.approvalStatus(ctx, a, claim)
	if err != nil {
		return decided{}, err
	}
	outcome, err := a.snapshot.Decide(a.request, snapshot.Environment{Time: a.time, Approval: standing.Approval})
	if err != nil {
		return decided{}, err
	}
	if outcome.Decision && outcome.Template == "" && standing.Consume != nil {
		err = standing.Consume(ctx)
	}
	if errors.Is(err, authzen.ErrApprovalEnded) {
		standing = authzen.ApprovalStatus{Reason: authzen.ReasonApprovalExpired, Explanation: toldTaken}
		outcome, err = a.snapshot.Decide(a.request, snapshot.Environment{Time: a.time})
	}
	if err != nil {
		return decided{}, fmt.Errorf("use approval: %w", err)
	}
	out := decided{outcome, standing.Approval, e.decideShadow(ctx, a, standing.Approval)}
	snapshot.PrefixObligations(outcome.Obligations, a.item)
	if err := e.offer(a, outcome); err != nil {
		return decided{}, err
	}
	if claim != nil {
		answerClaim(outcome, standing)
	}
	return out, nil
}

// decided is an outcome and the other data that the log records.
type decided struct {
	*snapshot.Outcome
	approval *authzen.VerifiedApproval // active for the request; nil for none
	shadow   *decisionlog.Shadow       // nil without a shadow store
}

// result returns the decision as a log record.
func (d decided) result() decisionlog.Result {
	r := d.Result()
	r.Approval, r.Shadow = d.approval, d.shadow
	return r
}

// approvalStatus returns the status of a claimed approval.
func (e *Engine) approvalStatus(ctx context.Context, a evaluationInput, claim jsontext.Value) (authzen.ApprovalStatus, error) {
	if claim == nil {
		return authzen.ApprovalStatus{}, nil
	}
	standing, err := e.config.Approvals.Verify(ctx, &authzen.Reevaluation{
		EvaluationID: a.call.ID, Tenant: a.call.Tenant, Caller: a.call.Caller, RequestID: a.call.RequestID, Item: a.call.Item,
		Time: a.time, Revision: a.snapshot.Revision(), Claim: claim, Request: a.request,
	})
	if err != nil {
		return standing, fmt.Errorf("verify approval: %w", err)
	}
	return standing, nil
}

// approvalClaim returns the approval that a request claims, or nil. Most requests claim none, and a text
// search finds that without parsing the context. A claim in a spelling that the search misses has no
// effect.
func (e *Engine) approvalClaim(context jsontext.Value) jsontext.Value {
	if e.config.Approvals == nil || !bytes.Contains(context, []byte(`"`+snapshot.ContextApproval+`"`)) {
		return nil
	}
	var claim struct {
		Approval jsontext.Value `json:"approval"`
	}
	if json.Unmarshal(context, &claim) != nil || claim.Approval.Kind() == 'n' {
		return nil
	}
	return claim.Approval
}

// offer adds how to request an approval: to a denial, or to the obligation to wait for approval.
func (e *Engine) offer(a evaluationInput, out *snapshot.Outcome) error {
	if out.Template == "" || e.config.Offer == nil {
		return nil
	}
	if a.offered.isFull() {
		withoutOffer(out)
		return nil
	}
	offer, err := e.config.Offer(&authzen.RequestableDenial{
		EvaluationID: a.call.ID, Tenant: a.call.Tenant, Caller: a.call.Caller, Time: a.time,
		Revision: a.snapshot.Revision(), Template: out.Template, Request: a.request,
		WithoutToken: a.call.Minimal,
	})
	if err != nil {
		return fmt.Errorf("offer approval: %w", err)
	}
	if offer == nil {
		return nil
	}
	if !a.offered.add(offer) {
		withoutOffer(out)
		return nil
	}
	if out.Decision {
		return offerObligation(out, a.call.ID, offer)
	}
	context := contextOf(out)
	context.EvaluationID, context.EvaluatedAt = a.call.ID, a.time.Truncate(time.Second)
	context.Reason, context.AccessRequest = authzen.ReasonApprovalRequired, offer
	return nil
}

// withoutOffer notes that the answer is too large for another offer.
func withoutOffer(o *snapshot.Outcome) {
	context := contextOf(o)
	if !o.Decision {
		context.Reason = authzen.ReasonApprovalRequired
	}
	context.ReasonAdmin = context.ReasonAdmin.After("Ask about this item again, with fewer beside it: this answer offers no more approvals.")
}

// contextOf returns the context of the decision, and creates it if it is nil.
func contextOf(o *snapshot.Outcome) *authzen.DecisionContext {
	if o.Context == nil {
		o.Context = &authzen.DecisionContext{}
	}
	return o.Context
}

// offerObligation adds the offer to the obligation to wait for approval, which is the last one. The log
// record omits the offer, because anyone who holds it can use it.
func offerObligation(o *snapshot.Outcome, evaluationID string, offer *authzen.AccessRequest) error {
	properties, err := json.Marshal(authzen.ApprovalRequired{
		Action: authzen.ActionApprovalRequired, Template: o.Template, EvaluationID: evaluationID, AccessRequest: offer,
	})
	if err != nil {
		return fmt.Errorf("encode obligation: %w", err)
	}
	told := slices.Clone(o.Context.Obligations)
	told[len(told)-1].Properties = properties
	o.Context.Obligations = told
	return nil
}

// retryAfter is the delay in seconds before a PEP should retry a pending approval.
const retryAfter = 5

// toldTaken is the message for an approval that ended while a request claimed it.
const toldTaken = "The approval has ended, or another request has used it up."

// answerClaim adds the status of the claimed approval to the answer (Access Request Profile,
// "Completion Semantics").
func answerClaim(o *snapshot.Outcome, s authzen.ApprovalStatus) {
	if o.Decision {
		if s.Approval != nil && o.Template == "" {
			contextOf(o).Approval = &authzen.Approval{ID: s.Approval.ID, ApprovedUntil: s.Approval.Until}
		}
		return
	}
	context := contextOf(o)
	offered := context.AccessRequest != nil
	context.Reason, context.NextAction = s.Reason, authzen.NextNone
	if s.Explanation != "" {
		context.ReasonUser = context.ReasonUser.After(s.Explanation)
	}
	switch {
	case s.Approval != nil && offered:
		context.Reason, context.NextAction = authzen.ReasonOutOfScope, authzen.NextRequest
	case s.Approval != nil:
		context.Reason = authzen.ReasonPolicyDenied
	case s.Reason == authzen.ReasonGrantPending:
		context.NextAction, context.RetryAfter = authzen.NextRetry, retryAfter
	case s.Reason != authzen.ReasonApprovalUnverifiable && offered:
		context.NextAction = authzen.NextRequest
	}
	if context.NextAction != authzen.NextRequest {
		context.AccessRequest = nil
	}
}

// ApprovalTemplate returns the terms of approvals for a tenant. A template that config.yaml does not
// name has the default terms.
func (e *Engine) ApprovalTemplate(tenant, name string) (authzen.ApprovalTemplate, error) {
	all := e.current.Load()
	if all == nil {
		return authzen.ApprovalTemplate{}, snapshot.ErrNoSnapshot
	}
	s, err := all.For(tenant)
	if err != nil {
		return authzen.ApprovalTemplate{}, err
	}
	if terms, ok := s.Templates[name]; ok {
		return terms, nil
	}
	return snapshot.ApprovalTemplate{}.Compile()
}
