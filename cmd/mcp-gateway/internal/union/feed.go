package union

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A feed is what one server says of its own accord, on the stream of a client.
type feed struct {
	h *Handler
	c *call
	s *Server
	// connect begins the server's stream. It returns nil where there is none now,
	// and errNoFeed where there will be none before changed is closed.
	connect func(context.Context) (r *response, changed <-chan struct{}, err error)
	// take passes on an event.
	take func(*endpoint.Event, *wire.Message) error
	// announce tells the client that the server's lists have changed.
	announce func() error
	missed   bool // the client may lack what the server has
	pause    time.Duration
}

// The pause before a stream that has ended is begun again doubles from the shortest
// to the longest, while streams end early.
const (
	minReconnect = time.Second
	maxReconnect = 30 * time.Second
)

// maxTries bounds the attempts to begin the stream of a session at a time.
const maxTries = 3

var errNoFeed = errors.New("the server has no stream")

// run passes on the stream of the server, and begins it again when it has ended,
// until ctx ends.
func (f *feed) run(ctx context.Context) {
	for f.h.absent.wait(ctx, f.s.Name) {
		response, changed, err := f.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		absent := err != nil && !errors.Is(err, errNoFeed) && isAbsence(err)
		if !absent {
			f.h.absent.note(f.s.Name)
		}
		switch {
		case absent:
			f.h.absent.miss(f.s.Name, false)
			f.missed = true
		case err != nil:
			f.idle(ctx, changed)
		default:
			f.pass(ctx, response)
		}
	}
}

// idle waits for a change, or until the server does not answer.
func (f *feed) idle(ctx context.Context, changed <-chan struct{}) {
	if f.tell() != nil {
		return
	}
	begun := time.Now()
	select {
	case <-changed:
	case <-f.h.absent.left(f.s.Name):
		f.missed = true
		f.rest(ctx, begun)
	case <-ctx.Done():
	}
}

// pass passes on a stream until it ends, or the server does not answer another
// request.
func (f *feed) pass(ctx context.Context, r *response) {
	defer r.close()
	if f.tell() != nil {
		return
	}
	begun := time.Now()
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-f.h.absent.left(f.s.Name):
			r.close()
		case <-ended:
		}
	})
	err := r.events(f.h.cfg.MaxReply, f.take)
	close(ended)
	watching.Wait()
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, errNoFeed):
		f.idle(ctx, nil)
		return
	case err != nil:
		f.missed = true
		f.h.cfg.Log.WarnContext(ctx, "the stream of a server ends", "endpoint", f.h.cfg.Name, "server", f.s.Name, "error", err)
	}
	f.rest(ctx, begun)
}

// rest waits before a stream that began then is begun again.
func (f *feed) rest(ctx context.Context, begun time.Time) {
	f.pause = min(max(2*f.pause, minReconnect), maxReconnect)
	if time.Since(begun) > maxReconnect {
		f.pause = minReconnect
	}
	pause := time.NewTimer(f.pause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

// tell tells a client that misses the server that it is back.
func (f *feed) tell() error {
	if f.c.session != nil {
		f.missed = f.c.session.found(f.s) || f.missed
	}
	if !f.missed {
		return nil
	}
	f.missed = false
	return f.announce()
}

// listen passes on what the servers say in a session. A stream that is resumed
// takes the place of the one before.
func (h *Handler) listen(w http.ResponseWriter, c *call) {
	if failed := h.openSession(c); failed != nil {
		http.Error(w, failed.Fault.Reason, failed.Status)
		return
	}
	after, server, event, session, ok := splitEvent(c.request.Header.Get(endpoint.HeaderLast))
	s := h.server(server)
	switch {
	case ok && s == nil:
		http.Error(w, "there is no such event", http.StatusBadRequest)
	case ok && !after:
		h.resume(w, c, s, event, session)
	default:
		h.feedSession(c, c.session.marked(c.request.Header.Get(endpoint.HeaderLast), server, event))
	}
}

// feedSession passes on the streams of all sessions at servers. Last has, by server,
// the event that the client had last.
func (h *Handler) feedSession(c *call, last map[string]string) {
	ctx, cancel := context.WithCancel(c.request.Context())
	defer cancel()
	done := c.session.streams(cancel)
	defer done()
	c.out.Start()
	stop := c.out.KeepAlive(ctx)
	defer stop()
	var feeding sync.WaitGroup
	for _, s := range h.all() {
		f := &feed{h: h, c: c, s: s}
		at := last[s.Name]
		f.connect = func(ctx context.Context) (*response, <-chan struct{}, error) { return f.connectSession(ctx, at) }
		o := outward{h, s.Name, c.caller}
		f.take = o.pass(c, func(id string) string {
			at = id
			return c.session.mark(s.Name, id)
		})
		f.announce = func() error { return h.announce(c, s) }
		feeding.Go(func() { f.run(ctx) })
	}
	feeding.Wait()
}

// connectSession begins the stream of the session at the server, after the event
// last. If the server has lost the session, it begins another one; if there is no
// such event, it begins at the end.
func (f *feed) connectSession(ctx context.Context, last string) (*response, <-chan struct{}, error) {
	for try := 1; ; try++ {
		changed := f.c.session.changes()
		inner, err := f.h.open(ctx, f.c, f.s)
		if err != nil {
			return nil, changed, err
		}
		header := http.Header{"Accept": {endpoint.TypeEvents}}
		inner.mark(header)
		if last != "" {
			header.Set(endpoint.HeaderLast, last)
		}
		r, err := f.s.exchange(ctx, f.c.caller, http.MethodGet, header, nil)
		switch {
		case err != nil:
			return nil, nil, err
		case r.status == http.StatusOK && r.isEvents():
			return r, nil, nil
		}
		r.close()
		switch {
		case r.status == http.StatusNotFound && inner.id != "" && try < maxTries:
			f.missed, last = true, ""
			f.c.session.drop(f.s, inner)
		case r.status == http.StatusBadRequest && last != "" && try < maxTries:
			f.missed, last = true, ""
		case r.status >= http.StatusInternalServerError:
			return nil, nil, &refusedError{r.status, wire.Refuse(nil, wire.CodeInternal, "there is no stream", nil)}
		default:
			return nil, f.c.session.changes(), errNoFeed
		}
	}
}

// announce tells a client that the lists of a server may have changed.
func (h *Handler) announce(c *call, s *Server) error {
	inner := c.session.at(s)
	if inner == nil {
		return nil
	}
	for _, name := range listed {
		if !declares(inner.capabilities, name) {
			continue
		}
		m := &wire.Message{Method: "notifications/" + name + "/list_changed"}
		if err := c.out.Event(&endpoint.Event{Kind: "message", Data: m.Encode()}); err != nil {
			return err
		}
	}
	return nil
}

// subscribe passes on what the servers say to a client without sessions (MCP
// 2026-07-28, "Subscriptions").
func (h *Handler) subscribe(c *call) {
	var asked struct {
		Notifications subscriptions `json:"notifications"`
	}
	if err := json.Unmarshal(c.Message.Params, &asked); err != nil {
		h.refuse(c, errSubscriptions)
		return
	}
	ctx, cancel := context.WithCancel(c.request.Context())
	defer cancel()
	l := &listener{h: h, c: c, asked: asked.Notifications, begun: make(chan struct{}), answers: make(chan ack, len(h.cfg.Servers))}
	var feeding sync.WaitGroup
	for _, s := range h.all() {
		feeding.Go(func() { l.feed(s).run(ctx) })
	}
	if l.acknowledge(ctx) && !l.asked.isEmpty() {
		stop := c.out.KeepAlive(ctx)
		feeding.Wait()
		stop()
		return
	}
	cancel()
	feeding.Wait()
}
