package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// nextByReason is what a PEP does after a denial that does not say, by its
// reason (Access Request Profile, "Re-evaluation Denial Reason Registry").
var nextByReason = map[string]string{
	authzen.ReasonApprovalExpired:      authzen.NextRequest,
	authzen.ReasonOutOfScope:           authzen.NextRequest,
	authzen.ReasonGrantPending:         authzen.NextRetry,
	authzen.ReasonPolicyDenied:         authzen.NextNone,
	authzen.ReasonApprovalUnverifiable: authzen.NextNone,
}

// Next says what a PEP does after a denial of a request with an approval:
// authzen.NextRequest, which asks that a person lift it ([Submission]),
// NextRetry or NextNone. A next_action or a reason that is not known counts for
// nothing, and there is nothing to request where nothing is offered (Access
// Request Profile, "Completion Semantics").
func Next(denied *authzen.Decision) string {
	c := denied.Context
	if denied.Decision || c == nil {
		return authzen.NextNone
	}
	next := c.NextAction
	if !slices.Contains([]string{authzen.NextRequest, authzen.NextRetry, authzen.NextNone}, next) {
		next = cmp.Or(nextByReason[c.Reason], authzen.NextRequest)
	}
	if next == authzen.NextRequest && c.AccessRequest == nil {
		return authzen.NextNone
	}
	return next
}

// Reevaluate asks for a decision of a request with an approval. Where the
// answer is to retry, it does, less and less often, as long as the approval
// stands and ctx lasts. Nothing is asked or permitted by an approval that has
// ended.
func (c *Client) Reevaluate(ctx context.Context, request *authzen.EvaluationRequest, approval *authzen.Approval) (*authzen.Decision, error) {
	again, err := Approved(request, approval)
	if err != nil {
		return nil, fmt.Errorf("reevaluate: %w", err)
	}
	ctx, cancel := context.WithDeadlineCause(ctx, approval.ApprovedUntil, errEnded)
	defer cancel()
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		decision, err := c.evaluateWhile(ctx, again)
		if err != nil {
			return nil, fmt.Errorf("reevaluate: %w", err)
		}
		if Next(decision) != authzen.NextRetry {
			return decision, nil
		}
		after := time.Duration(decision.Context.RetryAfter) * time.Second
		if err := sleep(ctx, max(pause, after)); err != nil {
			return nil, fmt.Errorf("reevaluate: %w", err)
		}
	}
}

// evaluateWhile asks for a decision that comes before ctx ends.
func (c *Client) evaluateWhile(ctx context.Context, request *authzen.EvaluationRequest) (*authzen.Decision, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	decision, err := c.Evaluate(ctx, request)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return decision, err
}
