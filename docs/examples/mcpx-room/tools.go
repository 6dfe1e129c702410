package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Methods that the room knows itself. It relays all others that policies permit.
const (
	methodCall          = "tools/call"
	methodRequest       = "tools/request"
	methodList          = "tools/list"
	methodCapability    = "capabilities/request"
	methodRespond       = "authorization/respond"
	methodAuthorization = "notifications/authorization/request"
	methodElicit        = "elicitation/create"
)

// toolParams are the params of tools/call and tools/request.
type toolParams struct {
	Name       string         `json:"name"`
	Arguments  jsontext.Value `json:"arguments,omitzero"`
	Reason     string         `json:"reason,omitzero"`     // of tools/request
	Capability string         `json:"capability,omitzero"` // its id or token

	Proof *authzen.CapabilityProof `json:"proof,omitempty"` // of a capability with a key

	OnBehalfOf string         `json:"onBehalfOf,omitzero"` // requester of the request that the call carries out
	RequestID  jsontext.Value `json:"requestId,omitzero"`  // and the id of that
}

// callTool decides on a call, and sends it to its owner, has people asked, or refuses it.
func (r *Room) callTool(ctx context.Context, in *received) error {
	owner, err := r.recipient(in)
	if err != nil {
		return err
	}
	var p toolParams
	if err := decode(in.msg.Params, &p); err != nil {
		return err
	}
	switch {
	case !in.msg.isRequest():
		return invalid("%s needs an id", in.msg.Method)
	case p.Name == "":
		return invalid("name is required: that of a tool")
	case p.OnBehalfOf != "" || p.RequestID != nil:
		return r.fulfil(ctx, in, owner, &p)
	case in.msg.Method == methodRequest && !r.may("request", in.ID, requestsPerMinute):
		return &Refusal{Code: codeInternal, Message: "too many requests: try again in a minute"}
	}
	c, err := r.newCall(in, owner, &p)
	if err != nil {
		return err
	}
	ctx = withRequestID(ctx, c.RequestID)
	d, err := r.gate.evaluate(ctx, c.Question)
	if err != nil {
		return err
	}
	if waits, err := r.decided(c, d); !waits {
		return err
	}
	if err := r.verified(ctx, in, c, p.claim()); err != nil {
		return err
	}
	return r.suspend(ctx, c, d)
}

// decided sends a call or refuses it, or reports that it waits for people.
func (r *Room) decided(c *call, d *authzen.Decision) (waits bool, err error) {
	switch narrowed := r.access(c); {
	case narrowed == accessDeny:
		return false, denied(fmt.Sprintf("%s does not give %s access to tool '%s'", c.Owner, c.Requester, c.Tool))
	case d.Decision && narrowed == accessApproval:
		return false, denied(fmt.Sprintf("%s asks for an approval of each call, and policies have nobody asked", c.Owner))
	case d.Decision:
		return false, r.send(c)
	case needsCapability(d) || !canBeApproved(d):
		return false, c.refused(d)
	}
	return true, nil
}

// suspend has people decide on a call.
func (r *Room) suspend(ctx context.Context, c *call, d *authzen.Decision) error {
	task, err := r.gate.submit(ctx, c, d)
	if err != nil {
		return err
	}
	c.Task, c.Template, c.Until = task, d.Context.AccessRequest.Template, task.Task.ExpiresAt
	c.Why = why(d, cmp.Or(c.Reason, "A person has to approve the call"))
	if err := r.wait(c); err != nil {
		return err
	}
	r.announce(ctx, c)
	return nil
}

// newCall returns a call with the question about it. The owner gets the name and the arguments that are
// decided on, and nothing else.
func (r *Room) newCall(in *received, owner *Participant, p *toolParams) (*call, error) {
	c := &call{
		Topic: in.topic, Requester: in.ID, ID: in.msg.ID, Owner: owner.ID, Method: in.msg.Method,
		Tool: p.Name, Arguments: p.Arguments, Reason: p.Reason, RequestID: uuid.NewString(),
	}
	e := *in.env
	e.Payload = encode(&Message{JSONRPC: "2.0", ID: in.msg.ID, Method: methodCall, Params: encode(toolParams{Name: p.Name, Arguments: p.Arguments})})
	c.Envelope = &e
	if _, err := jsonobject.Parse(p.Arguments); err != nil {
		return nil, invalid("arguments must be an object")
	}
	r.mu.Lock()
	err := r.admit(c) // before a decision takes a use or a proof
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c.Question = r.toolQuestion(in.Participant, in.msg.Method, c, p.claim())
	return c, nil
}

// claim returns what a call presents. A token has dots, and an id has none.
func (p *toolParams) claim() *authzen.CapabilityClaim {
	use := true
	if strings.Contains(p.Capability, ".") {
		return &authzen.CapabilityClaim{Token: p.Capability, Proof: p.Proof, Use: &use}
	}
	return &authzen.CapabilityClaim{ID: p.Capability, Proof: p.Proof, Use: &use}
}

// verified replaces what a call that waits presents. The PDP has verified token and proof with the first
// question, and takes a proof once; the questions that follow name the capability and its key.
func (r *Room) verified(ctx context.Context, in *received, c *call, claim *authzen.CapabilityClaim) error {
	if !claim.Presents() {
		return nil
	}
	found, err := r.gate.pdp.Introspect(ctx, authzen.IntrospectionRequest{ID: claim.ID, Token: claim.Token})
	if err != nil {
		return r.gate.undecided(err)
	}
	again := &authzen.CapabilityClaim{ID: found.ID, Use: claim.Use}
	if found.Key != nil && claim.Proof != nil {
		again.JKT = found.Key.JKT
	}
	c.Question = r.toolQuestion(in.Participant, in.msg.Method, c, again)
	return nil
}

// toolQuestion asks whether a participant may do an action with the tool of a call.
func (r *Room) toolQuestion(p *Participant, action string, c *call, claim *authzen.CapabilityClaim) *authzen.EvaluationRequest {
	return question(p.subject(), action, authzen.Resource{Type: "tool", ID: c.Owner + ":" + c.Tool}, map[string]any{
		"gateway":    map[string]string{"server": c.Owner, "tool": c.Tool},
		"topic":      c.Topic,
		"arguments":  arguments(c.Arguments),
		"declared":   string(r.access(c)),
		"capability": claim,
	})
}

// filter returns a list of tools without those that a requester can never call.
func (r *Room) filter(ctx context.Context, in *received, requester string) (jsontext.Value, error) {
	result, err := jsonobject.Parse(in.msg.Result)
	if err != nil {
		return nil, invalid("the result of %s is no object", methodList)
	}
	var tools []jsonobject.Object
	if err := json.Unmarshal(result["tools"], &tools); err != nil {
		return nil, invalid("the result of %s has no tools", methodList)
	}
	var questions []*authzen.EvaluationRequest
	use := false // a list spends nothing
	for _, tool := range tools {
		c := &call{Topic: in.topic, Requester: requester, Owner: in.ID, Method: methodCall}
		if json.Unmarshal(tool["name"], &c.Tool) != nil {
			return nil, invalid("a tool has no name")
		}
		questions = append(questions, r.toolQuestion(r.cfg.named(requester), methodCall, c, &authzen.CapabilityClaim{Use: &use}))
	}
	decisions, err := r.gate.permits(ctx, questions)
	if err != nil {
		return nil, err
	}
	kept := []jsonobject.Object{}
	for i, d := range decisions {
		if d.Decision || canBeApproved(&d) || needsCapability(&d) {
			kept = append(kept, tools[i])
		}
	}
	result.Put("tools", encode(kept))
	return result.Encode()
}
