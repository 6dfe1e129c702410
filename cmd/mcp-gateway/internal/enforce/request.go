package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Request is a call that waits: for a person who approves it, or for another
// participant who carries it out.
type Request struct {
	ID        string
	Tenant    string
	Requester authzen.Subject // without properties
	Actors    []string        // who acts for the requester
	Server    string
	Tool      string
	Arguments jsontext.Value // an object, or nil
	Digest    string         // of the call
	Template  string         // of the approval that it waits for
	Reason    string         // that the requester gave, as plain text
	Tasks     []string       // access requests at the PDP
	Created   time.Time
	Expires   time.Time // when nobody can approve it or carry it out any more
}

// Requests keeps the calls that wait.
type Requests interface {
	// Attaches reports whether a call is one that waits already, or whose outcome its
	// caller has not been told.
	Attaches(call *Call, digest string) (bool, error)
	// Request returns the request of a tenant with an id, or nil.
	Request(tenant, id string) (*Request, error)
	// Fulfil carries out a request by the call of another participant, which is
	// permitted. Of all who try, one succeeds.
	Fulfil(context.Context, *FulfillingCall) (*Disposition, error)
}

// A FulfillingCall is a call that fulfils a request.
type FulfillingCall struct {
	*Call
	Request   *Request
	Digest    string   // of Call
	Decisions []string // of the PDP's log, that permit the call
}

// Actors returns who acts for the caller: the client of its token, and those in the
// claim act. The error is of a claim that cannot be read.
func (c *Caller) Actors() (ids []string, err error) {
	for _, claim := range []string{"client_id", "azp"} {
		if id, _ := c.Claims[claim].(string); id != "" && id != c.Subject.ID {
			ids = append(ids, id)
		}
	}
	act, ok := c.Claims["act"]
	if !ok {
		return ids, nil
	}
	text, err := json.Marshal(act)
	if err != nil {
		return nil, fmt.Errorf("the claim act: %w", err)
	}
	chain, err := authzen.Delegates("/act", text)
	for _, actor := range chain {
		ids = append(ids, actor.ID)
	}
	return ids, err
}

// takeRequest makes a request the call that it asks for, and takes out of a call which
// request it fulfils: the server gets neither.
func (g *Gate) takeRequest(ctx context.Context, c *Call) error {
	if g.cfg.Requests == nil || !c.Message.IsRequest() {
		return nil
	}
	if c.Message.Method == wire.MethodToolsRequest {
		return c.takeRequested()
	}
	if g.cfg.Access != nil {
		m, err := g.cfg.Access.Rewrite(ctx, c)
		if err != nil {
			return err
		}
		if m != nil {
			c.CheckTool, c.byTool = nil, true // the headers are of a tool of the gateway
			if err := c.replace(m); err != nil {
				return err
			}
		}
	}
	f, m, err := c.Message.TakeFulfilment()
	if err != nil {
		return invalidMessage(err)
	}
	if f == nil {
		return nil
	}
	c.Fulfils = f
	return c.replace(m)
}

// takeRequested makes a tools/request the tools/call that it asks for.
func (c *Call) takeRequested() error {
	m, reason, err := c.Message.RequestedCall()
	if err != nil {
		return invalidMessage(err)
	}
	if err := undefined(c.Message); err != nil {
		return err
	}
	c.Requested, c.byMethod, c.Reason, c.CheckTool = true, true, reason, nil // its headers repeat no arguments
	return c.replace(m)
}

func invalidMessage(err error) *Refusal {
	return &Refusal{Code: wire.CodeParams, Status: statusOK, Message: err.Error(), Data: Data{Reason: ReasonInvalidMessage}}
}

// UnknownRequest refuses what is about a request that the caller may not know of.
func UnknownRequest() *Refusal { return badRequest("the request is not known") }

func badRequest(message string) *Refusal {
	return &Refusal{Code: wire.CodeParams, Status: statusOK, Message: message, Data: Data{Reason: ReasonRequest}}
}

// request decides on a tools/request: it waits for somebody who carries it out. Where
// the policies let its caller request without anybody else, it is decided on as the
// call that it asks for.
func (g *Gate) request(ctx context.Context, call *Call) (*Disposition, error) {
	_, digest, err := g.bind(call)
	if err != nil {
		return nil, err
	}
	if err := g.countRequest(call, digest); err != nil {
		return nil, err
	}
	mapped, err := g.cfg.MapRequest(call)
	if err != nil {
		return nil, g.unmapped(call, err)
	}
	uncounted := func(*Call) (func(), error) { return keep, nil } // it is counted once it is carried out
	asked, err := g.askMapped(ctx, call, mapped, uncounted)
	if err != nil {
		return nil, err
	}
	denials, err := g.check.Permitted(ctx, call, asked.question, asked.answer)
	if err == nil {
		call.Requested = false
		return nil, nil
	}
	return g.suspend(ctx, call, asked, denials, err)
}

// countRequest counts a request for the limit of its caller, unless it waits already.
func (g *Gate) countRequest(call *Call, digest string) error {
	if g.cfg.Access == nil {
		return nil
	}
	attaches, err := g.cfg.Requests.Attaches(call, digest)
	if err != nil || attaches {
		return err
	}
	return g.cfg.Access.Count(call)
}

// fulfil decides on a call that fulfils a request of another caller. The PDP decides on
// it as on any other call of its own caller, who also has to be permitted to fulfil.
func (g *Gate) fulfil(ctx context.Context, call *Call) (*Disposition, error) {
	request, err := g.fulfillable(ctx, call)
	if err != nil {
		return nil, err
	}
	_, digest, err := g.bind(call)
	if err != nil {
		return nil, err
	}
	if err := request.checkFulfilment(call, digest); err != nil {
		return nil, err
	}
	asked, err := g.ask(ctx, call)
	defer func() { asked.release() }() // the trail counts it
	if err != nil {
		return nil, err
	}
	denials, err := g.check.Permitted(ctx, call, asked.question, asked.answer)
	var refusal *Refusal
	if errors.As(err, &refusal) && denials != nil {
		refusal.Message = "your own call of this tool needs an approval: a request cannot be fulfilled with it"
	}
	if err != nil {
		return nil, err
	}
	return call.presenting(g.cfg.Requests.Fulfil(ctx, &FulfillingCall{Call: call, Request: request, Digest: digest, Decisions: Decisions(asked.answer.EvaluationID)}))
}

// fulfillable returns the request that a call fulfils. One that its caller may not
// fulfil does not exist for it.
func (g *Gate) fulfillable(ctx context.Context, call *Call) (*Request, error) {
	request, err := g.cfg.Requests.Request(call.Caller.Tenant, call.Fulfils.RequestID)
	if err != nil {
		return nil, err
	}
	if request == nil || request.Server != call.Server {
		return nil, UnknownRequest()
	}
	if request.isOf(call.Caller) {
		return nil, badRequest("nobody fulfils a request of their own")
	}
	permitted, err := g.MayFulfil(ctx, call, []*Request{request})
	if err != nil {
		return nil, err
	}
	if !permitted[0] {
		return nil, UnknownRequest()
	}
	call.requester = request.Requester
	return request, nil
}

// isOf reports whether the caller is the requester.
func (r *Request) isOf(c *Caller) bool {
	return r.Tenant == c.Tenant && r.Requester.Type == c.Subject.Type && r.Requester.ID == c.Subject.ID
}

// Excludes reports whether a caller may not fulfil the request whatever policies say:
// the caller is the requester, acts for the requester, or is one for whom the requester
// acts. Where that cannot be known, it is so.
func (r *Request) Excludes(c *Caller) bool {
	actors, err := c.Actors()
	return err != nil || r.isOf(c) || slices.Contains(actors, r.Requester.ID) || slices.Contains(r.Actors, c.Subject.ID)
}

// checkFulfilment returns why a call does not fulfil the request, or nil.
func (r *Request) checkFulfilment(call *Call, digest string) error {
	whose := call.Fulfils.OnBehalfOf
	requester := r.Requester
	switch {
	case !slices.Contains([]string{requester.ID, requester.Type + ":" + requester.ID, requester.Type + "::" + requester.ID}, whose):
		return badRequest("onBehalfOf is not the requester")
	case r.Excludes(call.Caller):
		return badRequest("the requester acts for you, or you act for the requester: somebody else has to fulfil the request")
	case digest != r.Digest:
		return badRequest("the call is not the one that was requested: repeat its name and arguments unchanged")
	case call.Params.RequestState != "" || call.Params.InputResponses != nil:
		return badRequest("a call that fulfils a request has no requestState and no inputResponses")
	}
	return nil
}

// MayFulfil asks the PDP which requests the caller of a call may fulfil.
func (g *Gate) MayFulfil(ctx context.Context, call *Call, requests []*Request) ([]bool, error) {
	permitted := make([]bool, len(requests))
	if len(requests) == 0 {
		return permitted, nil
	}
	batch := new(authzen.EvaluationsRequest)
	for _, r := range requests {
		evaluation, err := g.cfg.MapFulfil(call, r)
		if err != nil {
			return nil, g.unmapped(call, err)
		}
		item, err := json.Marshal(evaluation)
		if err != nil {
			return nil, err
		}
		batch.Evaluations = append(batch.Evaluations, item)
	}
	own := map[string]any{"supported_obligations": []string{}}
	if err := g.addLabels(own, call); err != nil {
		return nil, err
	}
	question, err := (&Question{Evaluations: batch}).with(own)
	if err != nil {
		return nil, err
	}
	answer, err := g.cfg.PDP.Ask(ctx, call.Caller.Tenant, question)
	if err != nil {
		return nil, Undecided(err)
	}
	for i := range answer.Decisions {
		d := &answer.Decisions[i]
		permitted[i] = d.Decision && (d.Context == nil || len(d.Context.Obligations) == 0)
	}
	return permitted, nil
}

// fulfilled is what policies see of the request that a call fulfils.
func (c *Call) fulfilled(digest string) map[string]any {
	return map[string]any{
		"request": c.Fulfils.RequestID, "digest": digest,
		"requester": map[string]string{"type": c.requester.Type, "id": c.requester.ID},
	}
}
