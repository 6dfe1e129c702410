package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A client is that of a call of the older era, on the stream that answers it.
type client struct {
	h *Handler
	c *call
}

// Notify sends a notification on the stream of the call.
func (k *client) Notify(_ context.Context, m *wire.Message) error {
	return k.c.reply.event(&event{kind: "message", data: m.Encode()})
}

var errNoSession = errors.New("the client has no session, in which it could answer")

// Ask sends a request on the stream of the call, and waits for the client to
// post the response.
func (k *client) Ask(ctx context.Context, method string, params any) (*wire.Message, error) {
	if k.c.session == nil {
		return nil, errNoSession
	}
	text, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	id, answer := k.h.asked.expect(k.c)
	defer k.h.asked.forget(id)
	if err := k.c.reply.event(&event{kind: "message", data: (&wire.Message{ID: id, Method: method, Params: text}).Encode()}); err != nil {
		return nil, err
	}
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		params := fmt.Appendf(nil, `{"requestId":%s,"reason":"it has been decided"}`, id)
		_ = k.Notify(ctx, &wire.Message{Method: wire.MethodCancelled, Params: params}) // the client may be gone
		return nil, context.Cause(ctx)
	}
}

// ours begins the ids of requests of the gateway, which are random: a client
// does not guess that of another.
const ours = `"gw-`

// asked are the requests of the gateway that clients have not answered.
type asked struct {
	mu      sync.Mutex
	waiting map[string]question // by id
}

type question struct {
	session session
	answer  chan *wire.Message // of one
}

func newAsked() *asked { return &asked{waiting: make(map[string]question)} }

func (a *asked) expect(c *call) (jsontext.Value, <-chan *wire.Message) {
	id := jsontext.Value(ours + rand.Text() + `"`)
	q := question{*c.session, make(chan *wire.Message, 1)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[idKey(id)] = q
	return id, q.answer
}

func (a *asked) forget(id jsontext.Value) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, idKey(id))
}

func (a *asked) isOurs(id jsontext.Value) bool { return strings.HasPrefix(string(id), ours) }

// answer hands the response to the call that waits for it, if it is of the same
// session and caller.
func (a *asked) answer(c *call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, found := a.waiting[idKey(c.Message.ID)]
	if !found || c.session == nil || c.session.ID != q.session.ID || !q.session.isOf(c.Server, c.Caller) {
		return
	}
	delete(a.waiting, idKey(c.Message.ID))
	q.answer <- c.Message
}

// running are the calls of sessions: those that are being decided, which a
// cancellation ends, and those whose streams broke off before the response,
// which may come on another.
type running struct {
	mu       sync.Mutex
	deciding map[callKey]context.CancelCauseFunc
	parked   map[callKey]func(context.Context, *wire.Message) *wire.Message
}

type callKey struct{ session, id string }

func newRunning() *running {
	return &running{deciding: make(map[callKey]context.CancelCauseFunc), parked: make(map[callKey]func(context.Context, *wire.Message) *wire.Message)}
}

// maxParked bounds the calls whose streams broke off.
const maxParked = 1000

var errCancelled = errors.New("the client has cancelled the call")

// begin returns the context in which a call is decided, which a cancellation by
// the client ends.
func (r *running) begin(ctx context.Context, c *call) (context.Context, func()) {
	if c.session == nil {
		return ctx, func() {}
	}
	if c.Message.Method == wire.MethodCancelled {
		r.cancel(callKey{c.session.ID, idKey(c.Params.RequestID)})
	}
	if !c.Message.IsRequest() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	key := callKey{c.session.ID, idKey(c.Message.ID)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deciding[key] = cancel
	return ctx, func() {
		cancel(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.deciding, key)
	}
}

func (r *running) cancel(key callKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.deciding[key]; cancel != nil {
		cancel(errCancelled)
	}
}

// park keeps what is to be done with a response that has not come, or says that
// there is no place for it.
func (r *running) park(c *call, v *enforce.Verdict) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.parked) == maxParked {
		return false
	}
	r.parked[callKey{c.session.ID, idKey(c.Message.ID)}] = v.Settle
	return true
}

// resume returns what is to be done with a response, or nil where none is due.
func (r *running) resume(c *call, id jsontext.Value) func(context.Context, *wire.Message) *wire.Message {
	if c.session == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := callKey{c.session.ID, idKey(id)}
	settle := r.parked[key]
	delete(r.parked, key)
	return settle
}
