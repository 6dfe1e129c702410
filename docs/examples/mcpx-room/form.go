package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// elicitID is the id of the form about a task.
func elicitID(task string) string { return "elicit-" + task }

// A property is a member of a form.
type property struct {
	Type        string         `json:"type"`
	Title       string         `json:"title,omitzero"`
	Description string         `json:"description,omitzero"`
	Default     jsontext.Value `json:"default,omitzero"`
	Enum        []string       `json:"enum,omitempty"`
	EnumNames   []string       `json:"enumNames,omitempty"`
}

type requestedSchema struct {
	Type       string              `json:"type"`
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required,omitempty"`
}

// formMembers are the members of a form that are no arguments.
var formMembers = []string{"approve", "reason", "action", "delegateTo"}

// form is the request of ADR-002 that asks a person to decide, or to say who does.
func (r *Room) form(c *call, mayDelegate bool) *Message {
	return &Message{JSONRPC: "2.0", ID: encode(elicitID(c.Task.Task.ID)), Method: methodElicit, Params: encode(map[string]any{
		"message":         fmt.Sprintf("%s requests permission to execute '%s'", r.cfg.name(c.Requester), c.Tool),
		"requestedSchema": r.schema(c, mayDelegate),
		"metadata": map[string]any{
			"elicitationType": "tool_approval",
			"timeout":         int(time.Until(client.DecideBy(c.Task)).Seconds()),
			"originalRequest": map[string]any{"from": c.Requester, "tool": c.Tool, "arguments": arguments(c.Arguments), "requestId": c.ID},
		},
	})}
}

func (r *Room) schema(c *call, mayDelegate bool) requestedSchema {
	shown, err := jsonobject.Canonical(arguments(c.Arguments))
	if err != nil {
		shown = c.Arguments // cannot be: arguments are an object
	}
	s := requestedSchema{"object", r.editable(c), []string{"approve"}}
	s.Properties["approve"] = property{Type: "boolean", Title: "Approve this tool call?", Description: fmt.Sprintf("Tool: %s\nCaller: %s\nArguments: %s", c.Tool, c.Requester, shown)}
	s.Properties["reason"] = property{Type: "string", Title: "Reason (optional)", Description: "Provide a reason for your decision"}
	if mayDelegate {
		s.Required = nil
		s.Properties["action"] = property{Type: "string", Enum: []string{client.Approve, client.Deny, client.Delegate}, EnumNames: []string{"Approve", "Deny", "Delegate to another user"}}
		s.Properties["delegateTo"] = property{Type: "string", Title: "Delegate to (participant ID)", Description: "Only required if action is 'delegate'"}
	}
	return s
}

// editable returns the members for arguments that people may change: texts, numbers and booleans.
func (r *Room) editable(c *call) map[string]property {
	out := make(map[string]property)
	members, err := jsonobject.Parse(c.Arguments)
	if err != nil || c.Method != methodCall {
		return out
	}
	types := map[jsontext.Kind]string{'"': "string", '0': "number", 't': "boolean", 'f': "boolean"}
	for _, name := range r.cfg.Topics[c.Topic].Edit {
		if value := members[name]; types[value.Kind()] != "" {
			out[name] = property{Type: types[value.Kind()], Title: name, Default: value}
		}
	}
	return out
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
	Action  string         `json:"action"` // accept, decline or cancel
	Content jsontext.Value `json:"content"`
}

type content struct {
	Approve    *bool  `json:"approve"`
	Reason     string `json:"reason"`
	Action     string `json:"action"`     // approve, deny, delegate, or nothing
	DelegateTo string `json:"delegateTo"` // a participant

	Arguments map[string]jsontext.Value `json:",embed"` // that the person has changed, or left as they were
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
		var filled content
		if json.Unmarshal(arguments(a.Content), &filled) != nil {
			return invalid("the answer is not as the form asks")
		}
		vote, err := r.accepted(c, &filled)
		if err != nil {
			return err
		}
		return r.vote(ctx, in, c, vote)
	}
	return invalid("the action must be accept, decline or cancel")
}

// accepted returns the vote in a form. Members that disagree are none.
func (r *Room) accepted(of *call, c *content) (*client.Vote, error) {
	vote := &client.Vote{Decision: c.Action, Comment: c.Reason}
	approves, denies := c.Approve != nil && *c.Approve, c.Approve != nil && !*c.Approve
	switch {
	case approves && (c.Action == "" || c.Action == client.Approve):
		vote.Decision = client.Approve
		return vote, r.edit(of, c, vote)
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

// edit puts the arguments that a person has changed into the vote.
func (r *Room) edit(of *call, c *content, vote *client.Vote) error {
	may, changed := r.editable(of), jsonobject.Object{}
	for name, value := range c.Arguments {
		if _, ok := may[name]; !ok {
			return invalid("the form does not ask for %s", name)
		}
		if !jsonobject.Equal(value, may[name].Default) {
			changed.Put(name, value)
		}
	}
	if len(changed) > 0 {
		vote.Arguments = encode(changed)
	}
	return nil
}

// changed returns a call with the arguments that a person has approved in place of the requester's, and
// the approval of it. The PDP decides anew, on these arguments.
func (c *call) changed(approval *authzen.Approval, arguments jsontext.Value) (*call, *authzen.Approval, error) {
	approval, err := client.WithArguments(approval, arguments)
	if err != nil {
		return nil, nil, err
	}
	next, question, envelope := *c, *c.Question, *c.Envelope
	members, err := jsonobject.Parse(question.Context)
	if err != nil {
		return nil, nil, err
	}
	members.Put("arguments", arguments)
	question.Context = encode(members)
	envelope.Payload = encode(&Message{JSONRPC: "2.0", ID: c.ID, Method: methodCall, Params: encode(toolParams{Name: c.Tool, Arguments: arguments})})
	next.Arguments, next.Question, next.Envelope, next.Changed = arguments, &question, &envelope, true
	return &next, approval, nil
}
