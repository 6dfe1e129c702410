package access

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/calllimit"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Config says how a [Service] finds out what it needs to know of callers and servers.
type Config struct {
	PDP *enforce.PDP
	// Holder returns the subject of calls to a server.
	Holder func(server string, c *enforce.Call) (authzen.Subject, error)
	// Servers returns the names of the servers.
	Servers func() []string
	// OffersTools reports whether a server, or an endpoint by its path, has the tools
	// of this package.
	OffersTools func(server string) bool
	// HasTool reports whether a server has a tool of that name itself. Nil reports
	// false.
	HasTool func(ctx context.Context, c *enforce.Call, name string) (bool, error)
	// Tools returns the names of the tools of a server, which it lists again if wanted is
	// none of them, and whether these are all. Nil returns that they are not known.
	Tools func(ctx context.Context, c *enforce.Call, server, wanted string) (names []string, known bool)
	// Requests keeps the calls that wait.
	Requests Requests
	// MayFulfil reports which requests the caller of a call may fulfil.
	MayFulfil func(ctx context.Context, c *enforce.Call, all []*enforce.Request) ([]bool, error)
	// Welcome tells callers their level, which Level returns for a server.
	Welcome bool
	Level   func(ctx context.Context, c *enforce.Call, server string) (enforce.Level, error)
	// PerMinute bounds how often a caller asks for capabilities and requests calls. 0 is
	// 10.
	PerMinute int
	Log       *slog.Logger
}

// A Service answers. It is safe for concurrent use.
type Service struct {
	cfg   Config
	limit *calllimit.Limiter
}

// DefaultPerMinute is that of [Config.PerMinute].
const DefaultPerMinute = 10

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, limit: calllimit.New([]calllimit.Limit{{Calls: cmp.Or(cfg.PerMinute, DefaultPerMinute), Per: time.Minute}}, nil)}
}

// Count implements [enforce.Access].
func (s *Service) Count(c *enforce.Call) error {
	subject := c.Caller.Subject
	_, err := s.limit.Take(calllimit.Call{Caller: calllimit.Caller{Tenant: c.Caller.Tenant, Type: subject.Type, ID: subject.ID}})
	var exceeded *calllimit.ExceededError
	if errors.As(err, &exceeded) {
		return enforce.TooOften("requests: "+exceeded.Error(), exceeded.After)
	}
	return err
}

// Ways implements [enforce.Access].
func (s *Service) Ways(ctx context.Context, c *enforce.Call) (ways enforce.Ways) {
	if !s.cfg.PDP.HasCapabilities(ctx, c.Caller.Tenant) {
		return ways
	}
	ways.Method = wire.MethodCapabilitiesRequest
	if s.cfg.OffersTools(c.Server) || enforce.HasAccessTools(ctx) {
		ways.Tool = ToolRequest
	}
	return ways
}

// Answer implements [enforce.Access].
func (s *Service) Answer(ctx context.Context, c *enforce.Call) (*enforce.Disposition, error) {
	return s.AnswerAt(ctx, c, s.namesOf(c.Server))
}

// AnswerAt answers a call at an endpoint with these names of tools. It returns nil for
// calls that are not of this package.
func (s *Service) AnswerAt(ctx context.Context, c *enforce.Call, names enforce.ToolNames) (*enforce.Disposition, error) {
	q := &query{Service: s, call: c, names: names, asked: make(map[string]string)}
	run := q.method()
	if run == nil || !c.Message.IsRequest() {
		return nil, nil
	}
	isTool := c.Message.Method == wire.MethodToolsCall
	if isTool {
		if own, err := s.isOwnTool(ctx, c); !own || err != nil {
			return nil, err
		}
	}
	if q.isAboutCapabilities() && !s.cfg.PDP.HasCapabilities(ctx, c.Caller.Tenant) {
		return nil, nil
	}
	result, err := run(ctx)
	if isTool {
		err = forModel(err)
	}
	if err != nil {
		return nil, err
	}
	if isTool {
		if result, err = toolResult(result); err != nil {
			return nil, err
		}
	}
	return answer(c, result)
}

// forModel makes a refusal one that the model reads that called a tool of the gateway.
func forModel(err error) error {
	var refusal *enforce.Refusal
	if errors.As(err, &refusal) {
		refusal.ForModel = true
	}
	return err
}

// answer returns the disposition with a result.
func answer(c *enforce.Call, result any) (*enforce.Disposition, error) {
	text, err := json.Marshal(result, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	if c.Stateless { // results have members, and keep their order
		text = append(text[:len(text)-1], `,"resultType":"complete"}`...)
	}
	return &enforce.Disposition{Answer: &wire.Message{ID: c.Message.ID, Result: text}, Status: 200}, nil
}

// namesOf returns the names of tools at the endpoint of a server: a bare name is of the
// server's own tool. An endpoint over several servers calls that SERVER__NAME.
func (s *Service) namesOf(server string) enforce.ToolNames {
	own := server + ":"
	return enforce.ToolNames{
		Inner: func(asked string) (string, bool) {
			if asked == "" {
				return "", false
			}
			if s.isQualified(asked) {
				return asked, true
			}
			return own + strings.TrimPrefix(asked, server+"__"), true
		},
		Outer: func(tool string) string { return tool },
	}
}
