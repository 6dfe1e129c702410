package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A mapper says what to ask before a call goes on, and before an item of a list
// is shown.
type mapper struct {
	*coaz.Mapper
	log *slog.Logger
}

func newMapper(cfg *Config, log *slog.Logger) (*mapper, error) {
	upstreams := make(map[string]coaz.Upstream)
	for _, s := range cfg.Servers {
		u := s.Upstream
		u.Resource = cmp.Or(u.Resource, s.Name)
		upstreams[s.Name] = u
	}
	m, err := coaz.New(upstreams)
	return &mapper{m, log}, err
}

// coazCall converts a call to the input of the mapping.
func coazCall(c *enforce.Call) coaz.Call {
	call := coaz.Call{
		Method: c.Message.Method, Params: c.Message.Params, Notification: !c.Message.IsRequest(),
		Subject: c.Caller.Subject, Claims: c.Caller.Claims, Server: c.Server,
	}
	if c.Tool != nil {
		call.Tool = c.Tool.Definition
	}
	return call
}

// question implements [enforce.Config.Map].
func (m *mapper) question(c *enforce.Call) (*enforce.Question, error) {
	q, err := m.Map(coazCall(c))
	return m.asQuestion(c, q, err)
}

// request implements [enforce.Config.MapRequest].
func (m *mapper) request(c *enforce.Call) (*enforce.Question, error) {
	q, err := m.MapRequest(coazCall(c))
	return m.asQuestion(c, q, err)
}

// fulfil implements [enforce.Config.MapFulfil].
func (m *mapper) fulfil(c *enforce.Call, r *enforce.Request) (*authzen.EvaluationRequest, error) {
	asked := coazCall(c)
	asked.Server = r.Server
	evaluation, err := m.MapFulfil(asked, coaz.ToolRequest{ID: r.ID, Requester: r.Requester, Tool: r.Tool, Digest: r.Digest, Template: r.Template})
	if err != nil {
		return nil, mappingError(err)
	}
	return evaluation, nil
}

// level implements [enforce.Config.MapLevel].
func (m *mapper) level(c *enforce.Call, server, tool string) (calls, requests *authzen.EvaluationRequest, err error) {
	asked := coazCall(c)
	asked.Server = server
	if calls, requests, err = m.MapLevel(asked, tool); err != nil {
		return nil, nil, mappingError(err)
	}
	return calls, requests, nil
}

// asQuestion returns the result of a mapping as the gate expects it.
func (m *mapper) asQuestion(c *enforce.Call, q coaz.Questions, err error) (*enforce.Question, error) {
	for _, warning := range q.Warnings {
		m.log.Warn("mapping: "+warning, "server", c.Server, "tool", c.Params.Name, "request_id", c.RequestID)
	}
	if err != nil {
		return nil, mappingError(err)
	}
	return &enforce.Question{Pass: q.PassThrough, Evaluation: q.Evaluation, Evaluations: q.Evaluations, OlderDialect: q.Dialect.Older()}, nil
}

// mappingError returns an error of the mapping as the gate expects it.
func mappingError(err error) error {
	var unmapped *coaz.MappingError
	switch {
	case errors.Is(err, coaz.ErrUnknownMethod):
		return enforce.ErrUnknownMethod
	case errors.As(err, &unmapped):
		return fmt.Errorf("%w: %s", enforce.ErrMapping, unmapped.Reason)
	}
	return enforce.ErrMapping
}

// serverRequest implements [enforce.Config.MapServerRequest].
func (m *mapper) serverRequest(of *enforce.Call, request *wire.Message) (*enforce.Question, error) {
	asked := coaz.ServerRequest{Method: request.Method, Params: request.Params}
	if of.Message != nil {
		asked.During = of.Message.Method
	}
	if of.Params != nil {
		asked.Name = of.Params.Object()
	}
	evaluation, err := m.MapServerRequest(coaz.Call{Subject: of.Caller.Subject, Claims: of.Caller.Claims, Server: of.Server}, asked)
	if err != nil {
		return nil, mappingError(err)
	}
	return &enforce.Question{Evaluation: evaluation}, nil
}

// item returns what to ask before the caller of a list sees an item of it: what
// using it would ask, as far as that is known without arguments.
func (m *mapper) item(c *enforce.Call, name string, definition jsontext.Value) (*authzen.EvaluationRequest, error) {
	listed := coazCall(c)
	listed.Tool = definition
	return m.Listed(listed, name)
}
