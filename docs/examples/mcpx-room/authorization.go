package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
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

// announceTo tells a member of a waiting call if it may decide on it or carry it out. Policies say who
// may; when somebody does, they are asked again.
func (r *Room) announceTo(ctx context.Context, m *member, c *call) {
	if m.ID == c.Requester {
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

// elicitID is the id of the form about a task.
func elicitID(task string) string { return "elicit-" + task }

// A property is a member of a form.
type property struct {
	Type        string   `json:"type"`
	Title       string   `json:"title,omitzero"`
	Description string   `json:"description,omitzero"`
	Enum        []string `json:"enum,omitempty"`
	EnumNames   []string `json:"enumNames,omitempty"`
}

// form is the request of ADR-002 that asks a person to decide, or to say who does.
func (r *Room) form(c *call, mayDelegate bool) *Message {
	shown, err := jsonobject.Canonical(arguments(c.Arguments))
	if err != nil {
		shown = c.Arguments // cannot be: arguments are an object
	}
	properties := map[string]property{
		"approve": {Type: "boolean", Title: "Approve this tool call?", Description: fmt.Sprintf("Tool: %s\nCaller: %s\nArguments: %s", c.Tool, c.Requester, shown)},
		"reason":  {Type: "string", Title: "Reason (optional)", Description: "Provide a reason for your decision"},
	}
	required := []string{"approve"}
	if mayDelegate {
		required = nil
		properties["action"] = property{Type: "string", Enum: []string{client.Approve, client.Deny, client.Delegate}, EnumNames: []string{"Approve", "Deny", "Delegate to another user"}}
		properties["delegateTo"] = property{Type: "string", Title: "Delegate to (participant ID)", Description: "Only required if action is 'delegate'"}
	}
	return &Message{JSONRPC: "2.0", ID: encode(elicitID(c.Task.Task.ID)), Method: methodElicit, Params: encode(map[string]any{
		"message":         fmt.Sprintf("%s requests permission to execute '%s'", r.cfg.name(c.Requester), c.Tool),
		"requestedSchema": requestedSchema{"object", properties, required},
		"metadata": map[string]any{
			"elicitationType": "tool_approval",
			"timeout":         int(time.Until(client.DecideBy(c.Task)).Seconds()),
			"originalRequest": map[string]any{"from": c.Requester, "tool": c.Tool, "arguments": arguments(c.Arguments), "requestId": c.ID},
		},
	})}
}

type requestedSchema struct {
	Type       string              `json:"type"`
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required,omitempty"`
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

// elicited returns the call whose form a response answers, or nil.
func (r *Room) elicited(in *received) *call {
	var id string
	if json.Unmarshal(in.msg.ID, &id) != nil || !strings.HasPrefix(id, elicitID("")) {
		return nil
	}
	return r.waitingFor(in.topic, strings.TrimPrefix(id, elicitID("")))
}

// An answer is that to a form.
type answer struct {
	Action  string  `json:"action"` // accept, decline or cancel
	Content content `json:"content"`
}

type content struct {
	Approve    *bool  `json:"approve"`
	Reason     string `json:"reason"`
	Action     string `json:"action"`     // approve, deny, delegate, or nothing
	DelegateTo string `json:"delegateTo"` // a participant
}

// decideByForm records what a person has answered in a form. Only true is an approval, and cancel
// decides nothing.
func (r *Room) decideByForm(ctx context.Context, in *received, c *call) error {
	var a answer
	if in.msg.Result == nil || decode(in.msg.Result, &a) != nil {
		return invalid("the answer is not as the form asks")
	}
	if c.Owner != in.stead() {
		return invalid("the form is of %s: answer it there", c.Owner)
	}
	switch a.Action {
	case "cancel":
		return nil
	case "decline":
		return r.vote(ctx, in, c, &client.Vote{Decision: client.Deny})
	case "accept":
		vote, err := r.accepted(&a.Content)
		if err != nil {
			return err
		}
		return r.vote(ctx, in, c, vote)
	}
	return invalid("the action must be accept, decline or cancel")
}

// accepted returns the vote in a form. Members that disagree are none.
func (r *Room) accepted(c *content) (*client.Vote, error) {
	vote := &client.Vote{Decision: c.Action, Comment: c.Reason}
	approves, denies := c.Approve != nil && *c.Approve, c.Approve != nil && !*c.Approve
	switch {
	case approves && (c.Action == "" || c.Action == client.Approve):
		vote.Decision = client.Approve
	case !approves && c.Action == client.Deny, denies && c.Action == "":
		vote.Decision = client.Deny
	case c.Approve == nil && c.Action == client.Delegate:
		to := r.cfg.named(c.DelegateTo)
		if to == nil {
			return nil, invalid("there is no participant %q to delegate to", c.DelegateTo)
		}
		subject := to.subject()
		vote.To = &subject
	default:
		return nil, invalid("the answer needs approve, and an action that agrees with it")
	}
	return vote, nil
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
	next := r.asksAgain(c, func(next *call) { next.Delegate = to })
	r.mu.Lock()
	m := r.members[c.Topic][to]
	r.mu.Unlock()
	if next != nil && m != nil {
		r.announceTo(ctx, m, next)
	}
	return nil
}
