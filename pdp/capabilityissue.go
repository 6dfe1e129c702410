package pdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// errCapabilityDenied means that policies do not let the holder have a capability.
var errCapabilityDenied = errors.New("policies do not permit this capability")

// A capabilityIssuer issues capabilities. Policies decide who gets one, at the request and again when
// people have approved it.
type capabilityIssuer struct {
	engine    *evaluation.Engine
	approvals *approval.Service
	store     *capability.Service
	log       *slog.Logger
}

// An issued capability, or one that waits for people.
type issued struct {
	*capability.Capability
	task         *authzen.Task // nil unless pending
	evaluationID string        // of the batch that decided; "" for a repetition
}

// request asks policies for a capability: one question for each tool. If they permit all, it is issued.
// If people can approve the rest, it waits for them. Otherwise nobody is asked.
func (i *capabilityIssuer) request(ctx context.Context, call evaluation.Call, by approval.Caller, key string, sub *authzen.CapabilitySubmission) (*issued, error) {
	terms, err := termsOf(sub)
	if err != nil {
		return nil, err
	}
	who := capability.Caller{Tenant: call.Tenant, ID: call.Caller, RequestID: call.RequestID}
	known, err := i.store.Known(ctx, who, key, terms)
	if err != nil {
		return nil, err
	}
	if known != nil {
		return i.withTask(ctx, by, &issued{Capability: known})
	}
	if err := i.store.Check(who, terms); err != nil {
		return nil, err
	}
	context, err := encodeTerms(&terms, time.Now())
	if err != nil {
		return nil, err
	}
	answers, err := i.ask(ctx, call, &terms, context, nil)
	if err != nil {
		return nil, err
	}
	if err := i.checkDuration(call.Tenant, &terms, answers); err != nil {
		return nil, err
	}
	if len(answers.waiting()) == 0 {
		made, err := i.store.Issue(ctx, who, key, terms, capability.Grant{EvaluationIDs: answers.ids(), Revision: i.engine.Revision(call.Tenant)})
		if err != nil {
			return nil, err
		}
		return &issued{Capability: made, evaluationID: call.ID}, nil
	}
	return i.askPeople(ctx, call, by, who, key, terms, context, answers)
}

// askPeople submits an Access Request with an item for each tool that people have to approve.
func (i *capabilityIssuer) askPeople(ctx context.Context, call evaluation.Call, by approval.Caller, who capability.Caller, key string, terms capability.Terms, context jsontext.Value, answers toolAnswers) (*issued, error) {
	sub := &authzen.Submission{Subject: terms.Holder, Context: context}
	for _, a := range answers.waiting() {
		sub.Items = append(sub.Items, authzen.SubmissionItem{Resource: toolResource(a.tool), Action: authzen.Action{Name: authzen.ActionCapabilityRequest}, Denial: a.denial()})
	}
	task, err := i.approvals.Submit(ctx, by, "", sub)
	if err != nil {
		return nil, err
	}
	r, err := i.approvals.Request(ctx, task.Task.ID)
	if err != nil {
		return nil, err
	}
	made, err := i.store.Request(ctx, who, key, terms, capability.Proposal{
		Task: r.ID, Template: r.Items[0].Template, DecideBy: r.DecideBy, EvaluationIDs: answers.ids(), Revision: i.engine.Revision(call.Tenant),
	})
	if err != nil {
		return nil, err
	}
	out := &issued{Capability: made, task: &task.Task, evaluationID: call.ID}
	if r.Status() == authzen.TaskPending {
		return out, nil
	}
	if err := i.complete(ctx, made); err != nil { // an auto approver has decided
		return nil, err
	}
	if out.Capability, err = i.store.Get(ctx, made.ID); err != nil {
		return nil, err
	}
	return i.withTask(ctx, by, out)
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

// checkDuration refuses a capability that would last longer than the templates allow.
func (i *capabilityIssuer) checkDuration(tenant string, terms *capability.Terms, answers toolAnswers) error {
	most := maxDuration
	for n, a := range answers.waiting() {
		template, err := i.engine.ApprovalTemplate(tenant, a.offer().Template)
		if err != nil {
			return err
		}
		allowed := cmp.Or(template.MaxDuration.Duration, maxDuration)
		if n == 0 {
			most = allowed
		}
		most = min(most, allowed)
	}
	if lasting(terms, time.Now()) > most {
		return authzen.Invalid("/duration", "is longer than the %d seconds that are allowed here", int64(most.Seconds()))
	}
	return nil
}

// A toolAnswer is the decision on one tool.
type toolAnswer struct {
	tool         string
	evaluationID string
	decision     authzen.Decision
}

type toolAnswers []toolAnswer

// offer returns how people can be asked, or nil.
func (a toolAnswer) offer() *authzen.AccessRequest {
	if a.decision.Context == nil {
		return nil
	}
	return a.decision.Context.AccessRequest
}

// permitted reports whether policies permit the tool. A permit with obligations counts as a denial,
// because nobody can meet them here.
func (a toolAnswer) permitted() bool {
	return a.decision.Decision && (a.decision.Context == nil || len(a.decision.Context.Obligations) == 0)
}

// denial returns the proof of the denial for the submission.
func (a toolAnswer) denial() *authzen.Denial {
	offer := a.offer()
	return &authzen.Denial{
		EvaluationID: a.evaluationID, ExpiresAt: offer.ExpiresAt.Format(time.RFC3339), BindingToken: offer.BindingToken, Template: offer.Template,
	}
}

// waiting lists the tools that people have to approve.
func (all toolAnswers) waiting() (out toolAnswers) {
	return slices.DeleteFunc(slices.Clone(all), toolAnswer.permitted)
}

func (all toolAnswers) ids() (ids []string) {
	for _, a := range all {
		ids = append(ids, a.evaluationID)
	}
	return ids
}

// ask asks policies about each tool. context is that of [encodeTerms], and approvals are ids by tool.
// The error is errCapabilityDenied if a tool is neither permitted nor can be approved by people.
func (i *capabilityIssuer) ask(ctx context.Context, call evaluation.Call, terms *capability.Terms, context jsontext.Value, approvals map[string]string) (toolAnswers, error) {
	question, err := questions(terms, context, approvals)
	if err != nil {
		return nil, err
	}
	answer, err := i.engine.Evaluations(ctx, call, question)
	if err != nil {
		return nil, err
	}
	var out toolAnswers
	for n, tool := range terms.Tools {
		a := toolAnswer{tool, fmt.Sprintf("%s.%d", call.ID, n), answer.Evaluations[n]}
		if c := a.decision.Context; c != nil && c.Error != nil && c.Error.Status < 500 {
			return nil, fmt.Errorf("%w: the question about %s does not fit the schema: %s", errCapabilityDenied, tool, c.Error.Message)
		}
		if !a.permitted() && a.offer() == nil {
			return nil, fmt.Errorf("%w: %s is denied by evaluation %s", errCapabilityDenied, tool, a.evaluationID)
		}
		out = append(out, a)
	}
	return out, nil
}

// questions returns a question for each tool.
func questions(terms *capability.Terms, context jsontext.Value, approvals map[string]string) (out *authzen.EvaluationsRequest, err error) {
	out = &authzen.EvaluationsRequest{Context: context}
	if out.Subject, err = json.Marshal(terms.Holder); err != nil {
		return nil, fmt.Errorf("encode question: %w", err)
	}
	if out.Action, err = json.Marshal(authzen.Action{Name: authzen.ActionCapabilityRequest}); err != nil {
		return nil, fmt.Errorf("encode question: %w", err)
	}
	for _, tool := range terms.Tools {
		item := struct {
			Resource authzen.Resource `json:"resource"`
			Context  jsontext.Value   `json:"context,omitzero"`
		}{Resource: toolResource(tool)}
		if id := approvals[tool]; id != "" {
			if item.Context, err = approvedContext(context, id); err != nil {
				return nil, err
			}
		}
		text, err := json.Marshal(item)
		if err != nil {
			return nil, fmt.Errorf("encode question: %w", err)
		}
		out.Evaluations = append(out.Evaluations, text)
	}
	return out, nil
}

// toolResource names a tool for policies.
func toolResource(tool string) authzen.Resource { return authzen.Resource{Type: "tool", ID: tool} }

// lasting returns how long a capability lasts at most, if it is issued now.
func lasting(terms *capability.Terms, now time.Time) time.Duration {
	from, until, lasts := terms.Constraints.ValidFrom, terms.Constraints.ValidUntil, terms.Duration.Duration
	if until.IsZero() {
		return lasts
	}
	if from.Before(now) {
		from = now
	}
	if rest := until.Sub(from); lasts == 0 || rest < lasts {
		// Rounded up, so that no policy takes it for shorter than it is.
		return (rest + time.Second - 1).Truncate(time.Second)
	}
	return lasts
}

// described returns everything that a holder asks for, in terms of policies and of approvers.
// Constraints of arguments are JSON text, because a schema has no type for any value.
func described(terms *capability.Terms, now time.Time) (map[string]any, error) {
	limits := terms.Constraints
	all := map[string]any{"duration": int64(lasting(terms, now).Seconds()), "bound": boundOf(terms)}
	if limits.MaxUses > 0 {
		all["max_uses"] = limits.MaxUses
	}
	if len(limits.Arguments) > 0 {
		arguments, err := limits.Arguments.Encode()
		if err != nil {
			return nil, fmt.Errorf("encode question: %w", err)
		}
		all["arguments"] = string(arguments)
	}
	if limits.ArgumentsSchema != nil {
		all["arguments_schema"] = string(limits.ArgumentsSchema)
	}
	for name, at := range map[string]time.Time{"valid_from": limits.ValidFrom, "valid_until": limits.ValidUntil} {
		if !at.IsZero() {
			all[name] = at.UTC().Format(time.RFC3339)
		}
	}
	if terms.Reason != "" {
		all["reason"] = terms.Reason
	}
	return all, nil
}

// encodeTerms returns the context of the questions about a request.
func encodeTerms(terms *capability.Terms, now time.Time) (jsontext.Value, error) {
	context, err := described(terms, now)
	if err != nil {
		return nil, err
	}
	context["depth"] = 0
	if server := onlyServer(terms.Tools); server != "" {
		context["gateway"] = map[string]string{"server": server}
	}
	text, err := json.Marshal(context, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode question: %w", err)
	}
	return text, nil
}

func boundOf(terms *capability.Terms) string {
	if terms.Session != "" {
		return capability.BoundSession
	}
	return capability.BoundIdentity
}

// onlyServer returns the server of the tools, or "" if they have several.
func onlyServer(tools []string) (server string) {
	for n, tool := range tools {
		of, _, _ := strings.Cut(tool, ":")
		if n > 0 && of != server {
			return ""
		}
		server = of
	}
	return server
}

// termsOf returns the terms of a submission.
func termsOf(sub *authzen.CapabilitySubmission) (terms capability.Terms, err error) {
	const most = math.MaxInt64 / int64(time.Second)
	if sub.Duration < 0 || sub.Duration > most {
		return terms, authzen.Invalid("/duration", "must be 1 to %d", most)
	}
	terms = capability.Terms{
		Holder: authzen.Subject{Type: sub.Subject.Type, ID: sub.Subject.ID}, Tools: sub.Tools, Duration: authzen.Duration{Duration: time.Duration(sub.Duration) * time.Second},
		Session: sub.Session, Reason: sub.Reason,
	}
	c := sub.Constraints
	if c == nil {
		return terms, nil
	}
	terms.Constraints = capability.Constraints{MaxUses: c.MaxUses, ValidFrom: c.ValidFrom, ValidUntil: c.ValidUntil.Truncate(time.Second), ArgumentsSchema: c.ArgumentsSchema}
	if c.Arguments != nil {
		if terms.Constraints.Arguments, err = jsonobject.Parse(c.Arguments); err != nil {
			return terms, authzen.Invalid("/constraints/arguments", "must be an object")
		}
	}
	return terms, nil
}

// approvedContext returns a context with a claimed approval.
func approvedContext(context jsontext.Value, id string) (jsontext.Value, error) {
	members, err := jsonobject.Parse(context)
	if err == nil {
		err = members.Set(snapshot.ContextApproval, map[string]string{"id": id})
	}
	if err != nil {
		return nil, fmt.Errorf("encode question: %w", err)
	}
	return members.Encode()
}
