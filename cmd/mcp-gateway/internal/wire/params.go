package wire

import (
	"cmp"
	"encoding/base64"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Methods that the gateway treats specially.
const (
	MethodInitialize   = "initialize"
	MethodDiscover     = "server/discover"
	MethodInitialized  = "notifications/initialized"
	MethodCancelled    = "notifications/cancelled"
	MethodProgress     = "notifications/progress"
	MethodLog          = "notifications/message"
	MethodToolsChanged = "notifications/tools/list_changed"
	MethodToolsList    = "tools/list"
	MethodToolsCall    = "tools/call"
	MethodPromptsGet   = "prompts/get"
	MethodResourceRead = "resources/read"
	MethodElicitation  = "elicitation/create"
)

// Stateless is the first version of the protocol without sessions: each request has
// its version and the capabilities of its client.
const Stateless = "2026-07-28"

// IsList reports whether a method lists items of a server.
func IsList(method string) bool {
	switch method {
	case MethodToolsList, "prompts/list", "resources/list", "resources/templates/list":
		return true
	}
	return false
}

// IsIntroduction reports whether a server introduces itself in the result of a method.
func IsIntroduction(method string) bool {
	return method == MethodInitialize || method == MethodDiscover
}

// IsRemoved reports whether [Stateless] and later versions lack a method of earlier
// ones.
func IsRemoved(method string) bool {
	switch method {
	case MethodInitialize, "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list", "tasks/result":
		return true
	}
	return false
}

// Params are the members of params that a gateway reads.
type Params struct {
	Name            string         `json:"name"`
	URI             string         `json:"uri"`
	Arguments       jsontext.Value `json:"arguments"`
	TaskID          string         `json:"taskId"`
	Task            jsontext.Value `json:"task"`      // of a call that is to become a task (MCP 2025-11-25)
	RequestID       jsontext.Value `json:"requestId"` // of a cancellation
	RequestState    string         `json:"requestState"`
	InputResponses  jsontext.Value `json:"inputResponses"`
	ProtocolVersion string         `json:"protocolVersion"` // of initialize
	Capabilities    Capabilities   `json:"capabilities"`    // of initialize
	Ref             Reference      `json:"ref"`             // of completion/complete
	Meta            Meta           `json:"_meta"`
}

// A Reference names the prompt or the resource of a completion.
type Reference struct {
	Name string `json:"name"`
	URI  string `json:"uri"`
}

// Object returns the name of the tool, prompt, resource or task of the request, or "".
// A method has one of these members at most ([Message.UndefinedParam]).
func (p *Params) Object() string {
	return cmp.Or(p.Name, p.URI, p.TaskID, p.Ref.Name, p.Ref.URI)
}

// Meta are the members of _meta that a gateway reads.
type Meta struct {
	ProtocolVersion string         `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities    *Capabilities  `json:"io.modelcontextprotocol/clientCapabilities"`
	ProgressToken   jsontext.Value `json:"progressToken"`
	TraceParent     string         `json:"traceparent"`
}

// OwnMeta is the _meta of the gateway's own requests in a version without sessions. It
// declares no capabilities.
func OwnMeta(version string) map[string]any {
	return map[string]any{
		"io.modelcontextprotocol/protocolVersion":    version,
		"io.modelcontextprotocol/clientInfo":         map[string]string{"name": "mcp-gateway", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
	}
}

// Capabilities are the capabilities that a client declares, as far as the gateway uses
// them.
type Capabilities struct {
	Elicitation *struct {
		Form jsontext.Value `json:"form,omitzero"`
		URL  jsontext.Value `json:"url,omitzero"`
	} `json:"elicitation,omitempty"`
	Extensions map[string]jsontext.Value `json:"extensions,omitempty"`
}

// Form reports whether the client shows forms. An elicitation without a mode is a form
// (MCP 2026-07-28, "Elicitation").
func (c *Capabilities) Form() bool {
	return c != nil && c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

// URL reports whether the client leads people to a page.
func (c *Capabilities) URL() bool {
	return c != nil && c.Elicitation != nil && c.Elicitation.URL != nil
}

// ExtensionTasks is the extension with which clients poll for results (SEP-2663).
const ExtensionTasks = "io.modelcontextprotocol/tasks"

// Tasks reports whether the client takes a task for a result (SEP-2663).
func (c *Capabilities) Tasks() bool {
	return c != nil && c.Extensions[ExtensionTasks] != nil
}

// Read reads the params. A member of the wrong type is a *[Fault].
func (m *Message) Read() (*Params, error) {
	p := new(Params)
	if m.Params == nil {
		return p, nil
	}
	if err := json.Unmarshal(m.Params, p); err != nil {
		return nil, &Fault{CodeParams, m.ID, "the params are not as they must be: " + cause(err)}
	}
	if p.Arguments != nil && p.Arguments.Kind() != '{' {
		return nil, &Fault{CodeParams, m.ID, "the arguments are no object"}
	}
	return p, nil
}

// WithArguments returns the message with other arguments.
func (m *Message) WithArguments(arguments jsontext.Value) (*Message, error) {
	return m.withParams(func(params jsonobject.Object) error {
		params["arguments"] = arguments
		return nil
	})
}

// WithInput returns the message with another requestState and other inputResponses
// (MCP 2026-07-28, "Multi Round-Trip Requests"). Nil is none.
func (m *Message) WithInput(state, responses jsontext.Value) (*Message, error) {
	return m.withParams(func(params jsonobject.Object) error {
		for name, value := range map[string]jsontext.Value{"requestState": state, "inputResponses": responses} {
			if value == nil {
				delete(params, name)
			} else {
				params[name] = value
			}
		}
		return nil
	})
}

// WithTraceParent returns the message with another traceparent in its _meta
// (SEP-414).
func (m *Message) WithTraceParent(traceParent string) (*Message, error) {
	return m.withParams(func(params jsonobject.Object) error {
		meta, err := jsonobject.Parse(params["_meta"])
		if err != nil {
			return err
		}
		if err := meta.Set("traceparent", traceParent); err != nil {
			return err
		}
		params["_meta"], err = meta.Encode()
		return err
	})
}

// withParams returns the message with params that edit has changed.
func (m *Message) withParams(edit func(jsonobject.Object) error) (*Message, error) {
	members, err := jsonobject.Parse(m.Params)
	if err != nil {
		return nil, err
	}
	if err := edit(members); err != nil {
		return nil, err
	}
	other := *m
	other.Params, err = members.Encode()
	return &other, err
}

// Target returns the name or URI that a request repeats in a header, for the methods
// that do so (SEP-2243).
func (p *Params) Target(method string) (target string, named bool) {
	switch method {
	case MethodToolsCall, MethodPromptsGet:
		return p.Name, true
	case MethodResourceRead:
		return p.URI, true
	}
	return "", false
}

const headerPrefix, headerSuffix = "=?base64?", "?="

// HeaderText writes a text as the value of a header (SEP-2243, "Value
// Encoding").
func HeaderText(s string) string {
	plain := strings.Trim(s, " \t") == s && !(strings.HasPrefix(s, headerPrefix) && strings.HasSuffix(s, headerSuffix))
	for _, c := range []byte(s) {
		plain = plain && 0x20 <= c && c <= 0x7e
	}
	if plain {
		return s
	}
	return headerPrefix + base64.StdEncoding.EncodeToString([]byte(s)) + headerSuffix
}

// TextOfHeader reads what [HeaderText] wrote.
func TextOfHeader(value string) (string, bool) {
	inner, ok := strings.CutPrefix(value, headerPrefix)
	if !ok || !strings.HasSuffix(inner, headerSuffix) {
		return value, true
	}
	text, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSuffix(inner, headerSuffix))
	return string(text), err == nil
}
