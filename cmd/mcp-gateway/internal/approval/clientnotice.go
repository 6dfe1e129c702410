package approval

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp/client"
)

// A clientNotice is a way to tell a client that its call waits.
type clientNotice struct {
	// wait waits for the decision as long as this client can. The record may have
	// ended by then.
	wait func(context.Context, *record) (enforce.Approvals, error)
	// tell answers a call that still waits.
	tell func(*enforce.DeniedCall, *record) (*enforce.Disposition, error)
}

// maxQuietRounds is how often a client is told to come back without anything to
// show. The Go SDK gives up at the third time in a call (1.8).
const maxQuietRounds = 2

// noticeFor chooses the best way to tell the client that its call waits. State is
// what the client returns with, nil if it was not told to.
func (s *Service) noticeFor(d *enforce.DeniedCall, r *record, state *resumeState) clientNotice {
	_, mayAsk := d.Params.Target(d.Message.Method)
	asks := d.Stateless && mayAsk && s.canPrompt(d.Capabilities)
	if state == nil {
		state = new(resumeState)
	}
	switch {
	case d.Stateless && d.Capabilities.Tasks() && d.Message.Method == wire.MethodToolsCall && s.cfg.Tasks:
		return clientNotice{s.pollOnce, s.task}
	case asks && s.shows(r):
		return clientNotice{s.pollOnce, s.inputRequired}
	case asks && state.Quiet < maxQuietRounds:
		return clientNotice{s.hold, func(d *enforce.DeniedCall, r *record) (*enforce.Disposition, error) {
			return s.comeBack(d, r, state.Quiet+1)
		}}
	case d.Client != nil && (s.canPrompt(d.Capabilities) || d.Params.Meta.ProgressToken != nil):
		return clientNotice{func(ctx context.Context, r *record) (enforce.Approvals, error) { return s.waitOnStream(ctx, d, r) }, s.pending(d)}
	case d.Requested:
		return clientNotice{s.pollOnce, s.pendingRequest}
	}
	return clientNotice{s.hold, s.pendingError}
}

// hold waits as long as a call stays open whose client is told nothing meanwhile.
func (s *Service) hold(ctx context.Context, r *record) (enforce.Approvals, error) {
	return s.await(ctx, r, s.settings.Load().Hold)
}

// shows reports whether the client is to show the call to its user: once for each
// call, however often it comes.
func (s *Service) shows(r *record) bool {
	if !r.waits() {
		return false
	}
	first, err := s.store.show(r.Handle)
	if err != nil {
		s.cfg.Log.Error("approvals", "error", err)
	}
	return first && err == nil
}

// canPrompt reports whether the client can show a message to its user.
func (s *Service) canPrompt(c *wire.Capabilities) bool {
	return c.Form() || s.settings.Load().Page != "" && c.URL()
}

// waitOnStream waits on the stream of a pending call. It asks the client
// whether to go on waiting, if the client can be asked, and sends progress
// notifications.
func (s *Service) waitOnStream(ctx context.Context, d *enforce.DeniedCall, r *record) (enforce.Approvals, error) {
	if approvals, err := s.pollOnce(ctx, r); approvals != nil || errors.Is(err, client.ErrNotApproved) || !r.waits() {
		return approvals, err
	}
	long := s.settings.Load().Hold // without progress, an SDK's time-out ends the call
	if d.Params.Meta.ProgressToken != nil {
		long = s.settings.Load().Wait
	}
	waits, stop := context.WithTimeout(ctx, long+lastLook)
	defer stop()
	withdrawn := false
	var beside sync.WaitGroup
	beside.Go(func() { s.progress(waits, d) })
	beside.Go(func() {
		if withdrawn = s.asksToStop(waits, d, r); withdrawn {
			stop()
		}
	})
	approvals, err := s.await(waits, r, long)
	stop()
	beside.Wait()
	if withdrawn && approvals == nil {
		s.refuse(ctx, r, enforce.ReasonWithdrawn)
	}
	return approvals, err
}

// asksToStop asks the client whether to go on waiting, and reports whether it
// wants to withdraw. A client that cannot be asked goes on.
func (s *Service) asksToStop(ctx context.Context, d *enforce.DeniedCall, r *record) bool {
	if !s.canPrompt(d.Capabilities) || !s.shows(r) {
		return false
	}
	response, err := d.Client.Ask(ctx, wire.MethodElicitation, s.elicitation(d, r))
	if err != nil || response.Result == nil {
		return false
	}
	a := new(answer)
	return json.Unmarshal(response.Result, a) == nil && a.withdraws()
}

// progressInterval is the time between two progress notifications.
const progressInterval = 10 * time.Second

// progress tells the client that its call is alive, if it wants to know.
func (s *Service) progress(ctx context.Context, d *enforce.DeniedCall) {
	if d.Params.Meta.ProgressToken == nil {
		return
	}
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
			params := fmt.Appendf(nil, `{"progressToken":%s,"progress":%d,"message":"waiting for a person's approval"}`, d.Params.Meta.ProgressToken, n)
			if d.Client.Notify(ctx, &wire.Message{Method: wire.MethodProgress, Params: params}) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// elicitation is what a client shows while its call waits: the page at which
// approvers decide, or a form that decides nothing but whether to wait.
func (s *Service) elicitation(d *enforce.DeniedCall, r *record) map[string]any {
	message := fmt.Sprintf("%s %s on the server %s waits for the approval of another person (%s).", r.Method, plain.Text(r.Name), r.Server, r.named())
	if s.settings.Load().Page != "" && d.Capabilities.URL() {
		return map[string]any{"mode": "url", "message": message + " This is where it is decided.", "url": s.page(r), "elicitationId": r.Handle}
	}
	return map[string]any{
		"mode": "form", "message": message + " Accept to go on waiting, decline to withdraw the call. Your answer does not approve it.",
		"requestedSchema": jsontext.Value(`{"type":"object","properties":{"wait":{"type":"boolean","title":"Go on waiting","default":true}}}`),
	}
}

// page is where the first of the tasks is decided, or "".
func (s *Service) page(r *record) string {
	if s.settings.Load().Page == "" {
		return ""
	}
	return strings.ReplaceAll(s.settings.Load().Page, "{task}", url.QueryEscape(r.Task.Task.ID))
}

// inputRequired tells a client to show the call to its user and to come back (MCP
// 2026-07-28, "Multi Round-Trip Requests").
func (s *Service) inputRequired(d *enforce.DeniedCall, r *record) (*enforce.Disposition, error) {
	return s.round(d, r, 0, map[string]any{inputName: map[string]any{"method": wire.MethodElicitation, "params": s.elicitation(d, r)}})
}

// comeBack tells a client to come back, and to show nothing. It is the round of that
// number in which it does.
func (s *Service) comeBack(d *enforce.DeniedCall, r *record, quiet int) (*enforce.Disposition, error) {
	return s.round(d, r, quiet, map[string]any{})
}

func (s *Service) round(d *enforce.DeniedCall, r *record, quiet int, requests map[string]any) (*enforce.Disposition, error) {
	sealed, err := s.seal(r, quiet, nil)
	if err != nil {
		return nil, err
	}
	result, err := json.Marshal(map[string]any{"resultType": "input_required", "requestState": sealed, "inputRequests": requests}, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	return &enforce.Disposition{Answer: &wire.Message{ID: d.Message.ID, Result: result}, Status: 200}, nil
}

// pending returns how a client is told that its call waits after all.
func (s *Service) pending(d *enforce.DeniedCall) func(*enforce.DeniedCall, *record) (*enforce.Disposition, error) {
	if d.Requested {
		return s.pendingRequest
	}
	return s.pendingError
}

// pendingError tells a client that has no better way which task waits.
func (s *Service) pendingError(d *enforce.DeniedCall, r *record) (*enforce.Disposition, error) {
	waits := refusal(d.Refusal, enforce.ReasonPending, "a person has to approve the call first: send it again later")
	waits.Data.Page, waits.Data.RetryAfter, waits.Data.Digest = s.page(r), 5, r.Digest
	r.name(&waits.Data)
	waits.Data.AuthorizationRequest = s.authorizationRequest(d, r)
	return nil, waits
}
