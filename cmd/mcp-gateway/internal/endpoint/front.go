package endpoint

import (
	"cmp"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A Front admits requests to an endpoint, and reads the messages in them.
type Front struct {
	Name    string // of the endpoint, for the log
	Callers Callers
	// Hosts are the values of the Host header that are answered, Origins those of
	// Origin beside none: a page that a browser shows must not get here by
	// rebinding a name.
	Hosts, Origins []string
	MaxBody        int64 // of a message, in bytes; 0 is [MaxBody]
	Log            *slog.Logger
}

// Callers identifies the senders of requests.
type Callers interface {
	// Identify returns the verified sender of a request.
	Identify(*http.Request) (*enforce.Caller, error)
	// Refuse answers a request whose sender is not identified, with the error of
	// Identify.
	Refuse(http.ResponseWriter, error)
}

// Admit returns the verified sender of a request, or nil if it has answered the
// request.
func (f *Front) Admit(w http.ResponseWriter, r *http.Request) *enforce.Caller {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if !f.isAllowedHost(r) {
		http.Error(w, "this host or origin is not served", http.StatusForbidden)
		return nil
	}
	if f.allowOrigin(w, r) {
		return nil
	}
	caller, err := f.Callers.Identify(r)
	if err != nil {
		f.Log.WarnContext(r.Context(), "refused a caller that is not authenticated", "server", f.Name, "error", err)
		f.Callers.Refuse(w, err)
		return nil
	}
	return caller
}

// AdmitPage reports whether a request for a page of the gateway may be answered, and
// answers it otherwise.
func (f *Front) AdmitPage(w http.ResponseWriter, r *http.Request) bool {
	if !f.isAllowedHost(r) {
		http.Error(w, "this host or origin is not served", http.StatusForbidden)
		return false
	}
	return true
}

// isAllowedHost reports whether the request addresses this host and comes from
// no page of another origin.
func (f *Front) isAllowedHost(r *http.Request) bool {
	if !slices.Contains(f.Hosts, strings.ToLower(r.Host)) {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(f.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, r.Host)
}

// allowOrigin sets the CORS headers for the configured origins, and reports
// whether it has answered a preflight request (WHATWG Fetch, "CORS protocol").
func (f *Front) allowOrigin(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if !slices.Contains(f.Origins, origin) {
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Add("Vary", "Origin")
	w.Header().Set("Access-Control-Expose-Headers", HeaderSession+", WWW-Authenticate, DPoP-Nonce")
	if r.Method != http.MethodOptions {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	w.WriteHeader(http.StatusNoContent)
	return true
}

// A Failure is an answer to a message that is not understood.
type Failure struct {
	Status int
	Fault  *wire.Fault
}

// Answer answers with the failure.
func (f *Failure) Answer(r *Reply) {
	_ = r.Message(f.Status, wire.Refuse(f.Fault.ID, f.Fault.Code, f.Fault.Reason, enforce.Data{Reason: enforce.ReasonInvalidMessage}))
}

// A Received is a message of a client.
type Received struct {
	Message   *wire.Message
	Params    *wire.Params // of Message
	Stateless bool         // the client speaks [wire.Stateless] or later
	request   *http.Request
}

// Read reads the message in a request, and compares the headers with it.
func (f *Front) Read(w http.ResponseWriter, r *http.Request) (*Received, *Failure) {
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(bodyTimeout)) // a test's writer has none
	m, failed := f.readBody(r)
	_ = deadline.SetReadDeadline(time.Time{})
	if failed != nil {
		return nil, failed
	}
	params, err := m.Read()
	if err != nil {
		return nil, &Failure{http.StatusBadRequest, wire.FaultOf(err)}
	}
	in := &Received{Message: m, Params: params, request: r}
	if in.Stateless = params.Meta.ProtocolVersion != "" || r.Header.Get(HeaderVersion) >= wire.Stateless; !in.Stateless {
		return in, nil
	}
	if m.IsRequest() && params.Meta.ProtocolVersion == "" {
		return nil, &Failure{http.StatusBadRequest, &wire.Fault{Code: wire.CodeParams, ID: m.ID, Reason: "_meta does not say the version of the protocol"}}
	}
	if fault := in.checkHeaders(); fault != "" {
		return nil, &Failure{http.StatusBadRequest, &wire.Fault{Code: wire.CodeHeaderMismatch, ID: m.ID, Reason: fault}}
	}
	return in, nil
}

func (f *Front) readBody(r *http.Request) (*wire.Message, *Failure) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != TypeJSON {
		return nil, &Failure{http.StatusUnsupportedMediaType, &wire.Fault{Code: wire.CodeRequest, Reason: "the body is not application/json"}}
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, &Failure{http.StatusUnsupportedMediaType, &wire.Fault{Code: wire.CodeRequest, Reason: "the body is encoded"}}
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, cmp.Or(f.MaxBody, MaxBody)))
	if err != nil {
		return nil, &Failure{http.StatusRequestEntityTooLarge, &wire.Fault{Code: wire.CodeRequest, Reason: "the body cannot be read, or is too large"}}
	}
	m, err := wire.Parse(body)
	if err != nil {
		return nil, &Failure{http.StatusBadRequest, wire.FaultOf(err)}
	}
	return m, nil
}

// checkHeaders says where the headers of a stateless message are not what its
// body says, or "" (MCP 2026-07-28, "Server Validation").
func (in *Received) checkHeaders() string {
	if !in.Message.IsRequest() {
		return "" // the protocol defines none
	}
	target, named := in.Params.Target(in.Message.Method)
	for _, header := range []struct {
		name, want string
		required   bool
	}{
		{HeaderVersion, in.Params.Meta.ProtocolVersion, true},
		{HeaderMethod, in.Message.Method, true},
		{HeaderName, target, named},
	} {
		sent := in.request.Header.Values(header.name)
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

// Accepts reports whether the client takes a type of content.
func Accepts(r *http.Request, kind string) bool {
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

// Types of content, and headers of MCP.
const (
	TypeJSON   = "application/json"
	TypeEvents = "text/event-stream"

	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
	HeaderSession = "Mcp-Session-Id"
	HeaderLast    = "Last-Event-Id"
	PrefixParam   = "Mcp-Param-"
)

// Bounds of a message of a client and of a server, in bytes, where a configuration
// has none.
const (
	MaxBody  = 4 << 20
	MaxReply = 16 << 20
)

// bodyTimeout bounds the time in which the body of a message must arrive.
const bodyTimeout = 30 * time.Second

// keepAliveInterval is how long a stream may be silent before the gateway
// writes a keep-alive comment.
const keepAliveInterval = 10 * time.Second
