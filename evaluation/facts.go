package evaluation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Capabilities finds the capability that covers a request.
type Capabilities interface {
	Find(context.Context, *authzen.CapabilityQuestion) (authzen.CapabilityStatus, error)
}

// facts are what the services say of one request, beside its own content.
type facts struct {
	claimsApproval bool
	approval       authzen.ApprovalStatus
	claimed        *authzen.CapabilityClaim // nil for none
	capability     authzen.CapabilityStatus
}

// environment returns the environment of a decision with these facts.
func (f *facts) environment(at time.Time) snapshot.Environment {
	return snapshot.Environment{Time: at, Approval: f.approval.Approval, Capability: f.capability.Capability, CapabilityDenied: f.capability.Denied}
}

// facts returns the status of the approval that a request claims, and of the capability that covers it.
func (e *Engine) facts(ctx context.Context, a evaluationInput) (f facts, err error) {
	if err := a.call.checkLabels(a.request.Context); err != nil {
		return f, err
	}
	claim := e.approvalClaim(a.request.Context)
	f.claimsApproval = claim != nil
	if f.approval, err = e.approvalStatus(ctx, a, claim); err != nil {
		return f, err
	}
	if f.claimed, err = snapshot.CapabilityClaim(a.request.Context); err != nil {
		return f, err
	}
	f.capability, err = e.capabilityStatus(ctx, a, f.claimed)
	return f, err
}

// decideWith decides with the facts, and uses up what a permit depends on. If another request used
// something up first, decideWith decides again without it.
func decideWith(ctx context.Context, a evaluationInput, f *facts) (*snapshot.Outcome, error) {
	outcome, err := a.snapshot.Decide(a.request, f.environment(a.time))
	if err != nil || !outcome.Decision || outcome.Template != "" {
		return outcome, err
	}
	switch err := f.consume(ctx); {
	case err == nil:
		return outcome, nil
	case errors.Is(err, authzen.ErrApprovalEnded):
		f.approval = authzen.ApprovalStatus{Reason: authzen.ReasonApprovalExpired, Explanation: toldTaken}
	case errors.Is(err, authzen.ErrCapabilityEnded):
		f.capability = authzen.CapabilityStatus{Missing: authzen.CapabilityExhausted}
		if f.claimed.Presents() {
			f.capability.Denied = authzen.CapabilityExhausted
		}
	default:
		return nil, err
	}
	return decideWith(ctx, a, f)
}

// consume takes a use of the capability and of the approval, each at most once.
func (f *facts) consume(ctx context.Context) error {
	if take := f.capability.Consume; take != nil {
		if _, err := take(); err != nil {
			return fmt.Errorf("use capability: %w", err)
		}
		// A repetition counts as well: its use may be that of a decision whose entry is not in the log.
		f.capability.Consume, f.capability.Capability.Used = nil, true
	}
	if f.approval.Consume == nil {
		return nil
	}
	if err := f.approval.Consume(ctx); err != nil {
		return fmt.Errorf("use approval: %w", err)
	}
	return nil
}

// approvalStatus returns the status of a claimed approval.
func (e *Engine) approvalStatus(ctx context.Context, a evaluationInput, claim jsontext.Value) (authzen.ApprovalStatus, error) {
	if claim == nil {
		return authzen.ApprovalStatus{}, nil
	}
	standing, err := e.config.Approvals.Verify(ctx, &authzen.Reevaluation{
		EvaluationID: a.call.ID, Tenant: a.call.Tenant, Caller: a.call.Caller, RequestID: a.call.RequestID, Item: a.call.Item, Capability: a.call.Capability,
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

// capabilityStatus returns the status of the capability that covers a request. Where no policy depends
// on it and the request presents none, nobody looks for one.
func (e *Engine) capabilityStatus(ctx context.Context, a evaluationInput, claim *authzen.CapabilityClaim) (authzen.CapabilityStatus, error) {
	presented := claim.Presents()
	switch {
	case !presented && !a.readsCapability():
		return authzen.CapabilityStatus{}, nil
	case e.config.Capabilities == nil && presented:
		return authzen.CapabilityStatus{Denied: authzen.CapabilityUnknown}, nil
	case e.config.Capabilities == nil:
		return authzen.CapabilityStatus{}, nil
	}
	status, err := e.config.Capabilities.Find(ctx, &authzen.CapabilityQuestion{
		EvaluationID: a.call.ID, Tenant: a.call.Tenant, RequestID: a.call.RequestID, Time: a.time, Claim: claim, Request: a.request, Proven: a.proven,
	})
	if err != nil {
		return status, fmt.Errorf("find capability: %w", err)
	}
	return status, nil
}

// readsCapability reports whether the decision, or that of the shadow, may depend on a capability.
func (a *evaluationInput) readsCapability() bool {
	if a.snapshot.ReadsCapability || a.shadow == nil {
		return a.snapshot.ReadsCapability
	}
	shadow, err := a.shadow.For(a.call.Tenant)
	return err == nil && shadow.ReadsCapability
}

// offerCapability adds to a denial how to ask for the capability that it needs, and why one that the
// subject has does not do.
func (e *Engine) offerCapability(a evaluationInput, missing authzen.CapabilityReason, out *snapshot.Outcome) {
	tool, ok := a.request.Tool()
	if out.Capability == "" || out.Decision || !ok || e.config.CapabilityEndpoint == nil {
		return
	}
	context := contextOf(out)
	context.CapabilityRequest = &authzen.CapabilityRequest{
		Endpoint: e.config.CapabilityEndpoint(a.call.Tenant), Tools: []string{tool}, Template: out.Capability,
	}
	context.CapabilityDenied = missing
	if context.Reason == "" {
		context.EvaluationID, context.Reason = a.call.ID, authzen.ReasonCapabilityRequired
	}
}
