package evaluation

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

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
// "Completion Semantics"). A permit with the obligation to wait for approval is answered as a denial
// is. offered is whether the answer offers an approval.
func answerClaim(o *snapshot.Outcome, s authzen.ApprovalStatus, evaluationID string, offered bool) error {
	if o.Decision && o.Template == "" {
		if s.Approval != nil {
			contextOf(o).Approval = &authzen.Approval{ID: s.Approval.ID, ApprovedUntil: s.Approval.Until}
		}
		return nil
	}
	context := contextOf(o)
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
	if context.NextAction == authzen.NextRequest || !offered {
		return nil
	}
	if o.Decision {
		return offerObligation(o, evaluationID, nil)
	}
	context.AccessRequest = nil
	return nil
}
