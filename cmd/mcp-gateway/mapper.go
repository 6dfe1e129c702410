package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A mapper says what to ask before a call goes on, and before an item of a list
// is shown.
type mapper struct {
	calls *coaz.Mapper
	lists *coaz.Mapper // by the default mappings alone: of an item there are no arguments
}

func newMapper(cfg *config) (*mapper, error) {
	calls, lists := make(map[string]coaz.Upstream), make(map[string]coaz.Upstream)
	for _, s := range cfg.Servers {
		u := s.Upstream
		u.Resource = cmp.Or(u.Resource, s.Name)
		calls[s.Name] = u
		u.Trust, u.Tools = coaz.DefaultOnly, maps.Clone(u.Tools)
		for name, tool := range u.Tools {
			tool.Mapping = ""
			u.Tools[name] = tool
		}
		lists[s.Name] = u
	}
	m := new(mapper)
	var err error
	if m.calls, err = coaz.New(calls); err != nil {
		return nil, err
	}
	m.lists, err = coaz.New(lists)
	return m, err
}

// question is that of [enforce.Config.Map].
func (m *mapper) question(c *enforce.Call) (*enforce.Question, error) {
	call := coaz.Call{
		Method: c.Message.Method, Params: c.Message.Params, Notification: !c.Message.IsRequest(),
		Claims: c.Caller.Claims, Server: c.Server,
	}
	if c.Tool != nil {
		call.Tool = c.Tool.Definition
	}
	q, err := m.calls.Map(call)
	var unmapped *coaz.MappingError
	switch {
	case errors.Is(err, coaz.ErrUnknownMethod):
		return nil, enforce.ErrUnknownMethod
	case errors.As(err, &unmapped):
		return nil, fmt.Errorf("%w: %s", enforce.ErrMapping, unmapped.Reason)
	case err != nil:
		return nil, enforce.ErrMapping
	}
	return &enforce.Question{Pass: q.PassThrough, Evaluation: q.Evaluation, Evaluations: q.Evaluations, Older: q.Dialect.Older()}, nil
}

// uses are the methods by which an item of a list is used, and the member of
// their params that names it.
var uses = map[string]struct{ method, name string }{
	"tools/list":               {"tools/call", "name"},
	"prompts/list":             {"prompts/get", "name"},
	"resources/list":           {"resources/read", "uri"},
	"resources/templates/list": {"resources/read", "uri"},
}

// item returns what to ask before the caller of a list sees an item of it: what
// using it would ask.
func (m *mapper) item(c *enforce.Call, name string, definition jsontext.Value) (*authzen.EvaluationRequest, error) {
	use := uses[c.Message.Method]
	params, err := json.Marshal(map[string]any{use.name: name, "arguments": map[string]any{}}, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	q, err := m.lists.Map(coaz.Call{Method: use.method, Params: params, Tool: definition, Claims: c.Caller.Claims, Server: c.Server})
	return q.Evaluation, err
}
