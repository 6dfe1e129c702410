package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
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
	// Transport, if not nil, returns the transport to the upstream for requests of a
	// caller, in place of one over the network.
	Transport func(*enforce.Caller) http.RoundTripper
	// TLS, if not nil, returns the configuration of each new connection to the upstream.
	TLS func() *tls.Config
	// Credential, if not nil, has the token at the upstream for each request.
	Credential Credential
	// Narrows: Credential has tokens with fewer scopes.
	Narrows bool
	// Hold is how long a call stays open whose client is told nothing meanwhile.
	Hold time.Duration
	// Secrets returns further headers, each for its request, by name.
	Secrets map[string]func() string
	Gate    *enforce.Gate
	Callers endpoint.Callers
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

// ServerMessages filters the messages that a server sends of its own accord.
type ServerMessages interface {
	// AllowsNotification reports whether the client gets a notification, which
	// came on the stream of a call; on standard output, after the client's last
	// call. It must not block.
	AllowsNotification(*enforce.Call, *wire.Message) bool
	// AllowsRequest reports whether the client gets a request. Of is the call in
	// whose course it came; where that is not known, it has no message.
	AllowsRequest(ctx context.Context, of *enforce.Call, request *wire.Message) bool
}

// A Credential has the bearer tokens for requests to the upstream.
type Credential interface {
	// Token returns the token for a request in the name of a caller, with these
	// scopes and no others if there are any. The error is a [ConsentError] if the
	// person behind the caller has to be asked.
	Token(ctx context.Context, caller *enforce.Caller, scopes []string) (string, error)
	// Drop takes a token that the upstream has refused: again, if it was got in place
	// of a refused one. It reports whether another may be had.
	Drop(ctx context.Context, caller *enforce.Caller, scopes []string, token string, again bool) bool
}

// A Handler is the MCP endpoint of one upstream.
type Handler struct {
	cfg      Config
	front    *endpoint.Front
	upstream *http.Client
	requests *pendingRequests
	deciding *deciding
	broken   *unanswered // calls whose streams the client may resume
	underWay *underWay   // calls with obligations on results, by [call.conversation]
}

// New returns a Handler.
func New(cfg Config) *Handler {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = endpoint.MaxBody
	}
	if cfg.MaxReply == 0 {
		cfg.MaxReply = endpoint.MaxReply
	}
	cfg.Resume = cmp.Or(cfg.Resume, resumeTimeout)
	return &Handler{
		cfg:      cfg,
		front:    &endpoint.Front{Name: cfg.Server, Callers: cfg.Callers, Hosts: cfg.Hosts, Origins: cfg.Origins, MaxBody: cfg.MaxBody, Log: cfg.Log},
		requests: newPendingRequests(), deciding: newDeciding(), underWay: newUnderWay(), broken: newUnanswered(),
		upstream: &http.Client{
			Transport:     cfg.transport(),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// transport returns the transport to the upstream.
func (c *Config) transport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression, transport.MaxIdleConnsPerHost = true, 100
	if c.TLS != nil {
		transport.TLSClientConfig = c.TLS() // for connections through a proxy
		transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialer := &tls.Dialer{Config: c.TLS()}
			return dialer.DialContext(ctx, network, address)
		}
	}
	return transport
}

// maxUnanswered bounds the calls whose responses are still due.
const maxUnanswered = 1000

// A call is one that came over HTTP.
type call struct {
	*enforce.Call
	request *http.Request
	session *session // nil in the stateless era, or where there is none
	reply   *endpoint.Reply
	// Of a stream that can be resumed: the call whose response it carries, or nil,
	// and the server's id of its last event, or "".
	sent      *sentCall
	lastEvent string
	// asks is what the person behind the caller has to do before the server can be
	// called, or nil; told is what the client was told of it before.
	asks    *ConsentError
	told    *consentState
	mirrors []wire.Mirror // of the arguments as they came; nil where nothing was compared with them
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if caller := h.front.Admit(w, r); caller != nil {
		h.Serve(w, r, caller)
	}
}

// Serve answers a request whose sender is identified.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, caller *enforce.Caller) {
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

func (h *Handler) post(w http.ResponseWriter, r *http.Request, caller *enforce.Caller) {
	out := &endpoint.Reply{W: w, Streams: endpoint.Accepts(r, endpoint.TypeEvents), InSession: r.Header.Get(endpoint.HeaderSession) != ""}
	c, failed := h.read(w, r, caller)
	if failed != nil {
		failed.Answer(out)
		return
	}
	out.InSession = c.session != nil
	c.reply = out
	if c.Message.IsResponse() {
		h.respond(w, c)
		return
	}
	c.setUpstream(h)
	ctx, done := h.begin(c)
	defer done()
	if out.Streams && !c.Stateless && c.Message.IsRequest() {
		c.Client = &client{h, c}
	}
	if c.told != nil && !h.awaitConsent(ctx, c) {
		return
	}
	disposition := h.cfg.Gate.Judge(ctx, c.Call)
	switch {
	case disposition.Answer != nil && c.asks != nil: // the gate could not ask the server
		h.askConsent(c)
	case disposition.Forward != nil:
		h.forward(c, disposition)
	case disposition.Answer != nil:
		_ = out.Message(disposition.Status, disposition.Answer)
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

// read reads a message, with the session that it is in.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, caller *enforce.Caller) (*call, *endpoint.Failure) {
	in, failed := h.front.Read(w, r)
	if failed != nil {
		return nil, failed
	}
	c := &call{request: r, Call: &enforce.Call{
		Server: h.cfg.Server, Caller: caller, Message: in.Message, Params: in.Params, Stateless: in.Stateless, RequestID: uuid.NewString(), Narrows: h.cfg.Narrows,
		TraceParent: enforce.TraceParent(in.Params.Meta.TraceParent, r.Header.Get("Traceparent")),
	}}
	if c.Stateless {
		c.Capabilities, c.CheckTool = in.Params.Meta.Capabilities, c.checkMirrors
		return c, h.openConsent(c)
	}
	if c.session, failed = h.openSession(r, caller); failed != nil {
		failed.Fault.ID = in.Message.ID
		return nil, failed
	}
	if c.session != nil {
		c.Capabilities, c.Session = c.session.Capabilities, c.session.ID
	}
	return c, nil
}

// checkMirrors refuses a call whose headers are not what its arguments say.
func (c *call) checkMirrors(tool *enforce.Tool) error {
	mirrors, err := wire.Mirrors(tool.Definition, c.Params.Arguments)
	if err != nil {
		return err
	}
	c.mirrors = append([]wire.Mirror{}, mirrors...)
	for _, m := range mirrors {
		sent := c.request.Header.Values(endpoint.PrefixParam + m.Name)
		if len(sent) == 0 && !m.Present || len(sent) == 1 && m.Same(sent[0]) {
			continue
		}
		return &enforce.Refusal{
			Code: wire.CodeHeaderMismatch, Status: http.StatusBadRequest, Message: "the header " + endpoint.PrefixParam + m.Name + " is not what the arguments say",
			Data: enforce.Data{Reason: enforce.ReasonInvalidMessage},
		}
	}
	return nil
}

// respond takes a client's response to a request of the gateway or the server,
// which only the older era has.
func (h *Handler) respond(w http.ResponseWriter, c *call) {
	if c.Stateless {
		_ = c.reply.Message(http.StatusBadRequest, wire.Refuse(c.Message.ID, wire.CodeRequest, "clients of this protocol version must not send responses", enforce.Data{Reason: enforce.ReasonInvalidMessage}))
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
		http.Error(w, failed.Fault.Reason, failed.Status)
		return
	}
	c := &call{Call: &enforce.Call{Server: h.cfg.Server, Caller: caller, Session: s.id(), RequestID: uuid.NewString()}, request: r, session: s, reply: &endpoint.Reply{W: w, Streams: true}}
	c.setUpstream(h)
	if failed := h.openEvent(c); failed != nil {
		http.Error(w, failed.Fault.Reason, failed.Status)
		return
	}
	h.listen(c)
}
