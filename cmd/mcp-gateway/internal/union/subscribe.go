package union

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// subscriptions are what a client listens to.
type subscriptions struct {
	Tools     bool     `json:"toolsListChanged,omitzero"`
	Prompts   bool     `json:"promptsListChanged,omitzero"`
	Resources bool     `json:"resourcesListChanged,omitzero"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
	Tasks     []string `json:"taskIds,omitempty"`
}

var errSubscriptions = &enforce.Refusal{Code: wire.CodeParams, Status: http.StatusOK, Message: "the notifications cannot be read", Data: enforce.Data{Reason: enforce.ReasonInvalidMessage}}

// of returns the part of subscriptions that a server gets, with its own names.
func (n subscriptions) of(server string) subscriptions {
	part := subscriptions{Tools: n.Tools, Prompts: n.Prompts, Resources: n.Resources}
	for _, uri := range n.URIs {
		if of, inner, ok := splitURI(uri); ok && of == server {
			part.URIs = append(part.URIs, inner)
		}
	}
	for _, id := range n.Tasks {
		if of, inner, ok := split(id); ok && of == server {
			part.Tasks = append(part.Tasks, inner)
		}
	}
	return part
}

// isEmpty reports whether nothing is listened to.
func (n subscriptions) isEmpty() bool {
	return !n.Tools && !n.Prompts && !n.Resources && len(n.URIs) == 0 && len(n.Tasks) == 0
}

// An ack is the first that a server says to a listener: what it agrees to, or an
// error.
type ack struct {
	server string
	agreed subscriptions
	err    error
}

// A listener is the stream of a client without sessions.
type listener struct {
	h       *Handler
	c       *call
	asked   subscriptions
	answers chan ack      // the first of each server
	begun   chan struct{} // closed when the client has its acknowledgement
}

const methodAck = "notifications/subscriptions/acknowledged"

// feed returns that of a server.
func (l *listener) feed(s *Server) *feed {
	o := outward{l.h, s.Name, l.c.caller}
	f := &feed{h: l.h, c: l.c, s: s}
	var once sync.Once
	first := func(a ack) { once.Do(func() { l.answers <- a }) }
	pass := o.pass(l.c, nil) // nothing can be resumed
	ended := false
	f.connect = func(ctx context.Context) (*response, <-chan struct{}, error) {
		r, err := l.connect(ctx, s)
		if err != nil {
			first(ack{server: s.Name, err: err})
		}
		return r, nil, err
	}
	f.take = func(e *endpoint.Event, m *wire.Message) error {
		if m != nil && m.Method == methodAck {
			of := agreed(m)
			ended = of.isEmpty()
			first(ack{s.Name, of, nil})
			return nil
		}
		if m != nil && m.IsResponse() && ended {
			return errNoFeed
		}
		if m != nil && m.IsResponse() {
			return errEnded // the server ends the subscription, the union does not
		}
		<-l.begun
		return pass(e, m)
	}
	f.announce = func() error {
		<-l.begun
		return l.announce()
	}
	return f
}

func agreed(m *wire.Message) subscriptions {
	var params struct {
		Notifications subscriptions `json:"notifications"`
	}
	if json.Unmarshal(m.Params, &params) != nil {
		return subscriptions{}
	}
	return params.Notifications
}

// connect begins the stream of a server. A server from which nothing is wanted has
// none.
func (l *listener) connect(ctx context.Context, s *Server) (*response, error) {
	part := l.asked.of(s.Name)
	if part.isEmpty() {
		return nil, errNoFeed
	}
	m, err := l.h.inward(s, l.c.caller, l.c.Message, func(members jsonobject.Object) error { return members.Set("notifications", part) })
	if err != nil {
		return nil, err
	}
	r, err := l.h.send(ctx, l.c, s, m)
	if err != nil {
		return nil, err
	}
	if r.status == http.StatusOK && r.isEvents() {
		return r, nil
	}
	answer, err := l.h.result(r)
	if err == nil && answer != nil {
		err = errNoFeed
	}
	return nil, err
}

// acknowledge tells the client what it listens to, once the servers have said what
// they agree to, or the time is over. It returns false if the stream is over: nothing is
// listened to, or all servers refuse, and the client has the error.
func (l *listener) acknowledge(ctx context.Context) bool {
	defer close(l.begun)
	timer := time.NewTimer(l.h.cfg.Wait)
	defer timer.Stop()
	got, refused := subscriptions{Tools: l.asked.Tools, Prompts: l.asked.Prompts, Resources: l.asked.Resources}, 0
	var fault error
	for range l.h.cfg.Servers {
		select {
		case a := <-l.answers:
			if a.err != nil && !isAbsence(a.err) {
				fault, refused = a.err, refused+1
			}
			for _, uri := range a.agreed.URIs {
				got.URIs = append(got.URIs, outerURI(a.server, uri))
			}
			for _, id := range a.agreed.Tasks {
				got.Tasks = append(got.Tasks, outerName(a.server, id))
			}
			continue
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
		break
	}
	if refused == len(l.h.cfg.Servers) {
		l.h.fail(l.c, fault)
		return false
	}
	if l.notify(methodAck, map[string]any{"notifications": got}) != nil {
		return false
	}
	if !l.asked.isEmpty() {
		return true
	}
	result := fmt.Appendf(nil, `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, l.c.Message.ID)
	_ = l.c.out.Message(http.StatusOK, &wire.Message{ID: l.c.Message.ID, Result: result})
	return false
}

// notify sends a notification of the union's own.
func (l *listener) notify(method string, params map[string]any) error {
	params["_meta"] = map[string]jsontext.Value{"io.modelcontextprotocol/subscriptionId": l.c.Message.ID}
	text, err := json.Marshal(params, json.Deterministic(true))
	if err != nil {
		return err
	}
	m := &wire.Message{Method: method, Params: text}
	return l.c.out.Event(&endpoint.Event{Kind: "message", Data: m.Encode()})
}

// announce tells the client that lists may have changed.
func (l *listener) announce() error {
	for name, wanted := range map[string]bool{"tools": l.asked.Tools, "prompts": l.asked.Prompts, "resources": l.asked.Resources} {
		if !wanted {
			continue
		}
		if err := l.notify("notifications/"+name+"/list_changed", map[string]any{}); err != nil {
			return err
		}
	}
	return nil
}
