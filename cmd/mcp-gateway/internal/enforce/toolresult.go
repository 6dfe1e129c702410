package enforce

import (
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// coerce makes the call one with other arguments: these are decided on, and go to
// the server.
func (c *Call) coerce(arguments []byte) error {
	m, err := c.Message.WithArguments(arguments)
	if err != nil {
		return err
	}
	return c.replace(m)
}

// replace replaces the message before it is decided on.
func (c *Call) replace(m *wire.Message) error {
	params, err := m.Read()
	if err != nil {
		return err
	}
	c.Message, c.Params = m, params
	return nil
}

// isForModel reports whether a refusal is about what a model chose: the tool, the
// arguments, or how often it calls. The client of a call that is to become a task
// expects a task or an error.
func (r *Refusal) isForModel(c *Call) bool {
	if !c.Message.IsRequest() || c.Message.Method != wire.MethodToolsCall || c.byMethod || c.Params.Task != nil {
		return false
	}
	if r.ForModel || c.byTool {
		return true
	}
	switch r.Data.Reason {
	case ReasonArguments, ReasonUnknownTool, ReasonTooOften:
		return true
	}
	return false
}

// result answers a call of a tool with the refusal as a result that is an error
// (MCP 2025-11-25, "Error Handling"; SEP-1303).
func (r *Refusal) result(c *Call) *Disposition {
	answer := ToolError(c, strings.TrimSpace(r.Message+"\n"+r.Advice))
	if answer == nil {
		return r.disposition(c.Message.ID)
	}
	return &Disposition{Answer: answer, Status: statusOK}
}

// ToolError returns the response to a call of a tool whose result is an error with
// this text, or nil if the text cannot be encoded.
func ToolError(c *Call, text string) *wire.Message {
	said := map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}, "isError": true}
	if c.Stateless {
		said["resultType"] = "complete"
	}
	result, err := json.Marshal(said, json.Deterministic(true))
	if err != nil {
		return nil
	}
	return &wire.Message{ID: c.Message.ID, Result: result}
}
