package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// capabilityParams are the params of capabilities/request.
type capabilityParams struct {
	Tools       []string                       `json:"tools"`
	Duration    int64                          `json:"duration,omitzero"` // seconds
	Reason      string                         `json:"reason,omitzero"`
	Constraints *authzen.CapabilityConstraints `json:"constraints,omitempty"`
	HolderKey   jsontext.Value                 `json:"holder_key,omitzero"` // JWK; each call then needs a proof
}

// A grant is the result of capabilities/request.
type grant struct {
	Token     string    `json:"token"`
	Tools     []string  `json:"tools"`
	Expires   time.Time `json:"expires"`
	Signature string    `json:"signature"` // of the token
}

// requestCapability asks the PDP for a capability, in the owner's stead.
func (r *Room) requestCapability(ctx context.Context, in *received) error {
	owner, err := r.recipient(in)
	if err != nil {
		return err
	}
	var p capabilityParams
	if err := decode(in.msg.Params, &p); err != nil {
		return err
	}
	switch {
	case !in.msg.isRequest():
		return invalid("%s needs an id", methodCapability)
	case len(p.Tools) == 0:
		return invalid("tools is required: the names of tools of %s", owner.ID)
	case !r.may("request", in.ID, requestsPerMinute):
		return &Refusal{Code: codeInternal, Message: "too many requests: try again in a minute"}
	}
	c := &call{
		Topic: in.topic, Requester: in.ID, ID: in.msg.ID, Owner: owner.ID, Method: methodCapability,
		Tool: p.Tools[0], Reason: p.Reason, RequestID: uuid.NewString(), Envelope: in.env,
		Arguments: encode(p), Why: "A person has to grant the capability",
	}
	return r.granted(withRequestID(ctx, c.RequestID), in, c, &p)
}

func (r *Room) granted(ctx context.Context, in *received, c *call, p *capabilityParams) error {
	terms := &authzen.CapabilitySubmission{CapabilityTerms: authzen.CapabilityTerms{
		Subject: in.subject(), Duration: p.Duration, Reason: p.Reason, Constraints: p.Constraints, HolderKey: p.HolderKey,
	}}
	for _, tool := range p.Tools {
		terms.Tools = append(terms.Tools, c.Owner+":"+tool)
	}
	made, err := r.gate.pdp.RequestCapability(ctx, c.RequestID, terms)
	var status *client.StatusError
	switch {
	case errors.Is(err, client.ErrCapabilityDenied):
		return &Refusal{Code: codeDenied, Message: "Authorization denied", Data: blocked{Reason: "policies do not give this capability"}}
	case errors.As(err, &status) && status.Status < 500:
		return invalid("%s", status.Message)
	case err != nil:
		return r.gate.undecided(err)
	}
	c.Capability = made.Capability.ID
	if made.Task == nil {
		r.tell(c.Topic, newEnvelope(c.Owner, []string{c.Requester}, kindMCP, c.granted(&made.Capability, p)))
		return nil
	}
	c.Task, c.Until = &authzen.TaskResponse{Task: *made.Task}, made.Task.ExpiresAt
	if err := r.wait(c); err != nil {
		return err
	}
	r.announce(ctx, c)
	return nil
}

// granted returns the message with a capability.
func (c *call) granted(made *authzen.Capability, p *capabilityParams) *Message {
	return &Message{JSONRPC: "2.0", ID: c.ID, Result: encode(grant{made.Token, p.Tools, made.Expires, made.Token[strings.LastIndexByte(made.Token, '.')+1:]})}
}

// awaitCapability answers a request for a capability when people have decided.
func (r *Room) awaitCapability(ctx context.Context, c *call) error {
	var p capabilityParams
	if err := decode(c.Arguments, &p); err != nil {
		return err
	}
	for {
		now, err := r.gate.pdp.Capability(ctx, c.Capability, lookFor)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			r.log.Warn("no answer about a capability", "capability", c.Capability, "error", err)
			if err := pause(ctx); err != nil {
				return err
			}
		case now.Capability.Status == "active":
			r.end(c, encode(c.granted(&now.Capability, &p)))
			return nil
		case now.Capability.Status != "pending":
			return denied("The capability is " + now.Capability.Status)
		}
	}
}
