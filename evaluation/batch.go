package evaluation

import (
	"context"
	"errors"
	"fmt"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Evaluations decides a batch. One snapshot decides all items at one time, and one log entry records
// them. An invalid item is a denial of that item. A batch without items is a single request.
func (e *Engine) Evaluations(ctx context.Context, call Call, req *authzen.EvaluationsRequest) (*authzen.EvaluationsResponse, error) {
	if len(req.Evaluations) == 0 {
		return e.evaluateSingle(ctx, call, req)
	}
	if len(req.Evaluations) > e.config.MaxItems {
		return nil, fmt.Errorf("%w: %d, at most %d", ErrTooManyItems, len(req.Evaluations), e.config.MaxItems)
	}
	s, start, err := e.begin(call.Tenant)
	if err != nil {
		return nil, err
	}
	call = call.identified()
	shadow := e.shadow.Load()
	soFar, proven := new(offersInBatch), map[string]bool{}
	b := batch{most: e.config.MaxAnswer, describe: e.config.ItemError, one: func(n int, r *authzen.EvaluationRequest) (decided, error) {
		return e.decide(ctx, evaluationInput{snapshot: s, shadow: shadow, time: start, call: call.item(n), item: snapshot.ItemPrefix(n), offered: soFar, proven: proven, request: r})
	}}
	if err := e.decideBatch(ctx, call.Tenant, &b, req); err != nil {
		return nil, err
	}
	entry := decisionlog.Entry{Kind: decisionlog.KindEvaluations, Evaluations: b.results}
	receipt, err := e.record(ctx, call, &entry, s.Revision(), start, req)
	if err != nil {
		return nil, err
	}
	for n, d := range b.decisions {
		b.decisions[n] = release(receipt, n, d.Context)
	}
	return &authzen.EvaluationsResponse{Evaluations: b.decisions}, nil
}

// LightItems is the largest number of items that a batch decides without waiting for Config.Scan.
const LightItems = 64

// decideBatch decides the items. A batch of more than LightItems waits for Config.Scan.
func (e *Engine) decideBatch(ctx context.Context, tenant string, b *batch, req *authzen.EvaluationsRequest) error {
	if len(req.Evaluations) > LightItems {
		done, err := e.config.Scan(ctx, tenant)
		if err != nil {
			return err
		}
		defer done()
	}
	return b.decideAll(ctx, req)
}

func (e *Engine) evaluateSingle(ctx context.Context, call Call, req *authzen.EvaluationsRequest) (*authzen.EvaluationsResponse, error) {
	single, err := req.Single()
	if err != nil {
		return nil, err
	}
	decision, err := e.Evaluate(ctx, call, single)
	if err != nil {
		return nil, err
	}
	return &authzen.EvaluationsResponse{Decision: decision}, nil
}

// A batch collects the decisions of its items, for the PEP and for the log.
type batch struct {
	one       func(n int, r *authzen.EvaluationRequest) (decided, error) // decides the request of item n
	describe  func(error) *authzen.Error
	most      int                // limit on the bytes of the answer
	bytes     int                // approximate bytes so far
	decisions []authzen.Decision // denials until they are recorded
	results   []decisionlog.Result
}

// decideAll decides the items, up to the one at which the semantic stops. It ends when ctx ends.
func (b *batch) decideAll(ctx context.Context, req *authzen.EvaluationsRequest) error {
	until := snapshot.NewTimeBudget(ctx, len(req.Evaluations), len(req.Evaluations))
	for n, item := range req.Items() {
		if err := until.Check(ctx, n, 0); err != nil {
			return fmt.Errorf("decide batch: %w", err)
		}
		decision := b.decide(item)
		if b.bytes > b.most {
			return fmt.Errorf("%w: %d make more than %d bytes", ErrLargeAnswer, len(b.decisions), b.most)
		}
		if req.Options.Semantic.Stops(decision) {
			return nil
		}
	}
	return nil
}

// decide decides one item and returns the decision.
func (b *batch) decide(item authzen.Item) bool {
	outcome, err := b.outcome(item)
	if err != nil {
		b.add(b.failed(err))
		return false
	}
	b.add(outcome)
	return outcome.Decision
}

// outcome decides an item. Its errors name the position in the batch.
func (b *batch) outcome(item authzen.Item) (decided, error) {
	if item.Err != nil {
		return decided{}, item.Err
	}
	n := len(b.decisions)
	outcome, err := b.one(n, item.Request)
	var invalid *authzen.ValidationError
	if errors.As(err, &invalid) {
		err = invalid.Below(fmt.Sprintf("/evaluations/%d", n))
	}
	return outcome, err
}

// failed returns the denial of an item that could not be decided.
func (b *batch) failed(err error) decided {
	out := decided{Outcome: &snapshot.Outcome{Errors: []decisionlog.PolicyError{{Message: err.Error()}}}}
	if shown := b.describe(err); shown != nil {
		out.Context = &authzen.DecisionContext{Error: shown}
	}
	return out
}

func (b *batch) add(o decided) {
	b.bytes += o.size()
	b.decisions = append(b.decisions, authzen.Decision{Context: o.Context})
	b.results = append(b.results, o.result())
}

// size returns the approximate size of an outcome in bytes, in the answer or in the log entry,
// whichever is larger.
func (o decided) size() int {
	logged := 0
	for _, id := range o.Policies {
		logged += len(id)
	}
	for _, e := range o.Errors {
		logged += len(e.Policy) + len(e.Message)
	}
	return max(o.Context.Size(), logged)
}
