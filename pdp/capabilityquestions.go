package pdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// errCapabilityDenied means that policies do not let the holder have a capability.
var errCapabilityDenied = errors.New("policies do not permit this capability")

// A capabilityDenial is an errCapabilityDenied with the evaluation that denied.
type capabilityDenial struct {
	evaluationID string
	why          string
}

func (d *capabilityDenial) Error() string { return errCapabilityDenied.Error() + ": " + d.why }

func (d *capabilityDenial) Unwrap() error { return errCapabilityDenied }

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
			return nil, &capabilityDenial{a.evaluationID, fmt.Sprintf("the question about %s does not fit the schema: %s", tool, strings.TrimPrefix(c.Error.Message, fmt.Sprintf("/evaluations/%d", n)))}
		}
		if !a.permitted() && a.offer() == nil {
			return nil, &capabilityDenial{a.evaluationID, fmt.Sprintf("%s is denied by evaluation %s", tool, a.evaluationID)}
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
