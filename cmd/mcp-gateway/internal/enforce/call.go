package enforce

import (
	"context"
	"regexp"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Caller is who a call is made for, as was verified.
type Caller struct {
	Subject authzen.Subject
	Claims  map[string]any // of the caller's token; never nil
	Tenant  string         // whose policies decide; "" where there is one store
}

// A Call is what a client wants of a server.
type Call struct {
	Server  string // name of the upstream
	Caller  *Caller
	Message *wire.Message // with a method
	Params  *wire.Params  // of Message
	// Stateless: the client speaks [wire.Stateless] or later.
	Stateless bool
	// Capabilities are what the client says it can do; nil where nothing is known.
	Capabilities *wire.Capabilities
	// Tool is the one that a tools/call names, once the gate has looked it up.
	Tool *Tool
	// CheckTool compares the call's transport headers with the tool's definition.
	// Its error is a [Refusal]. Nil checks nothing.
	CheckTool func(*Tool) error
	// Upstream sends the server a request of the gateway, in the session of the
	// call.
	Upstream func(context.Context, *wire.Message) (*wire.Message, error)
	// Client reaches the client while the call is pending; nil where nothing can
	// be said before the answer.
	Client Client
	// RequestID names the call for the PDP's log and ours.
	RequestID string
	// TraceParent is the trace that the call is of (W3C Trace Context), or "".
	TraceParent string
}

var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$`)

// TraceParent returns the first of the texts that names a trace (W3C Trace
// Context), or "".
func TraceParent(texts ...string) string {
	for _, text := range texts {
		if traceParent.MatchString(text) {
			return text
		}
	}
	return ""
}

// TraceID returns the trace that the call is of, or "".
func (c *Call) TraceID() string {
	if found := traceParent.FindStringSubmatch(c.TraceParent); found != nil {
		return found[1]
	}
	return ""
}

// A Tool is what a server said of a tool, as it was accepted.
type Tool struct {
	Definition jsontext.Value
	Digest     string // of Definition
	// Coerced are the arguments of the call as the input schema has them, nil if
	// the call goes on with its own.
	Coerced jsontext.Value
}

// A Client is the client of a call that is pending.
type Client interface {
	// Notify sends a notification that belongs to the call.
	Notify(ctx context.Context, m *wire.Message) error
	// Ask sends a request, whose id it makes, and returns the client's response.
	Ask(ctx context.Context, method string, params any) (*wire.Message, error)
}

// A Disposition says what becomes of a call: exactly one of Forward and Answer is
// set, or neither for a notification that goes nowhere.
type Disposition struct {
	Forward *wire.Message // goes to the server
	Answer  *wire.Message // goes back to the client
	Status  int           // HTTP status of Answer
	TrailID string        // of Forward in the [Trail]; "" if that has no entry of it
	// Finish says what came of Forward. It must be called once. Response is nil
	// where none came. It returns what the client is to get, nil for nothing.
	Finish func(ctx context.Context, response *wire.Message) *wire.Message
}
