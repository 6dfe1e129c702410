package union

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A sealedSession is what a client keeps as the id of its session: what a process
// needs to begin the sessions at the servers anew, also after a restart.
type sealedSession struct {
	ID       string         `json:"id"`
	Endpoint string         `json:"endpoint"`
	Tenant   string         `json:"tenant,omitzero"`
	Type     string         `json:"type"` // of the caller
	Caller   string         `json:"caller"`
	Params   jsontext.Value `json:"params"` // of initialize
}

const sealSession = "union session"

// A session is that of a client, over all servers.
type session struct {
	sealedSession
	opening singleflight.Group // by server

	mu    sync.Mutex
	inner map[string]*innerSession // by server
	calls map[string][]*Server     // that are under way, by id
	level jsontext.Value           // params of logging/setLevel with the last level, or nil
	// subscribed are the resources that the client has subscribed to, and
	// subscribedBytes is the size of their URIs.
	subscribed      map[resource]bool
	subscribedBytes int
	greeting        bool // the client has no answer to initialize yet
	used            time.Time
	// missed are the servers that a list has left out since the client was last told
	// of a change.
	missed  map[string]bool
	changed chan struct{}      // closed when a session at a server begins or ends
	stop    context.CancelFunc // of the stream, or nil
	marks   []mark             // the last events of the stream
}

// A resource is one of a server.
type resource struct{ server, uri string }

// An innerSession is one at the endpoint of a server.
type innerSession struct {
	id           string // "" where the server has no sessions
	version      string
	capabilities jsontext.Value
	instructions string // "" once the client has its answer to initialize
}

// mark sets the headers of requests in the session.
func (i *innerSession) mark(header http.Header) {
	if i.id != "" {
		header.Set(endpoint.HeaderSession, i.id)
	}
	if i.version != "" {
		header.Set(endpoint.HeaderVersion, i.version)
	}
}

// sessions are those of clients. What is not here is made anew from the id.
type sessions struct {
	mu    sync.Mutex
	known map[string]*session
	ended map[string]time.Time // by clients
	swept time.Time

	ofCaller, limit int // the most of a caller, and altogether
}

// Bounds of the sessions of a caller, and of all callers. Beyond them, those that
// were used least recently are made anew when they are used again, without their
// subscriptions and the level of log messages.
const (
	maxOfCaller = 1000
	maxSessions = 10_000
)

func newSessions(ofCaller, limit int) *sessions {
	return &sessions{known: make(map[string]*session), ended: make(map[string]time.Time), ofCaller: ofCaller, limit: limit}
}

// How long a session that nobody uses is kept, and how often the sessions are
// looked through.
const (
	sessionIdle   = 30 * time.Minute
	sweepInterval = time.Minute
)

// get returns the session, or nil if the client has ended it.
func (a *sessions) get(sealed sealedSession) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	if _, over := a.ended[sealed.ID]; over {
		return nil
	}
	s := a.known[sealed.ID]
	if s == nil {
		a.makePlace(sealed)
		s = &session{
			sealedSession: sealed, inner: make(map[string]*innerSession), calls: make(map[string][]*Server),
			subscribed: make(map[resource]bool), missed: make(map[string]bool), changed: make(chan struct{}),
		}
		a.known[sealed.ID] = s
	}
	s.mu.Lock()
	s.used = time.Now()
	s.mu.Unlock()
	return s
}

// makePlace forgets the session that was used least recently, of a caller or of all,
// where there is no place for another one. Sessions with a request under way stay:
// each has a connection.
func (a *sessions) makePlace(next sealedSession) {
	if len(a.known) < min(a.ofCaller, a.limit) {
		return
	}
	var own, other leastUsed
	ofCaller := 0
	for id, s := range a.known {
		used, busy := s.lastUse()
		if !busy {
			other.add(id, used)
		}
		if s.isOf(next) {
			ofCaller++
			if !busy {
				own.add(id, used)
			}
		}
	}
	switch {
	case ofCaller >= a.ofCaller:
		delete(a.known, own.id)
	case len(a.known) >= a.limit:
		delete(a.known, other.id)
	}
}

// A leastUsed is the one that was used least recently of those that were added.
type leastUsed struct {
	id string
	at time.Time
}

func (l *leastUsed) add(id string, at time.Time) {
	if l.id == "" || at.Before(l.at) {
		l.id, l.at = id, at
	}
}

// isOf reports whether two sessions are of one caller.
func (s *sealedSession) isOf(other sealedSession) bool {
	return s.Tenant == other.Tenant && s.Type == other.Type && s.Caller == other.Caller
}

// sweep forgets what nobody has used for long.
func (a *sessions) sweep() {
	now := time.Now()
	if now.Sub(a.swept) < sweepInterval {
		return
	}
	a.swept = now
	for id, s := range a.known {
		if used, busy := s.lastUse(); !busy && now.Sub(used) > sessionIdle {
			delete(a.known, id)
		}
	}
	for id, at := range a.ended {
		if now.Sub(at) > sessionIdle {
			delete(a.ended, id)
		}
	}
}

// lastUse returns when the session was last used, and whether it is now.
func (s *session) lastUse() (at time.Time, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, len(s.calls) > 0
}

func (a *sessions) end(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known, id)
	if len(a.ended) >= a.limit {
		a.forgetEnded()
	}
	a.ended[id] = time.Now()
}

// forgetEnded forgets the session that ended first: its client could go on in it.
func (a *sessions) forgetEnded() {
	var first leastUsed
	for id, at := range a.ended {
		first.add(id, at)
	}
	delete(a.ended, first.id)
}

// openSession finds the session of a call of an older version. All but the first
// request are in one.
func (h *Handler) openSession(c *call) *endpoint.Failure {
	if c.Received != nil && (c.Stateless || c.Message.Method == wire.MethodInitialize) {
		return nil
	}
	sealed := c.request.Header.Get(endpoint.HeaderSession)
	var id jsontext.Value
	if c.Received != nil {
		id = c.Message.ID
	}
	if sealed == "" {
		return &endpoint.Failure{Status: http.StatusBadRequest, Fault: &wire.Fault{ID: id, Code: wire.CodeRequest, Reason: "the request is in no session"}}
	}
	var of sealedSession
	err := h.cfg.Seal.Open(sealSession, sealed, &of)
	if err == nil && of.Endpoint == h.cfg.Name && of.Tenant == c.caller.Tenant && of.Type == c.caller.Subject.Type && of.Caller == c.caller.Subject.ID {
		c.session = h.sessions.get(of)
	}
	if c.session == nil {
		return &endpoint.Failure{Status: http.StatusNotFound, Fault: &wire.Fault{ID: id, Code: wire.CodeRequest, Reason: "there is no such session"}}
	}
	return nil
}

// maxParams bounds the params of initialize, in bytes: the client has them in a
// header of each request.
const maxParams = 4 << 10

var errParams = &enforce.Refusal{
	Code: wire.CodeParams, Status: http.StatusOK, Message: fmt.Sprintf("the params of initialize have more than %d bytes", maxParams),
	Data: enforce.Data{Reason: enforce.ReasonInvalidMessage},
}

// newSession begins the session of a client, and gives the client its id.
func (h *Handler) newSession(c *call) error {
	if len(c.Message.Params) > maxParams {
		return errParams
	}
	of := sealedSession{rand.Text(), h.cfg.Name, c.caller.Tenant, c.caller.Subject.Type, c.caller.Subject.ID, c.Message.Params}
	sealed, err := h.cfg.Seal.Seal(sealSession, of)
	if err != nil {
		return err
	}
	c.session = h.sessions.get(of)
	c.session.greet(true)
	c.out.W.Header().Set(endpoint.HeaderSession, sealed)
	return nil
}

// openTimeout bounds how long the beginning of a session at a server may take.
const openTimeout = 30 * time.Second

// A refusedError is the error with which the endpoint of a server answers.
type refusedError struct {
	status int
	answer *wire.Message
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the endpoint of the server answered %d %s", e.status, e.answer.Error)
}

// said returns the code of the error, and the reason code of the gateway, or "".
func (e *refusedError) said() (code int, reason string) {
	var said struct {
		Code int `json:"code"`
		Data struct {
			Reason string `json:"reason_code"`
		} `json:"data"`
	}
	_ = json.Unmarshal(e.answer.Error, &said) // data may be of another form
	return said.Code, said.Data.Reason
}

// isDenial reports whether the gateway has refused the request.
func (e *refusedError) isDenial() bool {
	_, reason := e.said()
	return reason != "" && reason != enforce.ReasonUnavailable
}

// isDenied reports whether the gateway has refused a request.
func isDenied(err error) bool {
	var refused *refusedError
	return errors.As(err, &refused) && refused.isDenial()
}

// isInvalid reports whether a server finds a fault in the params of a request.
func isInvalid(err error) bool {
	var refused *refusedError
	if !errors.As(err, &refused) || refused.isDenial() {
		return false
	}
	code, _ := refused.said()
	return code == wire.CodeParams
}

// isAbsence reports whether the server did not answer.
func isAbsence(err error) bool {
	var refused *refusedError
	if !errors.As(err, &refused) {
		return err != nil
	}
	return refused.status >= http.StatusInternalServerError
}

// open returns the session at a server that belongs to the session of a call, and
// begins it if there is none. Calls that come meanwhile share it.
func (h *Handler) open(ctx context.Context, c *call, s *Server) (*innerSession, error) {
	if known := c.session.at(s); known != nil {
		return known, nil
	}
	begun := c.session.opening.DoChan(s.Name, func() (any, error) {
		if known := c.session.at(s); known != nil {
			return known, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
		defer cancel()
		return h.begin(ctx, c, s)
	})
	select {
	case result := <-begun:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*innerSession), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// begin begins a session at a server.
func (h *Handler) begin(ctx context.Context, c *call, s *Server) (*innerSession, error) {
	answer, header, err := h.ask(ctx, c, s, &innerSession{}, wire.MethodInitialize, c.session.Params)
	if err != nil {
		return nil, err
	}
	var said struct {
		Version      string         `json:"protocolVersion"`
		Capabilities jsontext.Value `json:"capabilities"`
		Instructions string         `json:"instructions"`
	}
	if err := json.Unmarshal(answer.Result, &said); err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	inner := &innerSession{header.Get(endpoint.HeaderSession), said.Version, said.Capabilities, said.Instructions}
	initialized := &wire.Message{Method: wire.MethodInitialized}
	response, err := s.exchange(ctx, c.caller, http.MethodPost, c.header(initialized, inner), initialized.Encode())
	if err != nil {
		return nil, err
	}
	response.close()
	h.absent.learn(s.Name, said.Capabilities)
	h.restore(ctx, c, s, inner)
	c.session.keep(s, inner)
	return inner, nil
}

// restore tells a server what the client said in an earlier session.
func (h *Handler) restore(ctx context.Context, c *call, s *Server, inner *innerSession) {
	level, uris := c.session.wishes(s)
	if level != nil && declares(inner.capabilities, "logging") {
		_, _, _ = h.ask(ctx, c, s, inner, "logging/setLevel", level) // it is refused, or takes effect
	}
	for _, uri := range uris {
		params, err := json.Marshal(map[string]string{"uri": uri})
		if err != nil {
			continue
		}
		if _, _, err := h.ask(ctx, c, s, inner, "resources/subscribe", params); err != nil {
			h.cfg.Log.WarnContext(ctx, "a subscription is lost", "endpoint", h.cfg.Name, "server", s.Name, "error", err)
		}
	}
}

// ask sends a request of the gateway's own in a session at a server, and returns
// the result. The error is a [refusedError] if the endpoint answers with one.
func (h *Handler) ask(ctx context.Context, c *call, s *Server, inner *innerSession, method string, params jsontext.Value) (*wire.Message, http.Header, error) {
	m := &wire.Message{ID: jsontext.Value(`"gw-` + rand.Text() + `"`), Method: method, Params: params}
	header := c.header(m, inner)
	header["Accept"] = []string{endpoint.TypeJSON, endpoint.TypeEvents}
	response, err := s.exchange(ctx, c.caller, http.MethodPost, header, m.Encode())
	if err != nil {
		return nil, nil, err
	}
	answer, err := h.result(response)
	return answer, response.header, err
}

// result reads the response to a request. An error of it is a [refusedError].
func (h *Handler) result(r *response) (*wire.Message, error) {
	answer, err := r.answer(h.cfg.MaxReply)
	if err == nil && answer.Error != nil {
		err = &refusedError{r.status, answer}
	}
	return answer, err
}

// at returns the session at a server, or nil.
func (s *session) at(server *Server) *innerSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inner[server.Name]
}

func (s *session) keep(server *Server, inner *innerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.greeting {
		inner.instructions = ""
	}
	s.inner[server.Name] = inner
	s.change()
}

// greet notes whether the answer to initialize is still to be given. Afterwards
// nobody needs the instructions of the servers.
func (s *session) greet(begins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.greeting = begins
	for _, inner := range s.inner {
		if !begins {
			inner.instructions = ""
		}
	}
}

// change wakes those who wait for a change.
func (s *session) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// changes returns a channel that is closed at the next change.
func (s *session) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// miss notes that a list has left a server out. A nil session notes nothing.
func (s *session) miss(server *Server) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed[server.Name] = true
	s.change()
}

// found reports whether a list has left a server out, and forgets it.
func (s *session) found(server *Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	missed := s.missed[server.Name]
	delete(s.missed, server.Name)
	return missed
}

// streams makes a stream the one of the session. The one before ends.
func (s *session) streams(stop context.CancelFunc) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
	}
	s.stop = stop
	id := "stream " + rand.Text()
	s.calls[id] = nil
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, id)
		s.used = time.Now()
	}
}

// drop forgets a session that the server has lost.
func (s *session) drop(server *Server, lost *innerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inner[server.Name] == lost {
		delete(s.inner, server.Name)
		s.change()
	}
}

// opened lists the servers at which there is a session.
func (s *session) opened(h *Handler) (all []*Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range h.cfg.Servers {
		if s.inner[h.cfg.Servers[i].Name] != nil {
			all = append(all, &h.cfg.Servers[i])
		}
	}
	return all
}

// begin notes which servers answer a request, so that a cancellation finds them,
// until it is done. A nil session notes nothing.
func (s *session) begin(id jsontext.Value, servers ...*Server) (done func()) {
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[string(id)] = servers
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, string(id))
		s.used = time.Now()
	}
}

// serving lists the servers that answer a request.
func (s *session) serving(id jsontext.Value) []*Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls[string(id)])
}

// Bounds of the subscriptions of a session, and of their URIs in bytes: the gateway
// remembers them for servers that lose their sessions.
const (
	maxSubscriptions   = 1000
	maxSubscribedBytes = 128 << 10
)

var errSubscribed = &enforce.Refusal{
	Code: wire.CodeParams, Status: http.StatusOK, Message: fmt.Sprintf("a session may have %d subscriptions, whose URIs have %d bytes: unsubscribe from some", maxSubscriptions, maxSubscribedBytes),
	Data: enforce.Data{Reason: enforce.ReasonInvalidMessage},
}

// subscribe remembers what a request subscribes to, or forgets what it unsubscribes
// from. A subscription that the server refuses is undone. A nil session remembers
// nothing.
func (s *session) subscribe(about target, method string) (undo func(), err error) {
	keep := func() {}
	if s == nil {
		return keep, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := resource{about.server.Name, about.name}
	switch known := s.subscribed[of]; {
	case method == "resources/unsubscribe":
		s.unsubscribe(of)
	case method != "resources/subscribe" || known:
	case len(s.subscribed) >= maxSubscriptions || s.subscribedBytes+len(of.uri) > maxSubscribedBytes:
		return nil, errSubscribed
	default:
		s.subscribed[of] = true
		s.subscribedBytes += len(of.uri)
		return func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.unsubscribe(of)
		}, nil
	}
	return keep, nil
}

func (s *session) unsubscribe(from resource) {
	if s.subscribed[from] {
		delete(s.subscribed, from)
		s.subscribedBytes -= len(from.uri)
	}
}

// wishes returns what a new session at a server has to be told: the level of its
// log messages, and the resources that the client has subscribed to.
func (s *session) wishes(server *Server) (level jsontext.Value, uris []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of := range s.subscribed {
		if of.server == server.Name {
			uris = append(uris, of.uri)
		}
	}
	slices.Sort(uris)
	return s.level, uris
}

// end ends a session, and those at the servers.
func (h *Handler) end(w http.ResponseWriter, c *call) {
	if failed := h.openSession(c); failed != nil {
		http.Error(w, failed.Fault.Reason, failed.Status)
		return
	}
	ctx, cancel := context.WithTimeout(c.request.Context(), h.cfg.Wait)
	defer cancel()
	var ending sync.WaitGroup
	for _, s := range c.session.opened(h) {
		inner := c.session.at(s)
		if inner == nil || inner.id == "" {
			continue
		}
		ending.Go(func() {
			header := make(http.Header)
			inner.mark(header)
			if response, err := s.exchange(ctx, c.caller, http.MethodDelete, header, nil); err == nil {
				response.close()
			}
		})
	}
	ending.Wait()
	h.sessions.end(c.session.ID)
	w.WriteHeader(http.StatusOK)
}
