package enforce

import (
	"context"
	"regexp"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/results"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Caller is the verified caller of a call.
type Caller struct {
	Subject authzen.Subject
	Claims  map[string]any // of the caller's token; never nil
	Tenant  string         // whose policies decide; "" for the only store
	Token   Token          // of the caller
	// JKT is the thumbprint (RFC 7638) of the key that the caller has proved to hold, or
	// "".
	JKT string
}

// A Token is the verified token of a caller, or the zero value for a caller without
// one. It has no exported parts, so that no log and no file gets it by accident.
type Token struct{ reveal func() string }

// NewToken returns the token with this text.
func NewToken(text string) Token {
	if text == "" {
		return Token{}
	}
	return Token{func() string { return text }}
}

// Reveal returns the text of the token, or "".
func (t Token) Reveal() string {
	if t.reveal == nil {
		return ""
	}
	return t.reveal()
}

// A Call is a message of a client to a server.
type Call struct {
	Server  string // name of the upstream
	Caller  *Caller
	Message *wire.Message // with a method
	Params  *wire.Params  // of Message
	// Stateless: the client speaks [wire.Stateless] or later.
	Stateless bool
	// Capabilities are those that the client declares; nil if it declares none.
	Capabilities *wire.Capabilities
	// Tool is the tool that a tools/call names. The gate sets it.
	Tool *Tool
	// Session is the server's id of the sealed session in which the call came, or "".
	Session string
	// Presented is the capability that the call presents. The gate sets it.
	Presented wire.Presented
	// SendsArguments: the question for the PDP has the arguments of the call, because a
	// capability of the caller limits them. The gate sets it.
	SendsArguments bool
	// Requested: the call is to be carried out by somebody else, because its caller sent
	// tools/request, with this Reason. The gate sets both.
	Requested bool
	Reason    string
	// Fulfils says which request of another caller the call fulfils, or is nil. The gate
	// sets it.
	Fulfils   *wire.Fulfilment
	requester authzen.Subject // of the request that it fulfils
	byTool    bool            // a model called a tool of the gateway that makes this call
	byMethod  bool            // a program sent tools/request
	// Results are the obligations on the response. The gate sets those of its permit;
	// [Tasks] those of the call whose task this call is about.
	Results results.Rules
	// Narrows: the token with which this call reaches the server can have fewer scopes
	// than that of others.
	Narrows bool
	// Scopes are those to which the token of this call at the server is narrowed, by
	// the obligations of its permit; nil for all that the token has.
	Scopes []string
	// CheckTool compares the call's transport headers with the tool's definition.
	// Its error is a [Refusal]. Nil checks nothing.
	CheckTool func(*Tool) error
	// Upstream sends a request of the gateway to the server, in the session of the
	// call.
	Upstream func(context.Context, *wire.Message) (*wire.Message, error)
	// Client reaches the client while the call is pending; nil if the transport
	// carries nothing before the answer.
	Client Client
	// RequestID identifies the call in the PDP's log and in the trail.
	RequestID string
	// TraceParent is the trace of the call (W3C Trace Context), or "".
	TraceParent string
}

var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$`)

// TraceParent returns the first text that is a traceparent (W3C Trace Context),
// or "".
func TraceParent(texts ...string) string {
	for _, text := range texts {
		if traceParent.MatchString(text) {
			return text
		}
	}
	return ""
}

// TraceID returns the id of the trace of the call, or "".
func (c *Call) TraceID() string {
	if found := traceParent.FindStringSubmatch(c.TraceParent); found != nil {
		return found[1]
	}
	return ""
}

// A Tool is the accepted definition of a tool.
type Tool struct {
	Definition jsontext.Value
	Digest     string // of Definition
	// Authorization is what the definition declares; nil if it declares nothing, or if
	// the operator ignores it.
	Authorization *Authorization
	// Coerced are the arguments of the call after coercion to the input schema; nil
	// if the call keeps its own.
	Coerced jsontext.Value
}

// A Client is the client of a call that is pending.
type Client interface {
	// Notify sends a notification that belongs to the call.
	Notify(ctx context.Context, m *wire.Message) error
	// Ask sends a request, whose id it makes, and returns the client's response.
	Ask(ctx context.Context, method string, params any) (*wire.Message, error)
}

// A Disposition says what happens to a call. Exactly one of Forward and Answer is
// set, or neither for a notification that is dropped.
type Disposition struct {
	Forward *wire.Message // goes to the server
	Answer  *wire.Message // goes back to the client
	Status  int           // HTTP status of Answer
	TrailID string        // id of Forward in the [Trail]; "" without an entry
	// Finish takes the response to Forward, nil if there is none, and returns the
	// response for the client, nil for none. It must be called once.
	Finish func(ctx context.Context, response *wire.Message) *wire.Message

	presented wire.Presented // the capability with which the PDP permits Forward
}
