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
	tell func(*enforce.Denied, *record) (*enforce.Verdict, error)
}

// noticeFor chooses the best way to tell the client that its call waits. Again
// means that the client returns to a call about which it was told before.
func (s *Service) noticeFor(d *enforce.Denied, again bool) clientNotice {
	_, mayAsk := d.Params.Target(d.Message.Method)
	asks := d.Stateless && mayAsk && s.canPrompt(d.Capabilities)
	hold := func(ctx context.Context, r *record) (enforce.Approvals, error) { return s.await(ctx, r, s.cfg.Hold) }
	switch {
	case asks && again:
		return clientNotice{hold, s.inputRequired}
	case asks:
		return clientNotice{s.pollOnce, s.inputRequired}
	case d.Stateless && d.Capabilities.Tasks() && d.Message.Method == wire.MethodToolsCall && s.cfg.Tasks:
		return clientNotice{s.pollOnce, s.task}
	case d.Client != nil && (s.canPrompt(d.Capabilities) || d.Params.Meta.ProgressToken != nil):
		return clientNotice{func(ctx context.Context, r *record) (enforce.Approvals, error) { return s.waitOnStream(ctx, d, r) }, s.pendingError}
	}
	return clientNotice{hold, s.pendingError}
}

// canPrompt reports whether the client can show a message to its user.
func (s *Service) canPrompt(c *wire.Capabilities) bool {
	return c.Form() || s.cfg.Page != "" && c.URL()
}

// waitOnStream waits on the stream of a pending call. It asks the client
// whether to go on waiting, if the client can be asked, and sends progress
// notifications.
func (s *Service) waitOnStream(ctx context.Context, d *enforce.Denied, r *record) (enforce.Approvals, error) {
	if approvals, err := s.pollOnce(ctx, r); approvals != nil || errors.Is(err, client.ErrNotApproved) || !r.waits() {
		return approvals, err
	}
	waits, stop := context.WithTimeout(ctx, s.cfg.Wait)
	defer stop()
	withdrawn := false
	var beside sync.WaitGroup
	beside.Go(func() { s.progress(waits, d) })
	beside.Go(func() {
		if withdrawn = s.asksToStop(waits, d, r); withdrawn {
			stop()
		}
	})
	approvals, err := s.await(waits, r, s.cfg.Wait)
	stop()
	beside.Wait()
	if withdrawn && approvals == nil {
		s.refuse(ctx, r, enforce.ReasonWithdrawn)
	}
	return approvals, err
}

// asksToStop asks the client whether to go on waiting, and reports whether it
// wants to withdraw. A client that cannot be asked goes on.
func (s *Service) asksToStop(ctx context.Context, d *enforce.Denied, r *record) bool {
	if !s.canPrompt(d.Capabilities) {
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
func (s *Service) progress(ctx context.Context, d *enforce.Denied) {
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
func (s *Service) elicitation(d *enforce.Denied, r *record) map[string]any {
	message := fmt.Sprintf("%s %s on the server %s waits for the approval of another person (%s).", r.Method, plain.Text(r.Name), r.Server, r.named())
	if s.cfg.Page != "" && d.Capabilities.URL() {
		return map[string]any{"mode": "url", "message": message + " This is where it is decided.", "url": s.page(r), "elicitationId": r.Handle}
	}
	return map[string]any{
		"mode": "form", "message": message + " Accept to go on waiting, decline to withdraw the call. Your answer does not approve it.",
		"requestedSchema": jsontext.Value(`{"type":"object","properties":{"wait":{"type":"boolean","title":"Go on waiting","default":true}}}`),
	}
}

// page is where the first of the tasks is decided, or "".
func (s *Service) page(r *record) string {
	if s.cfg.Page == "" {
		return ""
	}
	return strings.ReplaceAll(s.cfg.Page, "{task}", url.QueryEscape(r.Task.Task.ID))
}

// inputRequired tells a client to come back (MCP 2026-07-28, "Multi Round-Trip
// Requests").
func (s *Service) inputRequired(d *enforce.Denied, r *record) (*enforce.Verdict, error) {
	sealed, err := s.seal(r, nil)
	if err != nil {
		return nil, err
	}
	result, err := json.Marshal(map[string]any{
		"resultType": "input_required", "requestState": sealed,
		"inputRequests": map[string]any{inputName: map[string]any{"method": wire.MethodElicitation, "params": s.elicitation(d, r)}},
	}, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	return &enforce.Verdict{Answer: &wire.Message{ID: d.Message.ID, Result: result}, Status: 200}, nil
}

// pendingError tells a client that has no better way which task waits.
func (s *Service) pendingError(d *enforce.Denied, r *record) (*enforce.Verdict, error) {
	waits := refusal(d.Refusal, enforce.ReasonPending, "a person has to approve the call first: send it again later")
	waits.Data.Page, waits.Data.RetryAfter, waits.Data.Digest = s.page(r), 5, r.Digest
	r.name(&waits.Data)
	return nil, waits
}
