package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/results"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/result"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// OnResult is the handler of custom obligations. It knows those on results, which the
// gate carries out once there is a response ([Call.Results]).
func OnResult(_ context.Context, o authzen.Obligation) error {
	_, err := result.Parse(o.Properties)
	return err
}

// resultRules returns the obligations of an answer's permits on the response to the
// call. The error says which of them cannot be carried out on it.
func resultRules(call *Call, a *Answer) (results.Rules, error) {
	rules := results.Rules{}
	if call.Message.Method == wire.MethodToolsCall && call.Params != nil {
		rules.Tool = call.Params.Name
	}
	for i := range a.Decisions {
		d := &a.Decisions[i]
		if !d.Decision || d.Context == nil {
			continue
		}
		for _, o := range d.Context.Obligations {
			if o.Type != authzen.ObligationCustom || isAction(&o, result.Scopes) {
				continue
			}
			if err := results.Check(call.Message.Method, o.Properties); err != nil {
				return results.Rules{}, fmt.Errorf("%w: %s: %w", client.ErrObligation, o.ID, err)
			}
			rules.Custom = append(rules.Custom, o.Properties)
		}
	}
	return rules, nil
}

// isLabel reports whether an obligation gives labels.
func isLabel(o *authzen.Obligation) bool { return isAction(o, result.Label) }

// isAction reports whether an obligation is a custom one of that action.
func isAction(o *authzen.Obligation, action string) bool {
	if o.Type != authzen.ObligationCustom {
		return false
	}
	rule, err := result.Parse(o.Properties)
	return err == nil && rule.Action == action
}

// labelRules returns the obligations of an answer that give labels. They change no
// result.
func labelRules(a *Answer) (rules results.Rules) {
	for i := range a.Decisions {
		d := &a.Decisions[i]
		if d.Context == nil {
			continue
		}
		for _, o := range d.Context.Obligations {
			if isLabel(&o) {
				rules.Custom = append(rules.Custom, o.Properties)
			}
		}
	}
	return rules
}

// Deliver returns the response that the client of a call gets: with the obligations
// of its permit carried out, or, where one cannot be, an error that says so.
func (g *Gate) Deliver(ctx context.Context, call *Call, response *wire.Message) *wire.Message {
	if call.Results.IsZero() {
		return response
	}
	out, err := call.Results.Apply(call.Message.Method, response, func(structured jsontext.Value) error {
		if g.cfg.Tools == nil || call.Results.Tool == "" {
			return nil
		}
		return g.cfg.Tools.CheckOutput(call.Server, call.Results.Tool, structured)
	})
	if err == nil {
		err = g.Label(call)
	}
	if err == nil {
		return out
	}
	g.cfg.Log.WarnContext(ctx, "result withheld", "server", call.Server, "method", call.Message.Method, "tool", call.Results.Tool, "request_id", call.RequestID, "error", err)
	return withholdResult(response, err)
}

// Label gives the caller the labels of [Call.Results]. It must have them before it
// has the result.
func (g *Gate) Label(call *Call) error {
	names := call.Results.Labels()
	switch {
	case len(names) == 0:
		return nil
	case g.cfg.Labels == nil:
		return errNoLabels
	}
	return g.cfg.Labels.Add(call, names)
}

// Interim returns what a client gets of a request or notification that the server sends
// while calls of the client are under way, or nil: it may have content of their results.
// So the caller has their labels first.
func (g *Gate) Interim(ctx context.Context, m *wire.Message, underWay ...*Call) *wire.Message {
	for _, call := range underWay {
		method := m.Method
		err := g.Label(call)
		if err == nil {
			m, err = call.Results.Interim(m)
		}
		if err != nil {
			g.cfg.Log.WarnContext(ctx, "message withheld", "server", call.Server, "method", method, "request_id", call.RequestID, "error", err)
			return nil
		}
		if m == nil {
			return nil
		}
	}
	return m
}

// Leave labels the caller of a call whose client is gone before the response: the
// client may have what the server has sent before.
func (g *Gate) Leave(ctx context.Context, call *Call) {
	if err := g.Label(call); err != nil {
		g.cfg.Log.ErrorContext(ctx, "a caller has no label of a call that it has left", "server", call.Server, "request_id", call.RequestID, "error", err)
	}
}

var errNoLabels = errors.New("the gateway keeps no labels")

// withholdResult tells a client that its call was carried out, so that it does not
// repeat the call, and why it does not get the result.
func withholdResult(response *wire.Message, err error) *wire.Message {
	carriedOut := "the server carried out the call"
	if response.Error != nil {
		carriedOut = "the server answered with an error"
	}
	why := "an obligation of the permit could not be carried out on its answer"
	var withheld *results.WithheldError
	if errors.As(err, &withheld) {
		why += ": " + withheld.Reason
	}
	return wire.Refuse(response.ID, wire.CodeInternal, carriedOut+", but "+why, Data{Reason: ReasonWithheld})
}

// asDenial makes a permit that waits for an approval the denial that people may
// lift: the call must not run before, and the obligation has what it takes to ask
// them. What the PDP says of a claimed approval counts for the denial.
func asDenial(d *authzen.Decision) {
	if !d.Decision || d.Context == nil {
		return
	}
	for i, o := range d.Context.Obligations {
		var waits authzen.ApprovalRequired
		if o.Type != authzen.ObligationCustom || json.Unmarshal(o.Properties, &waits) != nil || waits.Action != authzen.ActionApprovalRequired {
			continue
		}
		denial := *d.Context
		denial.Obligations = slices.Delete(slices.Clone(denial.Obligations), i, i+1)
		denial.Reason = cmp.Or(denial.Reason, authzen.ReasonApprovalRequired)
		denial.EvaluationID, denial.AccessRequest = waits.EvaluationID, waits.AccessRequest
		*d = authzen.Decision{Context: &denial}
		return
	}
}
