package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A requestPending tells those who may carry out a request of it.
type requestPending struct {
	Type      string         `json:"type"`
	Requester string         `json:"requester"`
	Target    string         `json:"target"`
	Tool      string         `json:"tool"`
	Arguments jsontext.Value `json:"arguments"`
	RequestID jsontext.Value `json:"requestId"`
}

// fulfil carries out the request of another participant: a call of its own, with the same tool and
// arguments.
func (r *Room) fulfil(ctx context.Context, in *received, owner *Participant, p *toolParams) error {
	asked := r.fulfilled(in, owner, p)
	if asked == nil || in.msg.Method != methodCall {
		return invalid("no such request of %q waits", p.OnBehalfOf)
	}
	c, err := r.newCall(in, owner, p)
	if err != nil {
		return err
	}
	c.Fulfils = &callKeyText{asked.Requester, asked.ID}
	ctx = withRequestID(ctx, c.RequestID)
	may, err := r.gate.evaluate(ctx, asked.mayFulfil(in.member))
	if err != nil {
		return err
	}
	if !may.Decision {
		return denied(why(may, in.ID+" may not carry out requests of "+asked.Requester))
	}
	d, err := r.gate.evaluate(ctx, c.Question)
	switch {
	case err != nil:
		return err
	case !d.Decision || r.access(c) == accessDeny || r.access(c) == accessApproval:
		return c.refused(d)
	}
	return r.sendFor(ctx, c, asked)
}

// fulfilled returns the waiting request that a call names, if it is the same call.
func (r *Room) fulfilled(in *received, owner *Participant, p *toolParams) *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.calls[callKey{in.topic, p.OnBehalfOf, canonical(p.RequestID)}]
	if c == nil || c.State != waiting || c.Method == methodCapability || c.Requester == in.ID ||
		c.Owner != owner.ID || c.Tool != p.Name || !jsonobject.Equal(arguments(c.Arguments), arguments(p.Arguments)) {
		return nil
	}
	return c
}

// sendFor sends a call that carries out a request, which ends with that.
func (r *Room) sendFor(ctx context.Context, c, asked *call) error {
	r.mu.Lock()
	if asked = r.current(asked); asked == nil {
		r.mu.Unlock()
		return invalid("no such request of %q waits", c.Fulfils.Requester)
	}
	// Both get the result under the id of the call: it must be no other request of the requester.
	id := callKey{asked.Topic, asked.Requester, string(c.ID)}
	if id != asked.key() && r.inUse(id) {
		r.mu.Unlock()
		return invalid("the id is that of another request of %q", asked.Requester)
	}
	err := r.sendLocked(c)
	if err == nil {
		r.forget(asked)
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	if err := r.gate.pdp.Cancel(ctx, asked.Task, "fulfilled by "+c.Requester); err != nil {
		r.log.Warn("cancel", "task", asked.Task.Task.ID, "error", err)
	}
	return nil
}

// mayFulfil asks whether a member may carry out a waiting request.
func (c *call) mayFulfil(m *member) *authzen.EvaluationRequest {
	canonical, err := jsonobject.Canonical(arguments(c.Arguments))
	if err != nil {
		canonical = nil // arguments are an object, and were read already
	}
	sum := sha256.Sum256(canonical)
	properties := map[string]any{
		"requester": c.Requester, "template": c.Template, "owner": c.Owner, "tool": c.Tool,
		"arguments_digest": "sha256:" + hex.EncodeToString(sum[:]),
	}
	return question(m.subject(), "tools/fulfil", authzen.Resource{Type: "tool_request", ID: c.Task.Task.ID, Properties: encode(properties)}, nil)
}
