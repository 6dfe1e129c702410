package evaluation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Evaluate decides one AuthZEN request. An *[authzen.ValidationError] means that the request is invalid.
// Any other error means that there is no decision.
func (e *Engine) Evaluate(ctx context.Context, call Call, req *authzen.EvaluationRequest) (*authzen.Decision, error) {
	s, start, err := e.begin(call.Tenant)
	if err != nil {
		return nil, err
	}
	call = call.identified()
	outcome, err := e.decide(ctx, evaluationInput{snapshot: s, shadow: e.shadow.Load(), time: start, call: call, request: req})
	if err != nil {
		return nil, err
	}
	result := outcome.result()
	entry := decisionlog.Entry{Kind: decisionlog.KindEvaluation, Result: &result}
	receipt, err := e.record(ctx, call, &entry, s.Revision(), start, req)
	if err != nil {
		return nil, err
	}
	decision := release(receipt, 0, outcome.Context)
	return &decision, nil
}

// decide decides one request with the facts that hold for it, and adds to a denial what the PEP can do
// about it.
func (e *Engine) decide(ctx context.Context, a evaluationInput) (decided, error) {
	ctx, part := span(ctx, a.call, "decide")
	defer part.End()
	f, err := e.facts(ctx, a)
	if err != nil {
		return decided{}, err
	}
	outcome, err := decideWith(ctx, a, &f)
	if err != nil {
		return decided{}, err
	}
	out := decided{outcome, f.environment(a.time), e.decideShadow(ctx, a, f.environment(a.time))}
	snapshot.PrefixObligations(outcome.Obligations, a.item)
	offered, err := e.offer(a, outcome)
	if err == nil && f.claimsApproval {
		err = answerClaim(outcome, f.approval, a.call.ID, offered)
	}
	if err != nil {
		return decided{}, err
	}
	e.offerCapability(a, f.capability.Missing, outcome)
	return out, nil
}

// decided is an outcome and the other data that the log records.
type decided struct {
	*snapshot.Outcome
	environment snapshot.Environment
	shadow      *decisionlog.Shadow // nil without a shadow store
}

// result returns the decision as a log record.
func (d decided) result() decisionlog.Result {
	r := d.Result()
	r.Approval, r.Capability, r.CapabilityDenied = d.environment.Approval, d.environment.Capability, d.environment.CapabilityDenied
	r.Shadow = d.shadow
	return r
}

// offer adds how to request an approval: to a denial, or to the obligation to wait for approval. It
// reports whether the answer offers one.
func (e *Engine) offer(a evaluationInput, out *snapshot.Outcome) (bool, error) {
	if out.Template == "" || e.config.Offer == nil {
		return false, nil
	}
	if a.offered.isFull() {
		withoutOffer(out)
		return false, nil
	}
	offer, err := e.config.Offer(&authzen.RequestableDenial{
		EvaluationID: a.call.ID, Tenant: a.call.Tenant, Caller: a.call.Caller, Time: a.time,
		Revision: a.snapshot.Revision(), Template: out.Template, Request: a.request,
		WithoutToken: a.call.Minimal,
	})
	if err != nil {
		return false, fmt.Errorf("offer approval: %w", err)
	}
	if offer == nil {
		return false, nil
	}
	if !a.offered.add(offer) {
		withoutOffer(out)
		return false, nil
	}
	if out.Decision {
		return true, offerObligation(out, a.call.ID, offer)
	}
	context := contextOf(out)
	context.EvaluationID, context.EvaluatedAt = a.call.ID, a.time.Truncate(time.Second)
	context.Reason, context.AccessRequest = authzen.ReasonApprovalRequired, offer
	return true, nil
}

// record writes a decision to disk. The caller must not return the decision unless it succeeds.
func (e *Engine) record(ctx context.Context, call Call, entry *decisionlog.Entry, revision string, start time.Time, req any) (decisionlog.Receipt, error) {
	text := texts.Get().(*[]byte)
	defer texts.Put(text)
	body, err := appendRequest((*text)[:0], req)
	if err != nil {
		return decisionlog.Receipt{}, fmt.Errorf("encode request: %w", err)
	}
	if cap(body) <= keptText {
		*text = body
	}
	entry.ID, entry.Time, entry.Tenant, entry.Request = call.ID, start, call.Tenant, body
	entry.Revision, entry.Caller = revision, call.Caller
	entry.RequestID, entry.TraceID = call.RequestID, call.TraceID
	entry.LatencyMicros = e.config.Now().Sub(start).Microseconds()
	ctx, part := span(ctx, call, "record")
	defer part.End()
	receipt, err := e.log.Record(ctx, entry)
	if err != nil {
		return decisionlog.Receipt{}, fmt.Errorf("record decision: %w", err)
	}
	e.config.Recorded(ctx, entry)
	return receipt, nil
}

// release converts a receipt to the PEP's decision. No other function can permit, and this one returns
// what the log recorded.
func release(r decisionlog.Receipt, item int, c *authzen.DecisionContext) authzen.Decision {
	return authzen.Decision{Decision: r.Decision(item), Context: c}
}

// texts holds buffers of recorded requests for reuse, except large ones.
var texts = sync.Pool{New: func() any { return new([]byte) }}

const keptText = 16 << 10

// appendRequest appends a request in its recorded form, except for white space.
func appendRequest(b []byte, req any) ([]byte, error) {
	if r, ok := req.(interface{ AppendTo([]byte) ([]byte, error) }); ok {
		return r.AppendTo(b)
	}
	text, err := json.Marshal(req, jsontext.PreserveRawStrings(true))
	return append(b, text...), err
}
