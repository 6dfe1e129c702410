package pdp

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A capabilityIssuer issues capabilities. Policies decide who gets one, at the request and again when
// people have approved it.
type capabilityIssuer struct {
	engine    *evaluation.Engine
	approvals *approval.Service
	store     *capability.Service
	now       func() time.Time
	log       *slog.Logger
}

// An issued capability, or one that waits for people.
type issued struct {
	*capability.Capability
	task         *authzen.Task // nil unless pending
	evaluationID string        // of the batch that decided; "" for a repetition
}

// A capabilityRequest is what a PEP asks for.
type capabilityRequest struct {
	call    evaluation.Call
	by      approval.Caller
	key     string // Idempotency-Key; "" for none
	terms   capability.Terms
	context jsontext.Value // of the questions about it
}

func (r *capabilityRequest) pep() capability.Caller {
	return capability.Caller{Tenant: r.call.Tenant, ID: r.call.Caller, RequestID: r.call.RequestID}
}

// request asks policies for a capability: one question for each tool. If they permit all, it is issued.
// If people can approve the rest, it waits for them. Otherwise nobody is asked.
func (i *capabilityIssuer) request(ctx context.Context, call evaluation.Call, by approval.Caller, key string, sub *authzen.CapabilitySubmission) (*issued, error) {
	terms, err := termsOf(&sub.CapabilityTerms)
	if err != nil {
		return nil, err
	}
	terms.Parent, terms.Refreshes = sub.Parent, sub.Refreshes
	if sub.Holder != nil {
		terms.Holder = authzen.Subject{Type: sub.Holder.Type, ID: sub.Holder.ID}
	}
	a := &capabilityRequest{call: call, by: by, key: key, terms: terms}
	known, err := i.store.Known(ctx, a.pep(), key, terms)
	if err != nil {
		return nil, err
	}
	if known != nil {
		return i.withTask(ctx, by, &issued{Capability: known})
	}
	if err := i.store.Check(a.pep(), terms); err != nil {
		return nil, err
	}
	depth, err := i.handOn(a, sub)
	if err != nil {
		return nil, err
	}
	if a.context, err = encodeTerms(&a.terms, depth, i.now()); err != nil {
		return nil, err
	}
	answers, err := i.ask(ctx, call, &a.terms, a.context, nil)
	if err != nil {
		return nil, err
	}
	if err := i.checkDuration(call.Tenant, &a.terms, answers); err != nil {
		return nil, err
	}
	if len(answers.waiting()) > 0 {
		return i.askPeople(ctx, a, answers)
	}
	if err := i.endRefreshed(ctx, &a.terms, call.Caller); err != nil {
		return nil, err
	}
	made, err := i.store.Issue(ctx, a.pep(), key, a.terms, capability.Grant{EvaluationIDs: answers.ids(), Revision: i.engine.Revision(call.Tenant)})
	if err != nil {
		return nil, err
	}
	return &issued{Capability: made, evaluationID: call.ID}, nil
}

// handOn narrows the terms to those of the capability that is handed on or refreshed, if there is one, and
// returns the depth of the new one.
func (i *capabilityIssuer) handOn(a *capabilityRequest, sub *authzen.CapabilitySubmission) (depth int, err error) {
	switch {
	case sub.Parent != "" && sub.Refreshes != "":
		return 0, authzen.Invalid("/refreshes", "must not be set with parent, which is for handing on alone")
	case sub.Parent == "" && sub.Holder != nil:
		return 0, authzen.Invalid("/parent", "is required with holder")
	case sub.Parent == "" && sub.Refreshes == "" && sub.Proof != nil:
		return 0, authzen.Invalid("/parent", "is required with proof, or refreshes")
	case sub.Parent == "" && sub.Refreshes == "":
		return 0, nil
	}
	digest, err := submissionDigest(sub.Text)
	if err != nil {
		return 0, err
	}
	narrow := i.store.HandOn
	if sub.Refreshes != "" {
		narrow = i.store.Refresh
	}
	a.terms, depth, err = narrow(a.pep(), a.terms, capability.Handover{By: sub.Subject, Proof: sub.Proof, Digest: digest})
	return depth, err
}

// askPeople submits an Access Request with an item for each tool that people have to approve.
func (i *capabilityIssuer) askPeople(ctx context.Context, a *capabilityRequest, answers toolAnswers) (*issued, error) {
	sub := &authzen.Submission{Subject: a.terms.Holder, Context: a.context}
	for _, one := range answers.waiting() {
		sub.Items = append(sub.Items, authzen.SubmissionItem{Resource: toolResource(one.tool), Action: authzen.Action{Name: authzen.ActionCapabilityRequest}, Denial: one.denial()})
	}
	task, err := i.approvals.Submit(ctx, a.by, "", sub)
	if err != nil {
		return nil, err
	}
	r, err := i.approvals.Request(ctx, task.Task.ID)
	if err != nil {
		return nil, err
	}
	made, err := i.store.Request(ctx, a.pep(), a.key, a.terms, capability.Proposal{
		Task: r.ID, Template: r.Items[0].Template, DecideBy: r.DecideBy, EvaluationIDs: answers.ids(), Revision: i.engine.Revision(a.call.Tenant),
	})
	if err != nil {
		return nil, err
	}
	out := &issued{Capability: made, task: &task.Task, evaluationID: a.call.ID}
	if r.Status() == authzen.TaskPending {
		return out, nil
	}
	if err := i.complete(ctx, made); err != nil { // an auto approver has decided
		return nil, err
	}
	if out.Capability, err = i.store.Get(ctx, made.ID); err != nil {
		return nil, err
	}
	return i.withTask(ctx, a.by, out)
}

// withTask adds the task of a pending capability.
func (i *capabilityIssuer) withTask(ctx context.Context, by approval.Caller, out *issued) (*issued, error) {
	out.task = nil
	if out.State != capability.Pending || out.Task == "" {
		return out, nil
	}
	task, err := i.approvals.Status(ctx, by, out.Task)
	if err != nil {
		return nil, err
	}
	out.task = &task.Task
	return out, nil
}

// maxDuration is the longest duration of a capability whose templates set none.
const maxDuration = 8 * time.Hour

// longest returns the longest duration of a capability that a template allows.
func longest(t *authzen.ApprovalTemplate) time.Duration {
	return cmp.Or(t.MaxDuration.Duration, maxDuration)
}

// checkDuration refuses a capability that would last longer than the templates allow.
func (i *capabilityIssuer) checkDuration(tenant string, terms *capability.Terms, answers toolAnswers) error {
	most := maxDuration
	for n, a := range answers.waiting() {
		template, err := i.engine.ApprovalTemplate(tenant, a.offer().Template)
		if err != nil {
			return err
		}
		allowed := longest(&template)
		if n == 0 {
			most = allowed
		}
		most = min(most, allowed)
	}
	if lasting(terms, i.now()) > most {
		return authzen.Invalid("/duration", "is longer than the %d seconds that are allowed here", int64(most.Seconds()))
	}
	return nil
}
