package approval

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/results"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Members of the result of a request that another participant has fulfilled (MCPx,
// ADR-003), and the reason with which the PDP is told of that.
const (
	memberFulfilledBy = "fulfilledBy"
	memberRequester   = "originalRequester"
	reasonFulfilled   = "fulfilled"
)

// Fulfil implements [enforce.Requests]. What was kept goes to the server, in the session
// and with the credentials of the participant who fulfils the request.
func (s *Service) Fulfil(ctx context.Context, f *enforce.FulfillingCall) (*enforce.Disposition, error) {
	r, err := s.store.byHandle(f.Request.ID)
	if err != nil {
		return nil, err
	}
	if r != nil && s.isLate(r) {
		s.expire(ctx, r)
	}
	if err := s.fulfillable(r, f.Digest); err != nil {
		return nil, err
	}
	m, err := s.assemble(r, f.Message, nil)
	if err != nil {
		return nil, err
	}
	by := &authzen.Subject{Type: f.Caller.Subject.Type, ID: f.Caller.Subject.ID}
	taken, err := s.store.move(r, claimed, func(r *record) { r.Holder, r.FulfilledBy = s.cfg.Holder, by })
	if errors.Is(err, errMoved) {
		return nil, consumed()
	}
	if err != nil {
		return nil, err
	}
	trailID, end, err := s.cfg.Trail.Begin(&enforce.Entry{
		Call: f.Call, Decisions: f.Decisions, Digest: r.Digest, OnBehalfOf: r.Subject.Type + "::" + r.Subject.ID, Fulfils: r.Handle,
	})
	if err != nil {
		_, lost := s.store.move(taken, unknown, nil)
		return nil, errors.Join(fmt.Errorf("record the call: %w", err), lost)
	}
	s.cancel(ctx, taken, reasonFulfilled)
	return &enforce.Disposition{Forward: m, TrailID: trailID, Finish: func(ctx context.Context, response *wire.Message) *wire.Message {
		end(enforce.End(f.Call, response))
		obligations := f.Results
		response = s.deliver(ctx, f.Call, response)
		if isTask(response) {
			s.keepOutcome(ctx, taken, wire.Refuse(response.ID, wire.CodeInternal, "the server carries the call out as a task of the participant who fulfilled the request", enforce.Data{Reason: enforce.ReasonWithheld}), obligations)
			return response
		}
		response, f.Results = taken.signed(response), results.Rules{} // they are carried out on what both get
		s.keepOutcome(ctx, taken, response, obligations)
		return response
	}}, nil
}

// fulfillable returns why nobody can fulfil a request any more, or nil.
func (s *Service) fulfillable(r *record, digest string) error {
	switch {
	case r == nil || r.Digest != digest:
		return enforce.UnknownRequest()
	case r.waits() && s.cfg.Now().Before(r.decideBy()):
		return nil
	case r.waits() || r.State == refused || r.State == asking:
		return &enforce.Refusal{Code: wire.CodeParams, Status: 200, Message: "the request does not wait any more", Data: enforce.Data{Reason: enforce.ReasonRequest}}
	}
	return consumed()
}

func consumed() *enforce.Refusal {
	return &enforce.Refusal{Message: "the request has been fulfilled or approved already", Data: enforce.Data{Reason: enforce.ReasonSettled}}
}

// isTask reports whether a response is a task, whose result the caller of the call gets
// (MCP 2025-11-25, "Tasks"; SEP-2663).
func isTask(response *wire.Message) bool {
	if response == nil || response.Result == nil {
		return false
	}
	members, err := jsonobject.Parse(response.Result)
	return err == nil && (members["task"].Kind() == '{' || string(members["resultType"]) == `"task"`)
}

// signed returns the response of the server with who has fulfilled the request, and for
// whom. A server that asks for input gets none: there is nobody whom both know.
func (r *record) signed(response *wire.Message) *wire.Message {
	if response == nil || response.Result == nil {
		return response
	}
	members, err := jsonobject.Parse(response.Result)
	if err == nil && string(members["resultType"]) == `"input_required"` {
		return wire.Refuse(response.ID, wire.CodeInternal, "the server asks for input before it carries the call out, which a request cannot give", enforce.Data{Reason: enforce.ReasonWithheld})
	}
	if err == nil {
		err = errors.Join(members.Set(memberFulfilledBy, r.FulfilledBy.ID), members.Set(memberRequester, r.Subject.ID))
	}
	var result []byte
	if err == nil {
		result, err = members.Encode()
	}
	if err != nil { // it was read as an object
		return wire.Refuse(response.ID, wire.CodeInternal, "the gateway cannot read the answer of the server", enforce.Data{Reason: enforce.ReasonWithheld})
	}
	return &wire.Message{ID: response.ID, Result: result}
}

// deliver returns the response to a call with the obligations of the call carried out.
func (s *Service) deliver(ctx context.Context, call *enforce.Call, response *wire.Message) *wire.Message {
	if response == nil || s.cfg.Results == nil {
		return response
	}
	return s.cfg.Results.Deliver(ctx, call, response)
}

// keepOutcome keeps the response to a call for the client that is to get it later, with
// the obligations that were carried out on it.
func (s *Service) keepOutcome(ctx context.Context, r *record, response *wire.Message, obligations results.Rules) {
	if response != nil && len(response.Result) > maxResponse {
		message := fmt.Sprintf("the server carried out the call, but its answer is larger than a task may have: %d bytes", maxResponse)
		response = wire.Refuse(response.ID, wire.CodeInternal, message, enforce.Data{Reason: enforce.ReasonWithheld})
	}
	s.recordOutcome(ctx, r, response, func(r *record) {
		if response != nil {
			r.Response, r.Results = response.Encode(), obligations
		}
	})
}

// untold reports whether the requester does not know yet what came of a request that
// another participant has fulfilled.
func (r *record) untold() bool { return r.FulfilledBy != nil && !r.Told }

// reload reads a record again.
func (s *Service) reload(r *record) error {
	now, err := s.store.byHandle(r.Handle)
	if err == nil && now != nil {
		*r = *now
	}
	return err
}

// heed reads a record again whose request others have fulfilled or withdrawn meanwhile.
func (s *Service) heed(r *record) error {
	now, err := s.store.byHandle(r.Handle)
	if err == nil && now != nil && (now.FulfilledBy != nil || now.State == refused) {
		*r = *now
	}
	return err
}

// outcomePause is the time between two looks at a request that is being fulfilled,
// perhaps by another process.
const outcomePause = 50 * time.Millisecond

// tellFulfilled answers the requester of a request that another participant fulfils,
// once the server has answered.
func (s *Service) tellFulfilled(ctx context.Context, d *enforce.DeniedCall, r *record, notice clientNotice) (*enforce.Disposition, error) {
	for until := time.Now().Add(s.settings.Load().Hold); r.State == claimed && time.Now().Before(until); {
		select {
		case <-time.After(outcomePause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := s.reload(r); err != nil {
			return nil, err
		}
	}
	if r.State == claimed {
		return notice.tell(d, r)
	}
	if err := s.label(d.Call, r); err != nil {
		return nil, err
	}
	if err := s.store.tell(r.Handle); err != nil {
		return nil, err
	}
	if r.State != done {
		refused := &enforce.Refusal{Code: wire.CodeInternal, Status: 200, Message: "what came of the call is not known", Data: enforce.Data{Reason: enforce.Unknown}}
		r.name(&refused.Data)
		return nil, refused
	}
	response, err := r.responseTo(d.Call)
	return &enforce.Disposition{Answer: response, Status: 200}, err
}

// responseTo returns the response that was kept, as the version of a client has it.
func (r *record) responseTo(c *enforce.Call) (*wire.Message, error) {
	response, err := wire.ParseReply(r.Response)
	if err != nil {
		return nil, err
	}
	response.ID = c.Message.ID
	if response.Result == nil {
		return response, nil
	}
	members, err := jsonobject.Parse(response.Result)
	if err != nil {
		return nil, err
	}
	members.Remove("resultType")
	if c.Stateless {
		members.Put("resultType", []byte(`"complete"`))
	}
	response.Result, err = members.Encode()
	return response, err
}

// A pendingResult is the result of a request that waits.
type pendingResult struct {
	RequestID  string   `json:"requestId"`
	Status     string   `json:"status"`
	Task       string   `json:"task"`
	Tasks      []string `json:"tasks,omitempty"`
	Page       string   `json:"page,omitzero"`
	RetryAfter int      `json:"retry_after"` // seconds
	ResultType string   `json:"resultType,omitzero"`
}

// pendingRequest answers a tools/request that waits.
func (s *Service) pendingRequest(d *enforce.DeniedCall, r *record) (*enforce.Disposition, error) {
	result := pendingResult{RequestID: r.Handle, Status: "pending", Page: s.page(r), RetryAfter: 5}
	var named enforce.Data
	r.name(&named)
	result.Task, result.Tasks = named.Task, named.Tasks
	if d.Stateless {
		result.ResultType = "complete"
	}
	text, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	return &enforce.Disposition{Answer: &wire.Message{ID: d.Message.ID, Result: text}, Status: 200}, nil
}
