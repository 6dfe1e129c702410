package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// ours begins the ids of requests of the gateway, which are random: nobody
// guesses one that is another's.
const ours = `"gw-`

func newID() jsontext.Value { return jsontext.Value(ours + rand.Text() + `"`) }

func isOurs(id jsontext.Value) bool { return strings.HasPrefix(string(id), ours) }

// A key names a message of a conversation: the session of the older era, or the
// one conversation that standard input and output are.
type key struct{ conversation, id string }

// pendingRequests are the gateway's own requests that have no response yet.
type pendingRequests struct {
	mu      sync.Mutex
	waiting map[key]chan *wire.Message // of one; nil once the call has ended
}

func newPendingRequests() *pendingRequests {
	return &pendingRequests{waiting: make(map[key]chan *wire.Message)}
}

var errUnreachable = errors.New("the call has ended")

// roundTrip sends a request and waits for its response.
func (a *pendingRequests) roundTrip(ctx context.Context, conversation string, m *wire.Message, send func(*wire.Message) error) (*wire.Message, error) {
	k, answer := key{conversation, string(m.ID)}, make(chan *wire.Message, 1)
	if !a.register(k, answer) {
		return nil, errUnreachable
	}
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.waiting, k)
	}()
	if err := send(m); err != nil {
		return nil, err
	}
	select {
	case response := <-answer:
		if response == nil {
			return nil, errUnreachable
		}
		return response, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (a *pendingRequests) register(k key, answer chan *wire.Message) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		return false
	}
	a.waiting[k] = answer
	return true
}

// close fails all pending requests, and those to come.
func (a *pendingRequests) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, answer := range a.waiting {
		answer <- nil
	}
	a.waiting = nil
}

// deliver hands a response to the request that waits for it, and reports
// whether there is one.
func (a *pendingRequests) deliver(conversation string, response *wire.Message) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := key{conversation, string(response.ID)}
	answer, found := a.waiting[k]
	if found {
		delete(a.waiting, k)
		answer <- response
	}
	return found
}

// elicit asks a client by a request with params.
func (a *pendingRequests) elicit(ctx context.Context, conversation, method string, params any, send func(*wire.Message) error) (*wire.Message, error) {
	text, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	id := newID()
	response, err := a.roundTrip(ctx, conversation, &wire.Message{ID: id, Method: method, Params: text}, send)
	if err != nil && ctx.Err() != nil { // the client need not go on showing it
		params := fmt.Appendf(nil, `{"requestId":%s,"reason":"it has been decided"}`, id)
		return nil, errors.Join(err, send(&wire.Message{Method: wire.MethodCancelled, Params: params}))
	}
	return response, err
}

// deciding are the calls that are being decided, which a cancellation ends.
type deciding struct {
	mu    sync.Mutex
	calls map[key]context.CancelCauseFunc
}

func newDeciding() *deciding { return &deciding{calls: make(map[key]context.CancelCauseFunc)} }

var errCancelled = errors.New("the client has cancelled the call")

// begin returns the context in which a call is decided.
func (d *deciding) begin(ctx context.Context, conversation string, m *wire.Message) (context.Context, func()) {
	if !m.IsRequest() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	k := key{conversation, string(m.ID)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[k] = cancel
	return ctx, func() {
		cancel(nil)
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.calls, k)
	}
}

// cancel ends the decision on the call that a cancellation names.
func (d *deciding) cancel(conversation string, params *wire.Params) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cancel := d.calls[key{conversation, string(params.RequestID)}]; cancel != nil {
		cancel(errCancelled)
	}
}

// A finishCall says what came of a call, and returns what its client gets.
type finishCall = func(context.Context, *wire.Message) *wire.Message

// unanswered are the calls that were sent and whose responses are still due. Over
// HTTP, a response may come on another stream than the first.
type unanswered struct {
	mu    sync.Mutex
	calls map[key]*dueCall
	limit int
}

// A dueCall is a call whose response is due.
type dueCall struct {
	finish finishCall
	expiry *time.Timer // nil while nothing ends the wait
}

func newUnanswered() *unanswered {
	return &unanswered{calls: make(map[key]*dueCall), limit: maxUnanswered}
}

// keep keeps what is to be done with a response. It returns false if there is no
// place left, or if another call of that id waits.
func (u *unanswered) keep(conversation string, id jsontext.Value, finish finishCall) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	k := key{conversation, string(id)}
	if _, taken := u.calls[k]; taken || len(u.calls) >= u.limit {
		return false
	}
	u.calls[k] = &dueCall{finish: finish}
	return true
}

// expire ends the wait for a response after a while, unless it comes.
func (u *unanswered) expire(conversation string, id jsontext.Value, after time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	due := u.calls[key{conversation, string(id)}]
	if due == nil || due.expiry != nil {
		return
	}
	due.expiry = time.AfterFunc(after, func() {
		if finish := u.take(conversation, id); finish != nil {
			finish(context.Background(), nil)
		}
	})
}

// take returns what is to be done with a response, or nil if none is due.
func (u *unanswered) take(conversation string, id jsontext.Value) finishCall {
	u.mu.Lock()
	defer u.mu.Unlock()
	k := key{conversation, string(id)}
	due := u.calls[k]
	if due == nil {
		return nil
	}
	delete(u.calls, k)
	if due.expiry != nil {
		due.expiry.Stop() // it would keep the call in memory
	}
	return due.finish
}

// all takes every call.
func (u *unanswered) all() map[key]finishCall {
	u.mu.Lock()
	defer u.mu.Unlock()
	left := make(map[key]finishCall, len(u.calls))
	for k, due := range u.calls {
		left[k] = due.finish
	}
	clear(u.calls)
	return left
}
