package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A Config says between whom a Handler stands.
type Config struct {
	Server string // name of the upstream
	URL    string // of its MCP endpoint
	// Header are the gateway's own credentials at the upstream.
	Header map[string]string
	// Bearer, if not nil, returns the gateway's token at the upstream for each
	// request, because the token may change.
	Bearer  func() string
	Gate    *enforce.Gate
	Callers Callers
	// FromServer filters what the server sends of its own accord. Nil passes all.
	FromServer ServerMessages
	Seal       *seal.Key
	// Hosts are the values of the Host header that are answered, Origins those of
	// Origin beside none: a page that a browser shows must not get here by
	// rebinding a name.
	Hosts, Origins []string
	// MaxBody bounds a message of a client, MaxReply one of the server, in bytes.
	// 0 is 4 MiB and 16 MiB.
	MaxBody, MaxReply int64
	// Resume is how long the gateway waits for a client to resume the stream of a
	// call. 0 is 10 minutes.
	Resume time.Duration
	Log    *slog.Logger
}

// Callers identifies the senders of requests.
type Callers interface {
	// Identify returns the verified sender of a request.
	Identify(*http.Request) (*enforce.Caller, error)
	// Refuse answers a request whose sender is not identified, with the error of
	// Identify.
	Refuse(http.ResponseWriter, error)
}

// ServerMessages filters the messages that a server sends of its own accord. Its
// methods must not block.
type ServerMessages interface {
	// AllowsNotification reports whether the client gets a notification, which
	// came on the stream of a call; on standard output, after the client's last
	// call.
	AllowsNotification(*enforce.Call, *wire.Message) bool
	// AllowsRequest reports whether the client gets a request.
	AllowsRequest(method string, params jsontext.Value) bool
}

// A Handler is the MCP endpoint of one upstream.
type Handler struct {
	cfg      Config
	upstream *http.Client
	requests *pendingRequests
	deciding *deciding
	broken   *unanswered // calls whose streams the client may resume
}

// New returns a Handler.
func New(cfg Config) *Handler {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = maxBody
	}
	if cfg.MaxReply == 0 {
		cfg.MaxReply = maxReply
	}
	cfg.Resume = cmp.Or(cfg.Resume, resumeTimeout)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression, transport.MaxIdleConnsPerHost = true, 100
	return &Handler{
		cfg: cfg, requests: newPendingRequests(), deciding: newDeciding(), broken: &unanswered{calls: make(map[key]finishCall), limit: maxUnanswered},
		upstream: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Bounds, where a configuration has none: of a message of a client and of a
// server, in bytes, and of the calls whose responses are still due.
const (
	maxBody       = 4 << 20
	maxReply      = 16 << 20
	maxUnanswered = 1000
)

// A failure is an answer that no gate was asked about.
type failure struct {
	status int
	fault  *wire.Fault
}

// A call is one that came over HTTP.
type call struct {
	*enforce.Call
	request *http.Request
	session *session // nil in the stateless era, or where there is none
	reply   *reply
	// Of a stream that can be resumed: the call whose response it carries, or nil,
	// and the server's id of its last event, or "".
	sent      *sentCall
	lastEvent string
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if !h.isAllowedHost(r) {
		http.Error(w, "this host or origin is not served", http.StatusForbidden)
		return
	}
	if h.allowOrigin(w, r) {
		return
	}
	caller, err := h.cfg.Callers.Identify(r)
	if err != nil {
		h.cfg.Log.WarnContext(r.Context(), "refused a caller that is not authenticated", "server", h.cfg.Server, "error", err)
		h.cfg.Callers.Refuse(w, err)
		return
	}
	switch r.Method {
	case http.MethodPost:
		h.post(w, r, caller)
	case http.MethodGet, http.MethodDelete:
		h.session(w, r, caller)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "an MCP endpoint takes POST", http.StatusMethodNotAllowed)
	}
}

// isAllowedHost reports whether the request addresses this host and comes from
// no page of another origin.
func (h *Handler) isAllowedHost(r *http.Request) bool {
	if !slices.Contains(h.cfg.Hosts, strings.ToLower(r.Host)) {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(h.cfg.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, r.Host)
}

// allowOrigin sets the CORS headers for the configured origins, and reports
// whether it has answered a preflight request (WHATWG Fetch, "CORS protocol").
func (h *Handler) allowOrigin(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if !slices.Contains(h.cfg.Origins, origin) {
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Add("Vary", "Origin")
	w.Header().Set("Access-Control-Expose-Headers", headerSession+", WWW-Authenticate")
	if r.Method != http.MethodOptions {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	w.WriteHeader(http.StatusNoContent)
	return true
}

func (h *Handler) post(w http.ResponseWriter, r *http.Request, caller *enforce.Caller) {
	out := &reply{w: w, streams: accepts(r, typeEvents)}
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(bodyTimeout)) // a test's writer has none
	c, failed := h.read(r, caller)
	_ = deadline.SetReadDeadline(time.Time{})
	if failed != nil {
		_ = out.message(failed.status, wire.Refuse(failed.fault.ID, failed.fault.Code, failed.fault.Reason, enforce.Data{Reason: enforce.ReasonInvalidMessage}))
		return
	}
	c.reply = out
	if c.Message.IsResponse() {
		h.respond(w, c)
		return
	}
	c.setUpstream(h)
	ctx, done := h.begin(c)
	defer done()
	if out.streams && !c.Stateless && c.Message.IsRequest() {
		c.Client = &client{h, c}
	}
	disposition := h.cfg.Gate.Judge(ctx, c.Call)
	switch {
	case disposition.Forward != nil:
		h.forward(c, disposition)
	case disposition.Answer != nil:
		_ = out.message(disposition.Status, disposition.Answer)
	default:
		w.WriteHeader(disposition.Status)
	}
}

// setUpstream makes c.Upstream send requests in the session of the call.
func (c *call) setUpstream(h *Handler) {
	c.Upstream = func(ctx context.Context, m *wire.Message) (*wire.Message, error) { return h.execute(ctx, m, c) }
}

// begin returns the context in which a call is decided: within a session, the
// client may cancel it.
func (h *Handler) begin(c *call) (context.Context, func()) {
	if c.session == nil {
		return c.request.Context(), func() {}
	}
	if c.Message.Method == wire.MethodCancelled {
		h.deciding.cancel(c.session.ID, c.Params)
	}
	return h.deciding.begin(c.request.Context(), c.session.ID, c.Message)
}

// read reads a message and holds the headers against it.
func (h *Handler) read(r *http.Request, caller *enforce.Caller) (*call, *failure) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != typeJSON {
		return nil, &failure{http.StatusUnsupportedMediaType, &wire.Fault{Code: wire.CodeRequest, Reason: "the body is not application/json"}}
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, &failure{http.StatusUnsupportedMediaType, &wire.Fault{Code: wire.CodeRequest, Reason: "the body is encoded"}}
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, h.cfg.MaxBody))
	if err != nil {
		return nil, &failure{http.StatusRequestEntityTooLarge, &wire.Fault{Code: wire.CodeRequest, Reason: "the body cannot be read, or is too large"}}
	}
	m, err := wire.Parse(body)
	if err != nil {
		return nil, unreadable(err)
	}
	params, err := m.Read()
	if err != nil {
		return nil, unreadable(err)
	}
	c := &call{request: r, Call: &enforce.Call{
		Server: h.cfg.Server, Caller: caller, Message: m, Params: params, RequestID: uuid.NewString(),
		TraceParent: enforce.TraceParent(params.Meta.TraceParent, r.Header.Get("Traceparent")),
	}}
	if c.Stateless = params.Meta.ProtocolVersion != "" || r.Header.Get(headerVersion) >= wire.Stateless; c.Stateless {
		c.Capabilities = params.Meta.Capabilities
		if m.IsRequest() && params.Meta.ProtocolVersion == "" {
			return nil, &failure{http.StatusBadRequest, &wire.Fault{Code: wire.CodeParams, ID: m.ID, Reason: "_meta does not say the version of the protocol"}}
		}
		c.CheckTool = c.checkMirrors
		if fault := c.checkHeaders(); fault != "" {
			return nil, &failure{http.StatusBadRequest, &wire.Fault{Code: wire.CodeHeaderMismatch, ID: m.ID, Reason: fault}}
		}
		return c, nil
	}
	var failed *failure
	if c.session, failed = h.openSession(r, caller); failed != nil {
		failed.fault.ID = m.ID
		return nil, failed
	}
	if c.session != nil {
		c.Capabilities = c.session.Capabilities
	}
	return c, nil
}

func unreadable(err error) *failure {
	fault := new(wire.Fault)
	errors.As(err, &fault)
	return &failure{http.StatusBadRequest, fault}
}

// checkHeaders says where the headers of a stateless message are not what its
// body says, or "" (MCP 2026-07-28, "Server Validation").
func (c *call) checkHeaders() string {
	if !c.Message.IsRequest() {
		return "" // the protocol defines none
	}
	target, named := c.Params.Target(c.Message.Method)
	for _, header := range []struct {
		name, want string
		required   bool
	}{
		{headerVersion, c.Params.Meta.ProtocolVersion, true},
		{headerMethod, c.Message.Method, true},
		{headerName, target, named},
	} {
		sent := c.request.Header.Values(header.name)
		if len(sent) == 0 && !header.required {
			continue
		}
		if len(sent) != 1 {
			return "there is not one header " + header.name
		}
		if text, ok := wire.TextOfHeader(sent[0]); !ok || header.required && text != header.want {
			return "the header " + header.name + " is not what the body says"
		}
	}
	return ""
}

// checkMirrors refuses a call whose headers are not what its arguments say.
func (c *call) checkMirrors(tool *enforce.Tool) error {
	mirrors, err := wire.Mirrors(tool.Definition, c.Params.Arguments)
	if err != nil {
		return err
	}
	for _, m := range mirrors {
		sent := c.request.Header.Values(prefixParam + m.Name)
		if len(sent) == 0 && !m.Present || len(sent) == 1 && m.Same(sent[0]) {
			continue
		}
		return &enforce.Refusal{
			Code: wire.CodeHeaderMismatch, Status: http.StatusBadRequest, Message: "the header " + prefixParam + m.Name + " is not what the arguments say",
			Data: enforce.Data{Reason: enforce.ReasonInvalidMessage},
		}
	}
	return nil
}

// respond takes a client's response to a request of the gateway or the server,
// which only the older era has.
func (h *Handler) respond(w http.ResponseWriter, c *call) {
	if c.Stateless {
		_ = c.reply.message(http.StatusBadRequest, wire.Refuse(c.Message.ID, wire.CodeRequest, "clients of this protocol version must not send responses", enforce.Data{Reason: enforce.ReasonInvalidMessage}))
		return
	}
	if isOurs(c.Message.ID) {
		if c.session != nil {
			h.requests.deliver(c.session.ID, c.Message)
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	h.forward(c, &enforce.Disposition{Forward: c.Message, Finish: func(_ context.Context, m *wire.Message) *wire.Message { return m }})
}

// session passes on the stream of a session, or its end.
func (h *Handler) session(w http.ResponseWriter, r *http.Request, caller *enforce.Caller) {
	s, failed := h.openSession(r, caller)
	if failed != nil {
		http.Error(w, failed.fault.Reason, failed.status)
		return
	}
	c := &call{Call: &enforce.Call{Server: h.cfg.Server, Caller: caller}, request: r, session: s, reply: &reply{w: w, streams: true}}
	c.setUpstream(h)
	if failed := h.openEvent(c); failed != nil {
		http.Error(w, failed.fault.Reason, failed.status)
		return
	}
	h.listen(c)
}

// accepts reports whether the client takes a type of content.
func accepts(r *http.Request, kind string) bool {
	for _, value := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(value, ",") {
			sent, params, err := mime.ParseMediaType(part)
			if err == nil && (sent == kind || sent == "*/*") && params["q"] != "0" {
				return true
			}
		}
	}
	return false
}

const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream"

	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerSession = "Mcp-Session-Id"
	headerLast    = "Last-Event-Id"
	prefixParam   = "Mcp-Param-"
)

// bodyTimeout bounds the time in which the body of a message must arrive.
const bodyTimeout = 30 * time.Second

// keepAliveInterval is how long a stream may be silent before the gateway
// writes a keep-alive comment.
const keepAliveInterval = 10 * time.Second
