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
	return coaz.Call{
		Method: c.Message.Method, Params: c.Message.Params, Notification: !c.Message.IsRequest(),
		Subject: c.Caller.Subject, Claims: c.Caller.Claims, Server: c.Server,
	}
}

// question implements [enforce.Config.Map].
func (m *mapper) question(c *enforce.Call) (*enforce.Question, error) {
	asked := coazCall(c)
	if c.Tool != nil {
		asked.Tool = c.Tool.Definition
	}
	q, err := m.Map(asked)
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
