package evaluation

import (
	"context"
	"errors"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Authorize decides a request of the tenant, actor, action, resource form.
func (e *Engine) Authorize(ctx context.Context, call Call, req *authzen.AuthorizeRequest) (*authzen.AuthorizeResponse, error) {
	evaluation, err := req.Evaluation()
	if err != nil {
		return nil, err
	}
	call.Tenant = req.TenantID
	decision, err := e.Evaluate(ctx, call, evaluation)
	if errors.Is(err, snapshot.ErrUnknownTenant) {
		decision, err = e.denyTenant(ctx, call, evaluation, err)
	}
	var invalid *authzen.ValidationError
	if errors.As(err, &invalid) {
		return nil, req.Located(invalid)
	}
	if err != nil {
		return nil, err
	}
	return authzen.Authorize(decision)
}

// denyTenant denies a request because of its tenant.
func (e *Engine) denyTenant(ctx context.Context, call Call, req *authzen.EvaluationRequest, why error) (*authzen.Decision, error) {
	result := snapshot.DeniedResult(why)
	entry := decisionlog.Entry{Kind: decisionlog.KindEvaluation, Result: &result}
	if _, err := e.record(ctx, call.identified(), &entry, e.current.Load().Revision(), e.config.Now().UTC(), req); err != nil {
		return nil, err
	}
	return &authzen.Decision{}, nil
}

// MayDecide decides and records whether an approver may decide an Access Request. A permit with
// obligations counts as a denial, because no PEP can meet them.
func (e *Engine) MayDecide(ctx context.Context, call Call, req *authzen.EvaluationRequest) (bool, error) {
	decision, err := e.Evaluate(ctx, call, req)
	if err != nil {
		return false, err
	}
	return decision.Decision && (decision.Context == nil || len(decision.Context.Obligations) == 0), nil
}

// WouldDecide answers like [Engine.MayDecide] by the active policies, and records nothing. Nobody may
// rely on its answer: it is a hint for who is about to decide.
func (e *Engine) WouldDecide(tenant string, req *authzen.EvaluationRequest) (bool, error) {
	s, now, err := e.begin(tenant)
	if err != nil {
		return false, err
	}
	outcome, err := s.Decide(req, snapshot.Environment{Time: now})
	if err != nil {
		return false, err
	}
	return outcome.Decision && outcome.Template == "" && len(outcome.Obligations) == 0, nil
}
