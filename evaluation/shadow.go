package evaluation

import (
	"context"
	"fmt"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// ReloadShadow is [Engine.Reload] for a policy store that shadows the active one. The log then records
// its decision of every evaluation. It affects no answer, so it may lose any number of policies.
func (e *Engine) ReloadShadow(ctx context.Context, c Change) (Status, error) {
	return e.reload(ctx, e.shadowSlot(), c)
}

// ShadowFailed is [Engine.ReloadFailed] for the shadow store.
func (e *Engine) ShadowFailed(ctx context.Context, cause string, err error) {
	e.reloadFailed(ctx, e.shadowSlot(), cause, err)
}

// ShadowStatus returns the status of the shadow; the zero Status without one.
func (e *Engine) ShadowStatus() Status { return e.shadowSlot().get() }

// decideShadow decides a request with the shadow, in the environment of the decision. Its errors and
// panics are part of the shadow's result and do not affect the answer.
func (e *Engine) decideShadow(ctx context.Context, a evaluationInput, env snapshot.Environment) (out *decisionlog.Shadow) {
	if a.shadow == nil {
		return nil
	}
	_, part := span(ctx, a.call, shadowStore)
	defer part.End()
	out = &decisionlog.Shadow{Revision: a.shadow.Revision()}
	defer func() {
		if fault := recover(); fault != nil {
			out.Result = snapshot.DeniedResult(fmt.Errorf("panic: %v", fault))
		}
	}()
	compiled, err := a.shadow.For(a.call.Tenant)
	if err != nil {
		out.Result = snapshot.DeniedResult(err)
		return out
	}
	out.Revision = compiled.Revision()
	outcome, err := compiled.Decide(a.request, env)
	if err != nil {
		out.Result = snapshot.DeniedResult(err)
		return out
	}
	snapshot.PrefixObligations(outcome.Obligations, a.item)
	out.Result = outcome.Result()
	return out
}

// ShadowEffect returns the change to a result if its shadow were active, or "".
func ShadowEffect(r *decisionlog.Result) replay.Effect { return replay.EffectOf(r, &r.Shadow.Result) }

// ShadowSnapshots returns the snapshots of the shadow, or nil.
func (e *Engine) ShadowSnapshots() *snapshot.Snapshots { return e.shadow.Load() }
