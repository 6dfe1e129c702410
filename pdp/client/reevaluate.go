package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// nextByReason maps the reason of a denial without next_action to the next action (Access Request
// Profile, "Re-evaluation Denial Reason Registry").
var nextByReason = map[string]string{
	authzen.ReasonApprovalExpired:      authzen.NextRequest,
	authzen.ReasonOutOfScope:           authzen.NextRequest,
	authzen.ReasonGrantPending:         authzen.NextRetry,
	authzen.ReasonPolicyDenied:         authzen.NextNone,
	authzen.ReasonApprovalUnverifiable: authzen.NextNone,
}

// Next returns the next action of a PEP after the denial of a request with an approval:
// authzen.NextRequest, which means a new [Submission], NextRetry or NextNone. It ignores unknown
// actions and reasons. It returns NextRequest only if the denial has an access request (Access
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

// Reevaluate evaluates a request with an approval. While the answer is to retry, it retries with
// growing delays, until the approval or ctx ends. It never uses an approval that has ended.
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

// evaluateWhile evaluates a request and fails if ctx ends before the answer.
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
