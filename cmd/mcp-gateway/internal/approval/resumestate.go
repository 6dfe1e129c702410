package approval

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A resumeState is what a client gets back to, sealed, as the requestState of its
// call (MCP 2026-07-28, "Multi Round-Trip Requests"): it is good for the same
// call of the same caller, and for one round.
type resumeState struct {
	Handle   string         `json:"handle"`
	Tenant   string         `json:"tenant,omitzero"`
	Type     string         `json:"type"`
	ID       string         `json:"id"`
	Digest   string         `json:"digest"`
	Expires  time.Time      `json:"expires"`
	Round    int            `json:"round,omitzero"`    // in which the server wanted to be called again; 0 before it was called
	Quiet    int            `json:"quiet,omitzero"`    // times that the client was told to come back with nothing to show
	Upstream jsontext.Value `json:"upstream,omitzero"` // the server's own state, a string
}

const (
	sealResumeState = "call"
	inputPrefix     = "gw."
	inputName       = inputPrefix + "approval"
)

// open returns the resume state that a call came with, or nil. The state of a server
// that the gateway has not sealed is not the gateway's to read.
func (s *Service) open(d *enforce.DeniedCall) (*resumeState, error) {
	if d.Params.RequestState == "" {
		return nil, nil
	}
	t := new(resumeState)
	if err := s.cfg.Seal.Open(sealResumeState, d.Params.RequestState, t); err != nil {
		return nil, nil
	}
	if t.Tenant != d.Caller.Tenant || t.Type != d.Caller.Subject.Type || t.ID != d.Caller.Subject.ID || t.Digest != d.Digest || s.cfg.Now().After(t.Expires) {
		return nil, &enforce.Refusal{
			Code: wire.CodeParams, Status: 200, Message: "the requestState belongs to another call, or has expired",
			Data: enforce.Data{Reason: enforce.ReasonState, EvaluationID: d.Refusal.Data.EvaluationID},
		}
	}
	return t, nil
}

// seal makes the resume state of a call.
func (s *Service) seal(r *record, quiet int, upstream jsontext.Value) (string, error) {
	return s.cfg.Seal.Seal(sealResumeState, &resumeState{
		Handle: r.Handle, Tenant: r.Tenant, Type: r.Subject.Type, ID: r.Subject.ID, Digest: r.Digest,
		Expires: r.expires(), Round: r.Rounds, Quiet: quiet, Upstream: upstream,
	})
}

// An answer is what a client says to an elicitation of the gateway. Nothing in it
// approves anything.
type answer struct {
	Action  string `json:"action"`
	Content struct {
		Wait *bool `json:"wait"`
	} `json:"content"`
}

// withdraws reports whether the caller no longer wants the call.
// A user who closed the dialog has decided nothing.
func (a *answer) withdraws() bool {
	return a.Action == "decline" || a.Content.Wait != nil && !*a.Content.Wait
}

// withdraws reports whether a message says so in answer to what the gateway
// asked.
func withdraws(p *wire.Params) bool {
	var responses map[string]jsontext.Value
	if p.InputResponses == nil || json.Unmarshal(p.InputResponses, &responses) != nil {
		return false
	}
	a := new(answer)
	return responses[inputName] != nil && json.Unmarshal(responses[inputName], a) == nil && a.withdraws()
}

// again returns the response of a server that wants to be called again, under a
// resume state by which the approval goes on to cover the call; nil for any other.
func (s *Service) again(ctx context.Context, r *record, response *wire.Message) *wire.Message {
	if response == nil || response.Result == nil {
		return nil
	}
	members, err := jsonobject.Parse(response.Result)
	if err != nil || string(members["resultType"]) != `"input_required"` {
		return nil
	}
	moved, err := s.store.move(r, waiting, func(r *record) { r.Rounds++ })
	if err != nil {
		s.cfg.Log.ErrorContext(ctx, "approvals", "task", r.Task.Task.ID, "error", err)
		return nil
	}
	sealed, err := s.seal(moved, 0, members["requestState"])
	if err != nil {
		return nil
	}
	if err := members.Set("requestState", sealed); err != nil {
		return nil
	}
	result, err := members.Encode()
	if err != nil {
		return nil
	}
	return &wire.Message{ID: response.ID, Result: result}
}

// continueRound resumes a call whose server has answered that it needs input,
// in the next round.
func (s *Service) continueRound(ctx context.Context, d *enforce.DeniedCall, t *resumeState) (*enforce.Disposition, error) {
	r, err := s.store.byHandle(t.Handle)
	if err != nil {
		return nil, err
	}
	if r == nil || r.State != waiting || r.Rounds != t.Round {
		return nil, refusal(d.Refusal, enforce.ReasonSettled, "the approval has been used")
	}
	asks := r.asks()
	approvals, err := s.poll(ctx, r.Tenant, asks, 0)
	r.hear(asks)
	if approvals == nil {
		return nil, explain(d, errors.Join(errNoApproval, err))
	}
	return s.resume(ctx, d, r, approvals, t)
}

var errNoApproval = errors.New("the approval does not exist any more")
