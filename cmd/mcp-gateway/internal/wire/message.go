package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/number"
)

// Codes of JSON-RPC 2.0 and of MCP 2026-07-28 ("Error Codes").
const (
	CodeParse          = -32700 // what came is no JSON
	CodeRequest        = -32600 // what came is no message
	CodeMethod         = -32601 // nobody knows the method
	CodeParams         = -32602
	CodeInternal       = -32603
	CodeHeaderMismatch = -32020
	CodeVersion        = -32022 // the server does not have the version of the request
	CodePage           = -32042 // the client has to lead a person to a page first (MCP 2025-11-25, "URL Elicitation Required")
)

// MaxDepth is the number of levels to which arrays and objects of a message may nest.
const MaxDepth = 64

// A Message is a request (ID and Method), a notification (Method alone) or a
// response (ID, and Result or Error). All values are compact and valid.
type Message struct {
	ID     jsontext.Value // a string or an integer; nil for a notification
	Method string
	Params jsontext.Value // an object, or nil
	Result jsontext.Value // an object, or nil
	Error  jsontext.Value // an object, or nil
}

// IsRequest reports whether the message wants a response.
func (m *Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsResponse reports whether the message is a response.
func (m *Message) IsResponse() bool { return m.Method == "" }

// A Fault is the reason why a text is not a message.
type Fault struct {
	Code   int            // of JSON-RPC
	ID     jsontext.Value // of what came, or nil
	Reason string
}

func (f *Fault) Error() string { return f.Reason }

// FaultOf returns the fault of an error of this package.
func FaultOf(err error) *Fault {
	fault := new(Fault)
	errors.As(err, &fault)
	return fault
}

// ErrDepth is the fault of a message that nests deeper than [MaxDepth].
var ErrDepth = &Fault{CodeRequest, nil, fmt.Sprintf("the message nests deeper than %d levels", MaxDepth)}

// Parse reads what a client sent. Every error is a *[Fault].
func Parse(body []byte) (*Message, error) {
	m, err := parse(body)
	switch {
	case err != nil && IsDeep(body) && Look(body).IsResponse():
		return nil, ErrDepth // also where the parser of JSON goes no deeper
	case err != nil:
		return nil, err
	}
	if isNull(m.ID) {
		return nil, &Fault{CodeRequest, nil, badID}
	}
	for _, part := range []jsontext.Value{m.Params, m.Result, m.Error} {
		if twin := caseDuplicates(part); twin != "" {
			return nil, &Fault{CodeRequest, m.ID, fmt.Sprintf("there are names that differ from %q by case alone", twin)}
		}
	}
	return m, nil
}

// ParseReply reads what a server sent: as [Parse] does, except that content may
// have names that differ by case alone. Outside of content no name may differ
// from one of the protocol's by case alone. An error may have the id null, which
// JSON-RPC 2.0 requires if the id of the request is unknown; the message then
// has none.
func ParseReply(body []byte) (*Message, error) {
	m, err := parse(body)
	switch {
	case err != nil && IsDeep(body) && Look(body).IsResponse():
		return nil, ErrDepth // also where the parser of JSON goes no deeper
	case err != nil:
		return nil, err
	}
	if isNull(m.ID) {
		m.ID = nil
	}
	for _, part := range []jsontext.Value{m.Params, m.Result, m.Error} {
		if name := misnamed(part); name != "" {
			return nil, &Fault{CodeRequest, m.ID, fmt.Sprintf("the name %q differs from one of the protocol by case alone", name)}
		}
	}
	return m, nil
}

func parse(body []byte) (*Message, error) {
	text := jsontext.Value(bytes.Clone(body))
	if err := text.Format(); err != nil {
		return nil, &Fault{CodeParse, nil, "the message is not strict JSON: " + cause(err)}
	}
	if text.Kind() != '{' {
		return nil, &Fault{CodeRequest, nil, "the message is not one object: batches are not accepted"}
	}
	if IsDeep(text) {
		return nil, ErrDepth
	}
	var envelope struct {
		Version string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Method  *string        `json:"method"`
		Params  jsontext.Value `json:"params"`
		Result  jsontext.Value `json:"result"`
		Error   jsontext.Value `json:"error"`
	}
	err := json.Unmarshal(text, &envelope, json.RejectUnknownMembers(true))
	m := &Message{ID: envelope.ID, Params: envelope.Params, Result: envelope.Result, Error: envelope.Error}
	if !isID(m.ID) && !(isNull(m.ID) && m.Error != nil) {
		return nil, &Fault{CodeRequest, nil, badID}
	}
	if err != nil {
		return nil, &Fault{CodeRequest, m.ID, "the message is no JSON-RPC: " + cause(err)}
	}
	if envelope.Method != nil {
		m.Method = *envelope.Method
	}
	if fault := m.check(envelope.Version, envelope.Method != nil); fault != "" {
		return nil, &Fault{CodeRequest, m.ID, fault}
	}
	return m, nil
}

// check returns why the members are not a message, or "".
func (m *Message) check(version string, hasMethod bool) string {
	for _, part := range []jsontext.Value{m.Params, m.Result, m.Error} {
		if part != nil && part.Kind() != '{' {
			return "params, result and error are objects"
		}
	}
	switch {
	case version != "2.0":
		return `jsonrpc is not "2.0"`
	case hasMethod && m.Method == "":
		return "the method is empty"
	case hasMethod && (m.Result != nil || m.Error != nil):
		return "a request has no result and no error"
	case hasMethod:
		return ""
	case m.Params != nil:
		return "a response has no params"
	case (m.Result == nil) == (m.Error == nil):
		return "a message has a method, a result or an error"
	case m.ID == nil && m.Error == nil:
		return "a result has an id"
	}
	return ""
}

const badID = "the id is no string and no integer"

func isNull(id jsontext.Value) bool { return id.Kind() == 'n' }

// isID reports whether v may be the id of a message: a string, an integer that
// every parser reads alike, or none at all.
func isID(v jsontext.Value) bool {
	switch v.Kind() {
	case '"':
		return true
	case '0':
		return !strings.ContainsAny(string(v), ".eE") && number.Exact(string(v))
	}
	return v == nil
}

// cause returns the text of the JSON reader's error, without the name of the package.
func cause(err error) string {
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntax):
		return strings.TrimPrefix(syntax.Err.Error(), "jsontext: ")
	case errors.As(err, &semantic) && semantic.JSONPointer != "":
		return "at " + string(semantic.JSONPointer)
	}
	return "it is no object of a message"
}

// IsDeep reports whether v nests deeper than [MaxDepth].
func IsDeep(v jsontext.Value) bool {
	if bytes.Count(v, []byte{'{'})+bytes.Count(v, []byte{'['}) <= MaxDepth {
		return false
	}
	dec := decoder(v)
	for {
		if _, err := dec.ReadToken(); err != nil {
			return false
		}
		if dec.StackDepth() > MaxDepth {
			return true
		}
	}
}

// caseDuplicates returns a name of an object in v that differs from another name of
// that object in letter case only, or "".
func caseDuplicates(v jsontext.Value) string {
	dec := decoder(v)
	var seen []map[string]bool // of the objects and arrays that are open
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return ""
		}
		switch token.Kind() {
		case '{', '[':
			seen = append(seen, nil)
		case '}', ']':
			seen = seen[:len(seen)-1]
		case '"':
			kind, n := dec.StackIndex(dec.StackDepth())
			if kind != '{' || n%2 == 0 {
				continue // a value
			}
			top := len(seen) - 1
			if seen[top] == nil {
				seen[top] = make(map[string]bool)
			}
			folded := fold(token.String())
			if seen[top][folded] {
				return token.String()
			}
			seen[top][folded] = true
		}
	}
}

// fold returns a text that is the same for all names that differ in letter case only.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case r < utf8.RuneSelf:
			return r
		}
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, s)
}

// Encode writes the message.
func (m *Message) Encode() []byte {
	out := []byte(`{"jsonrpc":"2.0"`)
	if m.ID != nil {
		out = append(append(out, `,"id":`...), m.ID...)
	}
	if m.Method != "" {
		method, _ := jsontext.AppendQuote(nil, m.Method) // it was read as valid UTF-8
		out = append(append(out, `,"method":`...), method...)
	}
	for _, part := range []struct {
		name  string
		value jsontext.Value
	}{{"params", m.Params}, {"result", m.Result}, {"error", m.Error}} {
		if part.value != nil {
			out = append(append(out, `,"`+part.name+`":`...), part.value...)
		}
	}
	return append(out, '}')
}

// Refuse returns the response to a request that is not carried out. Data, if not nil,
// must encode as JSON.
func Refuse(id jsontext.Value, code int, message string, data any) *Message {
	if id == nil {
		id = jsontext.Value("null")
	}
	fault, err := json.Marshal(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}{code, message, data}, json.Deterministic(true))
	if err != nil {
		fault = fmt.Appendf(nil, `{"code":%d,"message":"internal error"}`, CodeInternal)
	}
	return &Message{ID: id, Error: fault}
}
