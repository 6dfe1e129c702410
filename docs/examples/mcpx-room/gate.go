package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A Gate asks the PDP. It keeps nothing: policies, approvals and capabilities are there.
type Gate struct {
	pdp  *client.Client
	desk *client.Client // where people decide
	// duties are the obligations that the room can carry out. A permit with any other is a denial.
	duties client.Obligations
	log    *slog.Logger
}

// pdpTimeout bounds a question.
const pdpTimeout = 5 * time.Second

type requestIDKey struct{}

// withRequestID names the call that questions are about. A question of the same call again takes no
// second use of a capability or an approval.
func withRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

func newGate(cfg *Config, log *slog.Logger) *Gate {
	settings := client.Config{Timeout: pdpTimeout, Bearer: os.Getenv("MCPX_ROOM_API_KEY"), RequestID: func(ctx context.Context) string {
		id, _ := ctx.Value(requestIDKey{}).(string)
		return id
	}}
	g := &Gate{pdp: client.New(cfg.PDP, settings), desk: client.New(cfg.Desk, settings), log: log}
	g.duties = client.Obligations{authzen.ObligationNotification: func(_ context.Context, o authzen.Obligation) error {
		log.Info("notification", "properties", string(o.Properties))
		return nil
	}}
	return g
}

// question returns a question to the PDP. Members of the context without a value are left out.
func question(subject authzen.Subject, action string, resource authzen.Resource, context map[string]any) *authzen.EvaluationRequest {
	q := &authzen.EvaluationRequest{Subject: subject, Action: authzen.Action{Name: action}, Resource: resource}
	for name, value := range context {
		if value == nil || value == "" {
			delete(context, name)
		}
	}
	if len(context) > 0 {
		q.Context = encode(context)
	}
	return q
}

// errUndecided means that there is no decision: nothing may happen.
var errUndecided = &Refusal{Code: codeInternal, Message: "the policy decision point gave no decision: try again later"}

// evaluate asks for one decision. A permit is one whose obligations are met.
func (g *Gate) evaluate(ctx context.Context, q *authzen.EvaluationRequest) (*authzen.Decision, error) {
	d, err := g.pdp.Evaluate(ctx, q)
	return g.discharged(ctx, d, err)
}

func (g *Gate) discharged(ctx context.Context, d *authzen.Decision, err error) (*authzen.Decision, error) {
	if err != nil {
		return nil, g.undecided(err)
	}
	granted, err := g.duties.Discharge(ctx, d)
	if err != nil {
		g.log.Error("obligation", "error", err)
	}
	if !granted {
		return &authzen.Decision{Context: d.Context}, nil
	}
	return d, nil
}

// permits asks many questions at once. Those without an answer are not permitted.
func (g *Gate) permits(ctx context.Context, questions []*authzen.EvaluationRequest) ([]authzen.Decision, error) {
	if len(questions) == 0 {
		return nil, nil
	}
	batch := &authzen.EvaluationsRequest{}
	for _, q := range questions {
		batch.Evaluations = append(batch.Evaluations, encode(q))
	}
	answer, err := g.pdp.Evaluations(ctx, batch)
	if err != nil {
		return nil, g.undecided(err)
	}
	granted, err := g.duties.Permitted(ctx, answer.Evaluations)
	if err != nil {
		g.log.Error("obligation", "error", err)
	}
	for i, d := range answer.Evaluations {
		if !granted[i] {
			answer.Evaluations[i] = authzen.Decision{Context: d.Context}
		}
	}
	return answer.Evaluations, nil
}

// undecided returns the refusal for an error. A PDP that does not understand a question says so with
// 400, which is no outage: policies do not know such a message.
func (g *Gate) undecided(err error) error {
	g.log.Error("no decision", "error", err)
	var status *client.StatusError
	if errors.As(err, &status) && status.Status == http.StatusBadRequest {
		return denied("Policies do not know this message: " + status.Message)
	}
	return errUndecided
}

// why is what a denial tells people, or the sentence for want of one.
func why(d *authzen.Decision, otherwise string) string {
	if d.Context != nil && d.Context.ReasonUser["en"] != "" {
		return d.Context.ReasonUser["en"]
	}
	return otherwise
}

// needsCapability reports whether a denial is for want of a capability, or for one that does not cover
// the call.
func needsCapability(d *authzen.Decision) bool {
	return !d.Decision && d.Context != nil && (d.Context.CapabilityRequest != nil || d.Context.CapabilityDenied != "")
}

// canBeApproved reports whether a person can lift a denial.
func canBeApproved(d *authzen.Decision) bool {
	return !d.Decision && d.Context != nil && d.Context.AccessRequest != nil
}

// refused returns the refusal for a denial that nobody can lift.
func (c *call) refused(d *authzen.Decision) *Refusal {
	if !needsCapability(d) {
		return denied(why(d, fmt.Sprintf("%s may not call tool '%s' on agent '%s'", c.Requester, c.Tool, c.Owner)))
	}
	b := &blocked{
		Reason:     why(d, fmt.Sprintf("No valid capability for tool '%s' on agent '%s'", c.Tool, c.Owner)),
		Suggestion: "Request capability first using " + methodCapability,
	}
	if denied := d.Context.CapabilityDenied; denied != "" {
		b.Reason = "Token " + strings.ReplaceAll(string(denied), "_", " ")
	}
	return &Refusal{Code: codeCapability, Message: "Invalid or missing capability token", Data: b, blocked: b}
}

// submit has people asked to lift a denial.
func (g *Gate) submit(ctx context.Context, c *call, d *authzen.Decision) (*authzen.TaskResponse, error) {
	s, err := client.Submission(c.Question, d)
	if err != nil {
		return nil, denied(why(d, "nobody can approve the call"))
	}
	if c.Reason != "" {
		s.Client = encode(map[string]string{"source": "mcpx-room", "reason": c.Reason})
	}
	task, err := g.pdp.Submit(ctx, "", c.RequestID+d.Context.EvaluationID, s)
	if err != nil {
		return nil, g.undecided(err)
	}
	return task, nil
}

// arguments is an object, also of a call without any.
func arguments(v jsontext.Value) jsontext.Value {
	if v == nil {
		return jsontext.Value("{}")
	}
	return v
}

// decode reads params. Members that are not defined are invalid: nobody would heed them.
func decode(params jsontext.Value, into any) error {
	if err := json.Unmarshal(arguments(params), into, json.RejectUnknownMembers(true)); err != nil {
		return invalid("the params are not as they must be: %v", err)
	}
	return nil
}

// canonical returns the spelling of an id that calls are known by.
func canonical(id jsontext.Value) string {
	v, err := jsonobject.Canonical(id)
	if err != nil {
		return ""
	}
	return string(v)
}
