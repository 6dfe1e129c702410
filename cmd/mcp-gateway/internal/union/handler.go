package union

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A Config says which servers a Handler unites.
type Config struct {
	Name    string // of the endpoint, for the log and the audit trail
	Front   *endpoint.Front
	Servers []Server // in the order of lists; [CheckName] permits their names
	Seal    *seal.Key
	// Refuse answers a call that no server gets, and records it; the gate does.
	Refuse func(context.Context, *enforce.Call, *enforce.Refusal) *enforce.Disposition
	// ToolNames lists the known tools of a server, for names that are too long.
	ToolNames func(server string) []string
	// Conceal: a tool of a server that its caller may not use is answered like one
	// that there is not.
	Conceal bool
	// Access answers what callers ask about their capabilities. Nil answers nothing.
	Access Access
	// OffersAccess reports whether the endpoint has the gateway's own tools. Nil
	// reports false.
	OffersAccess func() bool
	// Wait is how long lists and the beginning of a session wait for a server. 0 is
	// 3 seconds.
	Wait time.Duration
	// MaxReply bounds a message of a server, in bytes. 0 is 16 MiB.
	MaxReply int64
	Log      *slog.Logger
}

// Defaults of a Config. What the endpoint of a server passes on may be a little
// longer than what the server sent.
const (
	defaultWait = 3 * time.Second
	replyMargin = 1 << 20
)

// A Handler is the MCP endpoint of several servers.
type Handler struct {
	cfg      Config
	sessions *sessions
	absent   *absences
}

// New returns a Handler.
func New(cfg Config) *Handler {
	cfg.Wait = cmp.Or(cfg.Wait, defaultWait)
	cfg.MaxReply = cmp.Or(cfg.MaxReply, endpoint.MaxReply) + replyMargin
	return &Handler{cfg: cfg, sessions: newSessions(maxOfCaller, maxSessions), absent: newAbsences()}
}

// A call is a request of a client over HTTP.
type call struct {
	caller  *enforce.Caller
	request *http.Request
	out     *endpoint.Reply
	session *session // nil in the version without sessions

	*endpoint.Received // nil without a message
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller := h.cfg.Front.Admit(w, r)
	if caller == nil {
		return
	}
	r = h.withAccess(r)
	c := &call{caller: caller, request: r, out: &endpoint.Reply{
		W: w, Streams: endpoint.Accepts(r, endpoint.TypeEvents), InSession: r.Header.Get(endpoint.HeaderSession) != "",
	}}
	switch r.Method {
	case http.MethodPost:
		h.post(w, c)
	case http.MethodGet:
		h.listen(w, c)
	case http.MethodDelete:
		h.end(w, c)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "an MCP endpoint takes POST", http.StatusMethodNotAllowed)
	}
}

func (h *Handler) post(w http.ResponseWriter, c *call) {
	var failed *endpoint.Failure
	if c.Received, failed = h.cfg.Front.Read(w, c.request); failed == nil {
		failed = h.openSession(c)
	}
	switch {
	case failed != nil:
		failed.Answer(c.out)
	case c.Message.IsResponse():
		h.respond(w, c)
	case !c.Message.IsRequest():
		h.notify(w, c)
	default:
		h.answer(c)
	}
}

// answer answers a request.
func (h *Handler) answer(c *call) {
	if err := h.rewrite(c); err != nil {
		h.fail(c, err)
		return
	}
	switch method := c.Message.Method; {
	case c.Stateless && wire.IsRemoved(method):
		h.refuse(c, unknownMethod(c))
	case h.answerAccess(c):
	case method == wire.MethodInitialize:
		h.initialize(c)
	case method == wire.MethodDiscover:
		h.discover(c)
	case method == "ping":
		_ = c.out.Message(http.StatusOK, &wire.Message{ID: c.Message.ID, Result: jsontext.Value("{}")})
	case isMerged(method):
		h.list(c)
	case method == "subscriptions/listen":
		h.subscribe(c)
	case method == "logging/setLevel":
		h.setLevel(c)
	case isAbout(method):
		h.call(c)
	default:
		h.refuse(c, unknownMethod(c))
	}
}

// isAbout reports whether requests of a method name what they are about, and so
// their server.
func isAbout(method string) bool {
	switch method {
	case wire.MethodToolsCall, wire.MethodToolsRequest, wire.MethodPromptsGet, wire.MethodResourceRead, "resources/subscribe", "resources/unsubscribe",
		"completion/complete", "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return true
	}
	return false
}

// call sends a request to the server that it is about.
func (h *Handler) call(c *call) {
	about, ok := h.find(c.Message, c.Params)
	if !ok {
		h.refuse(c, unknown(c.Message.Method))
		return
	}
	m, err := h.inward(about.server, c.caller, c.Message, rename(c.Message, c.Params, about.name))
	if err != nil {
		h.fail(c, err)
		return
	}
	undo, err := c.session.subscribe(about, c.Message.Method)
	if err != nil {
		h.fail(c, err)
		return
	}
	done := c.session.begin(c.Message.ID, about.server)
	defer done()
	response, err := h.send(c.request.Context(), c, about.server, m)
	if err != nil {
		undo()
		h.fail(c, err)
		return
	}
	defer response.close()
	if !h.relay(c, about.server, response, response.session) {
		undo()
	}
}

// relay gives the client what the endpoint of a server answers, in a session at the
// server, if any. It reports whether there was a result.
func (h *Handler) relay(c *call, s *Server, response *response, session string) (succeeded bool) {
	o := outward{h, s.Name, c.caller}
	switch kind := response.kind(); kind {
	case endpoint.TypeEvents:
		c.out.Start()
		pass := o.pass(c, func(id string) string { return eventOf(s.Name, id, session) })
		if err := response.events(h.cfg.MaxReply, func(e *endpoint.Event, m *wire.Message) error {
			succeeded = succeeded || m != nil && m.Result != nil
			return pass(e, m)
		}); err != nil && c.request.Context().Err() == nil {
			h.cfg.Log.WarnContext(c.request.Context(), "the stream of a call ends", "endpoint", h.cfg.Name, "server", s.Name, "error", err)
		}
	case endpoint.TypeJSON:
		m, err := response.message(h.cfg.MaxReply)
		if err == nil {
			m, err = o.message(m)
		}
		if err != nil {
			h.fail(c, err)
			return false
		}
		succeeded = m.Result != nil
		if m.ID == nil && c.Received != nil {
			m.ID = c.Message.ID // an error of the session that the server has lost again
		}
		_ = c.out.Message(c.status(response.status), m)
	default:
		c.out.W.WriteHeader(response.status)
	}
	return succeeded
}

// status returns the HTTP status of a message with which the endpoint of a server
// answers. That a server has failed, or does not know its session, is not to look as
// if the union had.
func (c *call) status(of int) int {
	if of >= http.StatusInternalServerError || c.session != nil && of != http.StatusForbidden {
		return http.StatusOK
	}
	return of
}

// pass returns a function that gives the client an event of a server's stream, with
// another id. Without a function for ids, events have none.
func (o outward) pass(c *call, id func(string) string) func(*endpoint.Event, *wire.Message) error {
	return func(e *endpoint.Event, m *wire.Message) error {
		if m != nil {
			out, err := o.message(m)
			if err != nil || out == nil {
				return err
			}
			e.Data = out.Encode()
		}
		if e.HasID = e.HasID && e.ID != "" && id != nil; e.HasID {
			e.ID = id(e.ID)
		}
		return c.out.Event(e)
	}
}

// respond takes the response of a client to the request of a server.
func (h *Handler) respond(w http.ResponseWriter, c *call) {
	server, id, ok := splitID(c.Message.ID)
	s := h.server(server)
	if !ok || s == nil || c.session == nil {
		(&endpoint.Failure{Status: http.StatusBadRequest, Fault: &wire.Fault{ID: c.Message.ID, Code: wire.CodeRequest, Reason: "no request has this id"}}).Answer(c.out)
		return
	}
	m := *c.Message
	m.ID = id
	h.pass(w, c, s, &m)
}

// notify sends a notification to the servers that it is for.
func (h *Handler) notify(w http.ResponseWriter, c *call) {
	switch {
	case c.session == nil, c.Message.Method == wire.MethodInitialized:
		w.WriteHeader(http.StatusAccepted)
	case c.Message.Method == wire.MethodCancelled:
		h.tell(w, c, c.session.serving(c.Params.RequestID), c.Message)
	case c.Message.Method == wire.MethodProgress:
		h.reportProgress(w, c)
	case c.Params.TaskID != "":
		h.notifyTask(w, c)
	default:
		h.tell(w, c, c.session.opened(h), c.Message)
	}
}

// tell sends a notification to servers.
func (h *Handler) tell(w http.ResponseWriter, c *call, to []*Server, m *wire.Message) {
	for _, s := range to {
		in, err := h.inward(s, c.caller, m, nil)
		if err != nil {
			continue // it is about what the server does not have
		}
		response, err := h.send(c.request.Context(), c, s, in)
		if err != nil {
			h.cfg.Log.WarnContext(c.request.Context(), "a notification has not arrived", "endpoint", h.cfg.Name, "server", s.Name, "method", m.Method, "error", err)
			continue
		}
		response.close()
	}
	w.WriteHeader(http.StatusAccepted)
}

// pass sends a message that is no request, and passes on the status.
func (h *Handler) pass(w http.ResponseWriter, c *call, s *Server, m *wire.Message) {
	response, err := h.send(c.request.Context(), c, s, m)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer response.close()
	h.relay(c, s, response, response.session)
}

// send sends a message to the endpoint of a server, in the session of a call.
func (h *Handler) send(ctx context.Context, c *call, s *Server, m *wire.Message) (*response, error) {
	if c.session == nil {
		return s.exchange(ctx, c.caller, http.MethodPost, c.header(m, nil), m.Encode())
	}
	for again := true; ; again = false {
		inner, err := h.open(ctx, c, s)
		if err != nil {
			return nil, err
		}
		response, err := s.exchange(ctx, c.caller, http.MethodPost, c.header(m, inner), m.Encode())
		if err == nil {
			response.session = inner.id
		}
		if err != nil || !again || !m.IsRequest() || response.status != http.StatusNotFound || inner.id == "" {
			return response, err
		}
		response.close() // the server has lost the session, and has not carried the request out
		c.session.drop(s, inner)
	}
}

// header returns the headers of a message to the endpoint of a server.
func (c *call) header(m *wire.Message, inner *innerSession) http.Header {
	header := http.Header{"Content-Type": {endpoint.TypeJSON}, "Accept": c.request.Header["Accept"]}
	if trace := c.request.Header["Traceparent"]; trace != nil {
		header["Traceparent"] = trace
	}
	if inner != nil {
		inner.mark(header)
		return header
	}
	header.Set(endpoint.HeaderVersion, c.request.Header.Get(endpoint.HeaderVersion))
	if !m.IsRequest() {
		return header
	}
	header.Set(endpoint.HeaderMethod, m.Method)
	for name, values := range c.request.Header {
		if strings.HasPrefix(name, endpoint.PrefixParam) {
			header[name] = values
		}
	}
	if params, err := m.Read(); err == nil {
		if target, named := params.Target(m.Method); named {
			header.Set(endpoint.HeaderName, wire.HeaderText(target))
		}
	}
	return header
}

// unknown refuses a call about what no server of the endpoint has.
func unknown(method string) *enforce.Refusal {
	switch {
	case method == wire.MethodToolsCall, method == wire.MethodToolsRequest:
		return enforce.NoSuchTool()
	case strings.HasPrefix(method, "tasks/"):
		return enforce.NoSuchTask()
	}
	what := "the resource"
	if method == wire.MethodPromptsGet {
		what = "the prompt"
	}
	return &enforce.Refusal{Code: wire.CodeParams, Status: http.StatusOK, Message: what + " is not known", Data: enforce.Data{Reason: enforce.ReasonInvalidMessage}}
}

func unknownMethod(c *call) *enforce.Refusal {
	status := http.StatusOK
	if c.Stateless {
		status = http.StatusNotFound
	}
	return &enforce.Refusal{Code: wire.CodeMethod, Status: status, Message: enforce.ErrUnknownMethod.Error(), Data: enforce.Data{Reason: enforce.ReasonUnknownMethod}}
}

// refuse answers a request that no server gets.
func (h *Handler) refuse(c *call, refusal *enforce.Refusal) {
	v := h.cfg.Refuse(c.request.Context(), h.asCall(c), refusal)
	_ = c.out.Message(v.Status, v.Answer)
}

// fail answers a request for which a server did not answer.
func (h *Handler) fail(c *call, err error) {
	var refusal *enforce.Refusal
	var refused *refusedError
	switch {
	case errors.As(err, &refusal):
		h.refuse(c, refusal)
	case errors.As(err, &refused) && h.cfg.Conceal && c.Message.Method == wire.MethodToolsCall && refused.isDenial():
		h.refuse(c, enforce.NoSuchTool())
	case errors.As(err, &refused):
		answer := *refused.answer
		answer.ID = c.Message.ID
		_ = c.out.Message(c.status(refused.status), &answer)
	default:
		h.cfg.Log.WarnContext(c.request.Context(), "the server did not answer", "endpoint", h.cfg.Name, "method", c.Message.Method, "error", err)
		_ = c.out.Message(http.StatusOK, wire.Refuse(c.Message.ID, wire.CodeInternal, "the server did not answer", enforce.Data{Reason: enforce.ReasonUnavailable}))
	}
}
