package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A callKey identifies a request: ids are unique for each requester.
type callKey struct{ topic, requester, id string }

// A state of a call.
type state string

const (
	waiting  state = "waiting"  // for people
	sent     state = "sent"     // to the owner, once
	answered state = "answered" // and the answer is not delivered yet
)

// A call is one of a tool, or a request for a capability, until its answer is delivered. It is on disk. A call that the
// room knows never changes: another takes its place.
type call struct {
	Topic     string         `json:"topic"`
	Requester string         `json:"requester"`
	ID        jsontext.Value `json:"id"`
	Owner     string         `json:"owner"`
	Method    string         `json:"method"`
	Tool      string         `json:"tool"` // the first, of a request for a capability
	Arguments jsontext.Value `json:"arguments,omitzero"`
	Changed   bool           `json:"changed,omitzero"` // by who approved it
	Reason    string         `json:"reason,omitzero"`  // of the requester

	State    state     `json:"state"`
	Until    time.Time `json:"until"`    // the end of this state
	Envelope *Envelope `json:"envelope"` // for the owner

	RequestID  string                     `json:"request_id"` // at the PDP
	Question   *authzen.EvaluationRequest `json:"question,omitempty"`
	Why        string                     `json:"why,omitzero"` // people are asked
	Template   string                     `json:"template,omitzero"`
	Task       *authzen.TaskResponse      `json:"task,omitempty"`
	Capability string                     `json:"capability,omitzero"`
	Delegate   string                     `json:"delegate,omitzero"` // who alone decides

	OwnersID string `json:"owners_id,omitzero"` // of the authorization that the owner itself asks for

	Fulfils *callKeyText `json:"fulfils,omitempty"` // the request that this call carries out

	Answer      *Envelope `json:"answer,omitempty"`
	Undelivered []string  `json:"undelivered,omitempty"` // who has to get it

	told map[*member]bool // that it waits; guarded by the room's mu
}

// A callKeyText names a request of another participant.
type callKeyText struct {
	Requester string         `json:"requester"`
	ID        jsontext.Value `json:"id"`
}

func (c *call) key() callKey { return callKey{c.Topic, c.Requester, string(c.ID)} }

// Bounds of calls.
const (
	maxCalls      = 20 // of a requester
	maxAllCalls   = 500
	sentFor       = 10 * time.Minute // the owner answers
	deliverWithin = time.Hour
	lookFor       = 20 * time.Second // one question how a task stands
	lookAgain     = time.Second      // after a failure
)

// add notes a call. The room is locked.
func (r *Room) add(c *call) error {
	if err := r.admit(c); err != nil {
		return err
	}
	return r.save(c)
}

// admit refuses a call beyond the bounds, and one whose id is in use. The room is locked.
func (r *Room) admit(c *call) error {
	own := 0
	for k := range r.calls {
		if k.requester == c.Requester {
			own++
		}
	}
	switch {
	case r.inUse(c.key()):
		return invalid("the id is that of a request that has no response yet")
	case own >= maxCalls || len(r.calls) >= maxAllCalls:
		return &Refusal{Code: codeInternal, Message: "too many calls wait"}
	}
	return nil
}

// inUse reports whether an id is that of a request without an answer. The room is locked.
func (r *Room) inUse(key callKey) bool {
	c := r.calls[key]
	return r.asks[key] != nil || c != nil && c.State != answered
}

// save keeps a call on disk and in memory. The room is locked.
func (r *Room) save(c *call) error {
	if err := r.store.put(c); err != nil {
		r.log.Error("store", "error", err)
		return &Refusal{Code: codeInternal, Message: "the room cannot keep the call"}
	}
	r.calls[c.key()] = c
	return nil
}

// send sends a call to its owner: never without having noted that first, and so never twice.
func (r *Room) send(c *call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sendLocked(c)
}

func (r *Room) sendLocked(c *call) error {
	owner := r.members[c.Topic][c.Owner]
	if owner == nil {
		return away(c.Owner)
	}
	known := r.current(c)
	if c.State == waiting && known == nil {
		return invalid("the call has ended")
	}
	next := *c
	next.State, next.Until, next.Task, next.Question = sent, time.Now().Add(sentFor), nil, nil
	keep := r.save
	if known == nil {
		keep = r.add
	}
	if err := keep(&next); err != nil {
		return err
	}
	return owner.send(c.Envelope, nil)
}

// wait keeps a call while people decide.
func (r *Room) wait(c *call) error {
	c.State = waiting
	r.mu.Lock()
	err := r.add(c)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	go r.await(c)
	return nil
}

// await carries a waiting call on when people have decided.
func (r *Room) await(c *call) {
	ctx := withRequestID(r.ctx, c.RequestID)
	ctx, cancel := context.WithDeadline(ctx, c.Until)
	defer cancel()
	var err error
	if c.Method == methodCapability {
		err = r.awaitCapability(ctx, c)
	} else {
		err = r.awaitApproval(ctx, c)
	}
	if r.ctx.Err() != nil {
		return // the room is closed: the call goes on when it is open again
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = denied("nobody has decided in time")
	}
	if err == nil {
		return
	}
	refusal := errUndecided
	if !errors.As(err, &refusal) {
		r.log.Error("a call cannot go on", "task", c.Task.Task.ID, "error", err)
	}
	r.end(c, encode(&Message{JSONRPC: "2.0", ID: c.ID, Error: encode(refusal)}))
}

// awaitApproval sends a call to its owner if people approve it, and the PDP then permits it.
func (r *Room) awaitApproval(ctx context.Context, c *call) error {
	task := *c.Task
	for {
		approval, err := r.approval(ctx, c, &task)
		if err != nil {
			return err
		}
		if task.Result.Arguments != nil {
			if c, approval, err = c.changed(approval, task.Result.Arguments); err != nil {
				return err
			}
		}
		if err := r.present(ctx, c); err != nil {
			return err
		}
		d, err := r.reevaluate(ctx, c, approval)
		if err != nil {
			return err
		}
		if d.Decision {
			return r.send(c)
		}
		if !canBeApproved(d) {
			return c.refused(d)
		}
		again, err := r.gate.submit(ctx, c, d)
		if err != nil {
			return err
		}
		c = r.asksAgain(c, func(next *call) {
			next.Arguments, next.Question, next.Envelope, next.Changed = c.Arguments, c.Question, c.Envelope, c.Changed
			next.Task, next.Template, next.Why, next.Delegate = again, d.Context.AccessRequest.Template, why(d, c.Why), ""
		})
		if c == nil {
			return nil
		}
		r.announce(ctx, c)
		task = *again
	}
}

// reevaluate asks about a call with an approval. While the PDP is away it asks again.
func (r *Room) reevaluate(ctx context.Context, c *call, approval *authzen.Approval) (*authzen.Decision, error) {
	for {
		d, err := r.gate.pdp.Reevaluate(ctx, c.Question, approval)
		d, err = r.gate.discharged(ctx, d, err)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !errors.Is(err, errUndecided) {
			return d, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// asksAgain changes how people decide on a waiting call, and returns the call, or nil if it has ended.
func (r *Room) asksAgain(c *call, change func(*call)) *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.current(c)
	if known == nil {
		return nil
	}
	next := *known
	change(&next)
	if r.save(&next) != nil {
		return nil
	}
	return &next
}

// current returns a call as it waits now, or nil if it has ended. The room is locked.
func (r *Room) current(c *call) *call {
	known := r.calls[c.key()]
	if known == nil || known.RequestID != c.RequestID || known.State != waiting {
		return nil
	}
	return known
}

// approval waits until people have approved a task.
func (r *Room) approval(ctx context.Context, c *call, task *authzen.TaskResponse) (*authzen.Approval, error) {
	for {
		approval, err := r.gate.pdp.LookWithin(ctx, task, lookFor)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, client.ErrNotApproved):
			if comment := client.Comment(task); comment != "" {
				return nil, denied(comment)
			}
			return nil, denied("The call was not approved: it is " + string(task.Task.Status))
		case err != nil:
			r.log.Warn("no answer about a task", "task", task.Task.ID, "error", err)
			if err := pause(ctx); err != nil {
				return nil, err
			}
		case approval != nil:
			return approval, nil
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lookAgain):
		return nil
	}
}

// present waits until the owner of a call is in the topic: an approval is used when the call is sent.
func (r *Room) present(ctx context.Context, c *call) error {
	for {
		r.mu.Lock()
		is, joined := r.members[c.Topic][c.Owner] != nil, r.joined
		r.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-joined:
		}
	}
}

// callOf returns the call that a response of its owner answers, or nil if that is not one call.
func (r *Room) callOf(in *received) *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*call
	for key, c := range r.calls {
		if key.topic == in.topic && key.id == string(in.msg.ID) && c.Owner == in.ID && c.State != answered && in.mayBeFor(c.Requester) {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// end answers a call in the owner's stead.
func (r *Room) end(c *call, payload jsontext.Value) {
	r.finish(c, newEnvelope(c.Owner, []string{c.Requester}, kindMCP, payload))
}

// finish keeps the answer of a call until it is delivered.
func (r *Room) finish(c *call, answer *Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.calls[c.key()]
	if known == nil || known.RequestID != c.RequestID || known.State == answered {
		return
	}
	next := *known
	next.State, next.Until, next.Answer, next.Undelivered = answered, time.Now().Add(deliverWithin), answer, slices.Clone(answer.To)
	if r.save(&next) != nil {
		return
	}
	for _, name := range answer.To {
		if m := r.members[c.Topic][name]; m != nil {
			r.deliver(&next, m)
		}
	}
}

// deliverTo sends a member the answers that it has missed. The room is locked.
func (r *Room) deliverTo(m *member) {
	for _, c := range r.calls {
		if c.Topic == m.topic && slices.Contains(c.Undelivered, m.ID) {
			r.deliver(c, m)
		}
	}
}

// deliver sends an answer. The room is locked.
func (r *Room) deliver(c *call, m *member) {
	err := m.send(c.Answer, func() { r.delivered(c, m.ID) })
	if err != nil {
		r.log.Warn("not delivered", "participant", m.ID, "error", err)
	}
}

// delivered forgets a call whose answer everybody has.
func (r *Room) delivered(of *call, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.calls[of.key()]
	if c == nil || c.RequestID != of.RequestID || c.State != answered {
		return // the requester uses the id again
	}
	next := *c
	next.Undelivered = slices.DeleteFunc(slices.Clone(c.Undelivered), func(n string) bool { return n == name })
	if len(next.Undelivered) > 0 {
		r.save(&next)
		return
	}
	r.forget(c)
}

// forget removes a call. The room is locked.
func (r *Room) forget(c *call) {
	if err := r.store.remove(c); err != nil {
		r.log.Error("store", "error", err)
		return
	}
	delete(r.calls, c.key())
}

// expire ends requests that nobody has answered in time.
func (r *Room) expire(now time.Time) {
	var late []*call
	r.mu.Lock()
	for key, a := range r.asks {
		if now.After(a.until) {
			delete(r.asks, key)
		}
	}
	for _, c := range r.calls {
		switch {
		case !now.After(c.Until):
		case c.State == sent:
			late = append(late, c)
		case c.State == answered:
			r.forget(c)
		}
	}
	r.mu.Unlock()
	for _, c := range late {
		r.end(c, encode(&Message{JSONRPC: "2.0", ID: c.ID, Error: encode(&Refusal{Code: codeInternal, Message: c.Owner + " has not answered in time"})}))
	}
}
