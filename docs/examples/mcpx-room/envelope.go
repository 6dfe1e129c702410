package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

const protocol = "mcp-x/v0"

// Kinds of envelopes.
const (
	kindMCP    = "mcp"    // the payload is a JSON-RPC message
	kindSystem = "system" // the payload has a type
)

// gateway sends what the room itself has to say. No participant has the name.
const gateway = "gateway"

// maxID bounds the ids of envelopes and messages, in bytes.
const maxID = 128

// An Envelope carries a message between participants.
type Envelope struct {
	Protocol string         `json:"protocol"`
	ID       string         `json:"id"`
	TS       string         `json:"ts"` // RFC 3339
	From     string         `json:"from"`
	To       []string       `json:"to,omitempty"` // nobody means everybody but the sender
	Kind     string         `json:"kind"`
	Payload  jsontext.Value `json:"payload"`
}

// readEnvelope reads what a participant has sent. Members that are not defined are invalid, and so is
// another sender than the participant.
func readEnvelope(text []byte, participant string) (*Envelope, error) {
	e := &Envelope{}
	if err := json.Unmarshal(text, e, json.RejectUnknownMembers(true)); err != nil {
		return e, fmt.Errorf("the envelope is no such JSON: %w", err)
	}
	if e.ID == "" {
		e.ID = uuid.NewString()
	}
	if e.TS == "" {
		e.TS = time.Now().UTC().Format(time.RFC3339)
	}
	return e, errors.Join(e.check(participant)...)
}

func (e *Envelope) check(participant string) (faults []error) {
	fault := func(is bool, format string, args ...any) {
		if is {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	_, err := time.Parse(time.RFC3339, e.TS)
	fault(e.Protocol != protocol, "protocol must be %q", protocol)
	fault(e.From != participant, "from must be %q, the participant of this connection", participant)
	fault(e.Kind != kindMCP && e.Kind != kindSystem, "kind must be mcp or system")
	fault(len(e.ID) > maxID, "id has more than %d bytes", maxID)
	fault(err != nil, "ts must be a time, as in 2026-11-21T12:00:00Z")
	fault(e.To != nil && len(e.To) == 0, "to names nobody: leave it out for everybody")
	fault(slices.Contains(e.To, participant), "to names the sender")
	return faults
}

// newEnvelope returns an envelope with a payload that is encoded as JSON.
func newEnvelope(from string, to []string, kind string, payload any) *Envelope {
	return &Envelope{Protocol: protocol, ID: uuid.NewString(), TS: time.Now().UTC().Format(time.RFC3339), From: from, To: to, Kind: kind, Payload: encode(payload)}
}

// encode returns the JSON of one of the room's own types.
func encode(v any) jsontext.Value {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err)) // they are all JSON
	}
	return text
}

// A Message is a JSON-RPC 2.0 message, as MCP uses it.
type Message struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"`
	Method  string         `json:"method,omitzero"`
	Params  jsontext.Value `json:"params,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   jsontext.Value `json:"error,omitzero"`
}

func (m *Message) isRequest() bool  { return m.Method != "" && m.ID != nil }
func (m *Message) isResponse() bool { return m.Method == "" }

func readMessage(payload jsontext.Value) (*Message, error) {
	m := &Message{}
	if err := json.Unmarshal(payload, m, json.RejectUnknownMembers(true)); err != nil {
		return m, fmt.Errorf("the payload is no JSON-RPC message: %w", err)
	}
	outcomes := 0
	for _, v := range []jsontext.Value{m.Result, m.Error} {
		if v != nil {
			outcomes++
		}
	}
	switch {
	case m.JSONRPC != "2.0":
		return m, errors.New("jsonrpc must be \"2.0\"")
	case m.ID != nil && (m.ID.Kind() != '"' && m.ID.Kind() != '0' || len(m.ID) > maxID):
		return m, fmt.Errorf("the id of the message must be a text or a number of at most %d bytes", maxID)
	case m.Method != "" && outcomes != 0, m.Method == "" && (outcomes != 1 || m.ID == nil || m.Params != nil):
		return m, errors.New("a message is a request, a notification, or a response with either result or error")
	}
	return m, m.canonical()
}

// canonical gives the id one spelling: a response may spell it in another way than its request.
func (m *Message) canonical() (err error) {
	if m.ID != nil {
		m.ID, err = jsonobject.Canonical(m.ID)
	}
	return err
}

// Error codes of JSON-RPC and of the protocol.
const (
	codeInvalid       = -32600
	codeParams        = -32602
	codeInternal      = -32603
	codeAuthorization = -32001 // a person has to decide first
	codeDenied        = -32002
	codeCapability    = -32003
)

// A Refusal is the error that the sender of a message gets.
type Refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
	// blocked, if not nil, is what the room tells about a call that its owner did not see.
	blocked *blocked
}

func (r *Refusal) Error() string { return r.Message }

// A blocked tells why a call did not reach the owner of the tool.
type blocked struct {
	Reason     string `json:"reason"`
	Suggestion string `json:"suggestion,omitzero"`
}

func invalid(format string, args ...any) *Refusal {
	return &Refusal{Code: codeParams, Message: fmt.Sprintf(format, args...)}
}

// denied is the refusal of a call that the owner does not see.
func denied(reason string) *Refusal {
	b := &blocked{Reason: reason}
	return &Refusal{Code: codeDenied, Message: "Authorization denied", Data: b, blocked: b}
}
