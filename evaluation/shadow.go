package evaluation

import (
	"context"
	"fmt"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// ReloadShadow is [Engine.Reload] for a policy store that shadows the one in
// force: from then on the log says of every evaluation what it would have
// decided. Nobody is told, so that it may lose as many policies as it likes.
func (e *Engine) ReloadShadow(ctx context.Context, c Change) (Status, error) {
	return e.reload(ctx, e.beside(), c)
}

// ShadowFailed is [Engine.ReloadFailed] for that store.
func (e *Engine) ShadowFailed(ctx context.Context, cause string, err error) {
	e.reloadFailed(ctx, e.beside(), cause, err)
}

// ShadowStatus returns the status of the shadow; the zero Status without one.
func (e *Engine) ShadowStatus() Status { return e.beside().get() }

// decideShadow decides a request by the shadow, in the environment in which it
// was decided. What goes wrong there, a panic too, is in the result and does
// not reach the answer.
func (e *Engine) decideShadow(ctx context.Context, a asked, approval *authzen.VerifiedApproval) (out *decisionlog.Shadow) {
	if a.shadow == nil {
		return nil
	}
	_, part := span(ctx, a.call, shadowStore)
	defer part.End()
	out = &decisionlog.Shadow{Revision: a.shadow.Revision()}
	defer func() {
		if fault := recover(); fault != nil {
			out.Result = denied(fmt.Errorf("panic: %v", fault))
		}
	}()
	snapshot, err := a.shadow.For(a.call.Tenant)
	if err != nil {
		out.Result = denied(err)
		return out
	}
	out.Revision = snapshot.revision
	outcome, err := snapshot.Decide(a.request, Environment{Time: a.time, Approval: approval})
	if err != nil {
		out.Result = denied(err)
		return out
	}
	prefix(outcome.Obligations, a.item)
	out.Result = outcome.Result()
	return out
}

// ShadowEffect returns what it would change about a result if its shadow were
// in force; "" for nothing.
func ShadowEffect(r *decisionlog.Result) Effect { return effectOf(r, &r.Shadow.Result) }
