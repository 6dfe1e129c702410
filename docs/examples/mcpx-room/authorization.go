package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An authorizationRequest is what people decide on (ADR-001).
type authorizationRequest struct {
	ID        string         `json:"id"`
	Tool      string         `json:"tool"`
	Arguments jsontext.Value `json:"arguments"`
	Requester string         `json:"requester"`
	Reason    string         `json:"reason"`
	ExpiresAt string         `json:"expiresAt,omitzero"`
}

func (c *call) request() authorizationRequest {
	return authorizationRequest{ID: c.Task.Task.ID, Tool: c.Tool, Arguments: arguments(c.Arguments), Requester: c.Requester, Reason: c.Why}
}

// announce tells the caller and those who may decide that a call waits.
func (r *Room) announce(ctx context.Context, c *call) {
	r.mu.Lock()
	var all []*member
	for _, m := range r.members[c.Topic] {
		all = append(all, m)
	}
	r.mu.Unlock()
	if !r.cfg.Topics[c.Topic].Elicit && c.Method == methodCall {
		request := c.request()
		request.ExpiresAt = client.DecideBy(c.Task).UTC().Format(time.RFC3339)
		refusal := &Refusal{Code: codeAuthorization, Message: "Authorization required", Data: map[string]any{"authorizationRequest": request}}
		r.tell(c.Topic, newEnvelope(c.Owner, []string{c.Requester}, kindMCP, &Message{JSONRPC: "2.0", ID: c.ID, Error: encode(refusal)}))
	}
	for _, m := range all {
		r.announceTo(ctx, m, c)
	}
}

// announceAll tells a member what waits for it.
func (r *Room) announceAll(ctx context.Context, m *member) {
	r.mu.Lock()
	var all []*call
	for _, c := range r.calls {
		if c.Topic == m.topic && c.State == waiting {
			all = append(all, c)
		}
	}
	r.mu.Unlock()
	for _, c := range all {
		r.announceTo(ctx, m, c)
	}
}

// announceTo tells a member of a waiting call, once, if it may decide on it or carry it out. Policies say
// who may; when somebody does, they are asked again.
func (r *Room) announceTo(ctx context.Context, m *member, c *call) {
	if m.ID == c.Requester || !r.isNews(m, c) {
		return
	}
	decisions, err := r.gate.permits(ctx, []*authzen.EvaluationRequest{r.mayDecide(m, c, "approval.approve"), r.mayDecide(m, c, "approval.delegate"), c.mayFulfil(m)})
	if err != nil {
		return
	}
	to := []string{m.ID}
	switch {
	case !decisions[0].Decision || c.Delegate != "" && c.Delegate != m.ID:
	case m.ID == c.Owner && c.Method == methodCapability:
		r.tell(c.Topic, c.Envelope) // it grants by its response
	default:
		r.tell(c.Topic, newEnvelope(c.Owner, to, kindMCP, &Message{JSONRPC: "2.0", Method: methodAuthorization, Params: encode(c.request())}))
		if r.cfg.Topics[c.Topic].Elicit {
			r.tell(c.Topic, newEnvelope(c.Owner, to, kindMCP, r.form(c, decisions[1].Decision)))
		}
	}
	if decisions[2].Decision && c.Method != methodCapability {
		r.tell(c.Topic, newEnvelope(gateway, to, kindSystem, requestPending{"tool_request_pending", c.Requester, c.Owner, c.Tool, arguments(c.Arguments), c.ID}))
	}
}

// isNews reports whether a member has not been told of a waiting call. A call that comes while the member
// joins is announced for both reasons.
func (r *Room) isNews(m *member, c *call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.told[m] {
		return false
	}
	if c.told == nil {
		c.told = make(map[*member]bool)
	}
	c.told[m] = true
	return true
}

// mayDecide asks whether a member may approve a waiting call, as the PDP asks when it does.
func (r *Room) mayDecide(m *member, c *call, action string) *authzen.EvaluationRequest {
	about := c.Method
	resource := authzen.Resource{Type: "tool", ID: c.Owner + ":" + c.Tool}
	if c.Method == methodCapability {
		about = authzen.ActionCapabilityRequest
	}
	properties := map[string]any{
		"template": c.Template, "action": about, "resource_type": resource.Type, "resource_id": resource.ID, "resource": resource,
	}
	if delegate := r.cfg.named(c.Delegate); delegate != nil {
		properties["delegate"] = delegate.subject()
	}
	return question(m.subject(), action, authzen.Resource{Type: "access_request", ID: c.Task.Task.ID, Properties: encode(properties)}, nil)
}

// waitingFor returns the waiting call of a task, or nil.
func (r *Room) waitingFor(topic, task string) *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.Topic == topic && c.State == waiting && c.Task.Task.ID == task {
			return c
		}
	}
	return nil
}

// respondParams are the params of authorization/respond.
type respondParams struct {
	AuthorizationID string    `json:"authorizationId"`
	Decision        string    `json:"decision"`
	Reason          string    `json:"reason"`
	ValidUntil      time.Time `json:"validUntil"`
}

// decideOn records what a person says of a waiting call. What an owner asks itself goes to the owner.
func (r *Room) decideOn(ctx context.Context, in *received) error {
	var p respondParams
	if err := decode(in.msg.Params, &p); err != nil {
		return err
	}
	if p.Decision != client.Approve && p.Decision != client.Deny {
		return invalid("decision must be approve or deny")
	}
	c := r.waitingFor(in.topic, p.AuthorizationID)
	switch {
	case c != nil && c.Owner == in.stead():
		return r.vote(ctx, in, c, &client.Vote{Decision: p.Decision, Comment: p.Reason, ApprovedUntil: p.ValidUntil})
	case r.ownersCall(in, p.AuthorizationID) != nil:
		return r.relay(ctx, in)
	}
	return invalid("nothing waits for the authorization %q", p.AuthorizationID)
}

// vote records a person's decision at the PDP. Policies say whether it counts, and the call goes on when
// enough do.
func (r *Room) vote(ctx context.Context, in *received, c *call, v *client.Vote) error {
	approver := in.subject()
	v.Approver = &approver
	_, err := r.gate.desk.Decide(ctx, c.Task.Task.ID, v)
	var status *client.StatusError
	switch {
	case errors.As(err, &status) && status.Status == http.StatusForbidden:
		return &Refusal{Code: codeDenied, Message: status.Message}
	case errors.As(err, &status) && status.Status < 500:
		return invalid("%s", status.Message)
	case err != nil:
		return r.gate.undecided(err)
	}
	r.log.Info("vote", "task", c.Task.Task.ID, "approver", in.ID, "decision", v.Decision)
	if v.To != nil {
		return r.delegated(ctx, c, v.To.ID)
	}
	return nil
}

// delegated tells a participant that it alone decides now.
func (r *Room) delegated(ctx context.Context, c *call, to string) error {
	next := r.asksAgain(c, func(next *call) { next.Delegate, next.told = to, nil })
	r.mu.Lock()
	m := r.members[c.Topic][to]
	r.mu.Unlock()
	if next != nil && m != nil {
		r.announceTo(ctx, m, next)
	}
	return nil
}
