package enforce

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/results"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// AllowServerRequest asks the PDP whether the client gets a request of its server. Of
// is the client's call in whose course the request came; where none is known, it has
// no message. An error refuses the request: it is in the trail and in the log.
//
// No person is asked to approve a request of a server. Of the obligations on results
// only labels can be carried out: what a server asks is content, too.
func (g *Gate) AllowServerRequest(ctx context.Context, of *Call, m *wire.Message) error {
	if passesToClient(m.Method) {
		return nil
	}
	request := *of
	request.Message, request.Params, request.Results, request.Tool = m, new(wire.Params), results.Rules{}, nil
	ctx = withTrace(WithRequestID(ctx, of.RequestID), of.TraceParent)
	answer, err := g.askServerRequest(ctx, of, &request)
	if err == nil {
		err = g.dischargeServerRequest(ctx, &request, answer)
	}
	if err == nil {
		return nil
	}
	refusal := asRefusal(err)
	entry := &Entry{Call: &request, Decisions: Decisions(refusal.Data.EvaluationID)}
	if g.cfg.Observes(of.Server) {
		entry.Observed = &Observation{Reason: refusal.Data.Reason, Why: cmp.Or(refusal.Why, refusal.Message)}
		g.logObserved(ctx, entry)
		return nil
	}
	g.logRefusal(ctx, &request, refusal)
	g.cfg.Trail.Refuse(entry, refusal.Data.Reason)
	return refusal
}

// passesToClient reports whether a request of a server passes without a decision:
// pings, and those about a task of the client, which began with another request.
func passesToClient(method string) bool {
	return slices.Contains([]string{"ping", "tasks/get", "tasks/result", "tasks/cancel", "tasks/list"}, method)
}

// askServerRequest asks the PDP. Its error says why there is no answer.
func (g *Gate) askServerRequest(ctx context.Context, of, request *Call) (*Answer, error) {
	if g.cfg.MapServerRequest == nil {
		return nil, g.unmapped(request, ErrUnknownMethod)
	}
	question, err := g.cfg.MapServerRequest(of, request.Message)
	if err != nil {
		return nil, g.unmapped(request, err)
	}
	if question, err = g.declare(ctx, request, question, "", false); err != nil {
		return nil, err
	}
	answer, err := g.cfg.PDP.Ask(ctx, request.Caller.Tenant, question)
	if err != nil {
		return nil, Undecided(err)
	}
	return answer, nil
}

// dischargeServerRequest carries out the obligations of a permit.
func (g *Gate) dischargeServerRequest(ctx context.Context, request *Call, answer *Answer) error {
	question := new(Question)
	if g.cfg.Observes(request.Server) {
		if _, refusal := g.check.judge(request, question, answer); refusal != nil {
			return refusal
		}
		return nil
	}
	if _, err := g.check.Permitted(ctx, request, question, answer); err != nil {
		return err
	}
	if !request.Results.OnlyLabel() {
		return g.check.unmet(question, answer, errServerRequest)
	}
	if err := g.Label(request); err != nil {
		return g.check.unmet(question, answer, err)
	}
	return nil
}

var errServerRequest = errors.New("of the obligations on results, only label applies to requests of servers")

// asRefusal returns an error as a refusal.
func asRefusal(err error) *Refusal {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal
	}
	return &Refusal{Code: wire.CodeInternal, Status: statusOK, Message: "the gateway could not decide", Data: Data{Reason: ReasonPDP}, Why: err.Error()}
}
