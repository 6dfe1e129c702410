package pdp

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// completeAgain is how soon a failed completion is retried.
const completeAgain = 10 * time.Second

// run completes pending capabilities as soon as people have decided on their tasks, until ctx ends.
func (i *capabilityIssuer) run(ctx context.Context) error {
	again := time.NewTicker(completeAgain)
	defer again.Stop()
	for {
		changed := i.approvals.Changed()
		if err := i.completeAll(ctx); err != nil && ctx.Err() == nil {
			i.log.Error("capabilities", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again.C:
		}
	}
}

// answerWithin is how long the answer to a decision waits for the capability that it completes.
const answerWithin = 2 * time.Second

// awaitCompletion returns when the capability of a decided request is issued or refused, at the latest
// after answerWithin. Errors change nothing: the decision is recorded, and run completes the
// capability later.
func (i *capabilityIssuer) awaitCompletion(ctx context.Context, r *approval.Request) {
	if r.Status() != authzen.TaskPending {
		_, _ = i.store.WaitByTask(ctx, r.ID, answerWithin)
	}
}

// completeAll completes the pending capabilities whose tasks are decided.
func (i *capabilityIssuer) completeAll(ctx context.Context) error {
	var failed []error
	for c, err := range i.store.List(ctx, capability.Query{State: capability.Pending}) {
		if err != nil {
			return err
		}
		failed = append(failed, i.complete(ctx, c.Capability))
	}
	return errors.Join(failed...)
}

// complete issues or refuses a pending capability if its task is decided. The question whether policies
// permit it is asked again, with the approvals.
func (i *capabilityIssuer) complete(ctx context.Context, c *capability.Capability) error {
	r, err := i.approvals.Request(ctx, c.Task)
	switch {
	case errors.Is(err, approval.ErrUnknownTask):
		return i.refuse(ctx, c, "its access request is no longer known")
	case err != nil:
		return err
	case r.Status() == authzen.TaskPending:
		return nil
	case r.Status() != authzen.TaskApproved:
		return i.refuse(ctx, c, refusal(r))
	}
	return i.activate(ctx, c, r)
}

// activate issues a capability that people have approved. If the service ends between the use of an
// approval and the issue, the next completion repeats that use.
func (i *capabilityIssuer) activate(ctx context.Context, c *capability.Capability, r *approval.Request) error {
	call := evaluation.Call{ID: evaluation.NewDecisionID(), Tenant: c.Tenant, Caller: c.Caller, Capability: c.ID}
	approvals, grant := map[string]string{}, capability.Grant{Revision: i.engine.Revision(c.Tenant)}
	for _, item := range r.Items {
		approvals[item.Resource.ID] = item.Approval.ID
		grant.ApprovalIDs = append(grant.ApprovalIDs, item.Approval.ID)
		if ends := item.Approval.Until; ends.Before(item.Approval.At.Add(item.Terms.TTL.Duration)) && (grant.Until.IsZero() || ends.Before(grant.Until)) {
			grant.Until = ends // people wanted an earlier end than the template has
		}
		for _, vote := range item.Votes {
			if !slices.ContainsFunc(grant.Approvers, func(a authzen.Subject) bool { return a.Type == vote.Approver.Type && a.ID == vote.Approver.ID }) {
				grant.Approvers = append(grant.Approvers, vote.Approver)
			}
		}
	}
	if n := len(grant.Approvers); n > 0 {
		grant.Issuer = &grant.Approvers[n-1]
	}
	answers, err := i.ask(ctx, call, &c.Terms, r.Context, approvals)
	switch {
	case errors.Is(err, errCapabilityDenied), err == nil && len(answers.waiting()) > 0:
		return i.refuse(ctx, c, "policies do not permit it any more")
	case err != nil:
		return err
	}
	grant.EvaluationIDs = answers.ids()
	if err := i.endRefreshed(ctx, &c.Terms, c.Caller); err != nil {
		return err
	}
	_, err = i.store.Activate(ctx, c.ID, capability.Actor{Caller: c.Caller}, grant)
	if errors.Is(err, capability.ErrTooMany) || errors.Is(err, capability.ErrRefreshed) {
		return i.refuse(ctx, c, err.Error())
	}
	return ended(err)
}

func (i *capabilityIssuer) refuse(ctx context.Context, c *capability.Capability, why string) error {
	_, err := i.store.Refuse(ctx, c.ID, capability.Actor{}, why)
	return ended(err)
}

// ended ignores the error of a capability that has ended meanwhile.
func ended(err error) error {
	if errors.Is(err, capability.ErrState) || errors.Is(err, capability.ErrUnknown) {
		return nil
	}
	return err
}

// refusal returns why a task did not end with approval. It has the comments that its template tells.
func refusal(r *approval.Request) string {
	text := "its access request is " + string(r.Status())
	if comments := r.ToldComments(); comments != "" {
		text += ": " + comments
	}
	return text
}
