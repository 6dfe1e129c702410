package main

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// ownersAnswer carries an owner's response to a call. While people decide it is the owner's own vote.
func (r *Room) ownersAnswer(ctx context.Context, in *received, c *call) error {
	if c.State == waiting {
		return r.ownersVote(ctx, in, c)
	}
	if asked := authorizationAsked(in.msg); asked != nil {
		return r.ownersQuestion(in, c, asked)
	}
	to := []string{c.Requester}
	if c.Fulfils != nil {
		to = append(to, c.Fulfils.Requester)
	}
	e := in.to(to...)
	var err error
	if e.Payload, err = c.answered(in); err != nil {
		return err
	}
	r.finish(c, e)
	return nil
}

// ownersVote takes the owner's response to a request that waits as its decision: a grant approves, an
// error denies. An owner has no result of a call that it has not seen.
func (r *Room) ownersVote(ctx context.Context, in *received, c *call) error {
	if in.msg.Error != nil {
		var refused struct {
			Data struct {
				Reason string `json:"reason"`
			} `json:"data"`
		}
		_ = json.Unmarshal(in.msg.Error, &refused) // a reason is optional
		return r.vote(ctx, in, c, &client.Vote{Decision: client.Deny, Comment: refused.Data.Reason})
	}
	if c.Method != methodCapability {
		return invalid("the call waits for a decision, and has no result")
	}
	return r.vote(ctx, in, c, &client.Vote{Decision: client.Approve})
}

// authorizationAsked returns the authorization that an owner's error asks for, or nil.
func authorizationAsked(m *Message) *authorizationRequest {
	var refused struct {
		Code int `json:"code"`
		Data struct {
			Request *authorizationRequest `json:"authorizationRequest"`
		} `json:"data"`
	}
	if json.Unmarshal(m.Error, &refused) != nil || refused.Code != codeAuthorization {
		return nil
	}
	return refused.Data.Request
}

// ownersQuestion notes that an owner itself has people asked about a call. Its response comes later.
func (r *Room) ownersQuestion(in *received, c *call, asked *authorizationRequest) error {
	if asked.ID == "" || asked.Tool != c.Tool || asked.Requester != c.Requester || !jsonobject.Equal(arguments(asked.Arguments), arguments(c.Arguments)) {
		return invalid("the authorizationRequest is not about the call")
	}
	if r.waitingFor(in.topic, asked.ID) != nil {
		return invalid("the authorizationRequest has an id of the room")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := *c
	next.OwnersID = asked.ID
	if err := r.save(&next); err != nil {
		return err
	}
	r.say(in.to(c.Requester), in.topic)
	return nil
}

// ownAuthorization sends an owner's question on, if it is about a call that the owner has.
func (r *Room) ownAuthorization(ctx context.Context, in *received) error {
	var p authorizationRequest
	if err := decode(in.msg.Params, &p); err != nil {
		return err
	}
	c := r.ownersCall(in, p.ID)
	if c == nil || c.Owner != in.ID || p.Tool != c.Tool || p.Requester != c.Requester || !jsonobject.Equal(arguments(p.Arguments), arguments(c.Arguments)) {
		return invalid("no call of yours waits for the authorization %q", p.ID)
	}
	return r.relay(ctx, in)
}

// ownForm sends an owner's form on. If it is about a call, the owner must have that call. Nobody sends
// a form in the place of the room's: its answer would be a vote.
func (r *Room) ownForm(ctx context.Context, in *received) error {
	var p struct {
		Metadata struct {
			Original *struct {
				From      string         `json:"from"`
				Tool      string         `json:"tool"`
				Arguments jsontext.Value `json:"arguments"`
				RequestID jsontext.Value `json:"requestId"`
			} `json:"originalRequest"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(arguments(in.msg.Params), &p); err != nil {
		return invalid("the params are not as they must be: %v", err)
	}
	if r.elicited(in) != nil {
		return invalid("the id is that of a form of the room")
	}
	if o := p.Metadata.Original; o != nil {
		r.mu.Lock()
		c := r.calls[callKey{in.topic, o.From, canonical(o.RequestID)}]
		r.mu.Unlock()
		if c == nil || c.Owner != in.ID || c.State != sent || c.Tool != o.Tool || !jsonobject.Equal(arguments(c.Arguments), arguments(o.Arguments)) {
			return invalid("the originalRequest is no call that you have")
		}
	}
	return r.relay(ctx, in)
}

// ownersCall returns the call for which its owner has asked for an authorization, or nil. A participant
// names the owner in to.
func (r *Room) ownersCall(in *received, id string) *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.Topic == in.topic && c.State == sent && id != "" && c.OwnersID == id && (c.Owner == in.ID || slices.Equal(in.env.To, []string{c.Owner})) {
			return c
		}
	}
	return nil
}

// metaArguments is the member of a result's _meta with the arguments that a person has approved instead.
const metaArguments = "io.github.policy-service/arguments"

// answered returns an owner's response as its recipients get it: unchanged, unless somebody else carried
// out the request or a person has changed the call.
func (c *call) answered(in *received) (jsontext.Value, error) {
	if in.msg.Result == nil || c.Fulfils == nil && !c.Changed {
		return in.env.Payload, nil
	}
	result, err := jsonobject.Parse(in.msg.Result)
	if err != nil {
		return nil, invalid("the result must be an object")
	}
	if c.Fulfils != nil {
		result.Put("fulfilledBy", encode(c.Requester))
		result.Put("originalRequester", encode(c.Fulfils.Requester))
	}
	if c.Changed {
		meta, err := jsonobject.Parse(result["_meta"])
		if err != nil {
			return nil, invalid("the _meta of the result must be an object")
		}
		meta.Put(metaArguments, c.Arguments)
		result.Put("_meta", encode(meta))
	}
	out := *in.msg
	out.Result = encode(result)
	return encode(&out), nil
}
