package coaz

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A Call is a message of a client.
type Call struct {
	Method string
	Params jsontext.Value // an object, or nil
	// Notification means that the message has no id, and so gets no answer.
	Notification bool
	// Tool is the definition of the tool of a tools/call, as the server listed it, or
	// nil if the tool is unknown.
	Tool jsontext.Value
	// Subject is the verified caller. Without an id it is the claim sub; without a
	// type it has the type identity.
	Subject authzen.Subject
	// Claims are the verified claims of the caller's token. Numbers are exact if they
	// are jsontext.Values or integers.
	Claims map[string]any
	Server string // the name of the upstream
}

// Questions are the requests to the PDP about a call: one of Evaluation and
// Evaluations, of which every decision must be a permit, or nothing if PassThrough is
// true. The zero Questions permit nothing.
type Questions struct {
	PassThrough bool
	Evaluation  *authzen.EvaluationRequest
	Evaluations *authzen.EvaluationsRequest
	Dialect     Dialect  // in which the tool was declared
	Warnings    []string // for the operator: what a mapping wanted and did not get
}

// A Dialect is a format in which a tool declares a mapping.
type Dialect string

const (
	Default  Dialect = "default"     // nothing was declared, or nothing counted
	Operator Dialect = "operator"    // the operator's own mapping
	Authzen  Dialect = "authzen"     // x-authzen-mapping with an envelope
	Bare     Dialect = "authzen-cel" // x-authzen-mapping without one, of April 2026
	Sep      Dialect = "coaz"        // coaz: true and x-coaz-mapping of objects
	Arrays   Dialect = "coaz-arrays" // coaz: true and x-coaz-mapping of arrays
)

// Older reports whether the dialect is one of those with coaz: true, whose denials had
// another code (-32401).
func (d Dialect) Older() bool { return d == Sep || d == Arrays }

// ErrUnknownMethod means that a method has no mapping. The call is denied.
var ErrUnknownMethod = errors.New("the method is not known to the gateway")

// A MappingError means that a message cannot be mapped. It must not be forwarded.
type MappingError struct {
	Reason string // for the caller; it has no values of params or token
	Cause  error  // for the operator; nil where Reason says it all
}

func (e *MappingError) Error() string { return "mapping: " + e.Reason }

// Unwrap returns the cause.
func (e *MappingError) Unwrap() error { return e.Cause }

func unmapped(format string, args ...any) *MappingError {
	return &MappingError{Reason: fmt.Sprintf(format, args...)}
}

// A Mapper maps calls to questions. It is safe for concurrent use.
type Mapper struct {
	compiler  *compiler
	defaults  map[string]*mapping // by method
	requests  map[string]*mapping // of servers, by method
	upstreams map[string]*upstream
}

// New returns a Mapper of calls to upstreams, by their names. An invalid setting of an
// upstream is a [yamldoc.SettingError] below its name.
func New(upstreams map[string]Upstream) (*Mapper, error) {
	c, err := newCompiler()
	if err != nil {
		return nil, fmt.Errorf("make CEL environment: %w", err)
	}
	m := &Mapper{compiler: c, upstreams: make(map[string]*upstream)}
	if m.defaults, err = c.defaults(); err != nil {
		return nil, fmt.Errorf("default mappings: %w", err)
	}
	if m.requests, err = c.requests(); err != nil {
		return nil, fmt.Errorf("default mappings: %w", err)
	}
	var errs []error
	for name, config := range upstreams {
		u, err := newUpstream(c, config)
		if err != nil {
			errs = append(errs, yamldoc.Below(err, name))
		}
		m.upstreams[name] = u
	}
	return m, errors.Join(errs...)
}

// Check reports the invalid settings of an upstream, each as a [yamldoc.SettingError].
func Check(u Upstream) error {
	c, err := newCompiler()
	if err == nil {
		_, err = newUpstream(c, u)
	}
	return err
}

// Map returns the questions about a call. The error is [ErrUnknownMethod] or a
// [MappingError].
func (m *Mapper) Map(call Call) (Questions, error) {
	u, ok := m.upstreams[call.Server]
	if !ok {
		return Questions{}, unmapped("there is no server of that name")
	}
	if passes(call) {
		return Questions{PassThrough: true, Dialect: Default}, nil
	}
	a := &mappingRun{Mapper: m, upstream: u, call: call, dialect: Default}
	q, err := a.questions()
	if err != nil {
		return Questions{Dialect: a.dialect}, err
	}
	q.Dialect, q.Warnings = a.dialect, a.warnings
	return q, nil
}

// passes reports whether a message is forwarded without a question: a ping, or a
// message without an id whose name is that of a notification.
func passes(call Call) bool {
	return call.Method == "ping" || call.Notification && strings.HasPrefix(call.Method, "notifications/")
}
