package gateway

import (
	"context"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/approval"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/tasks"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A taskGuard keeps tasks to their callers: those of the gateway, which are calls
// that wait for an approval, and those of the servers. It implements
// [enforce.Tasks].
type taskGuard struct {
	approvals *approval.Service
	owners    *tasks.Owners
	gateway   *gateway // whose gate is joined after this
}

// Answer implements [enforce.Tasks].
func (g *taskGuard) Answer(ctx context.Context, c *enforce.Call) (*enforce.Disposition, error) {
	if own, err := g.approvals.Own(ctx, c); own != nil || err != nil {
		return own, err
	}
	return nil, g.owners.Check(c)
}

// FilterResponse implements [enforce.Tasks].
func (g *taskGuard) FilterResponse(ctx context.Context, c *enforce.Call, m *wire.Message) (*wire.Message, error) {
	if err := g.gateway.rules.Load().requestPolicy(c.Server).checkResponse(m, func(request *wire.Message) error {
		return g.gateway.gate.AllowServerRequest(ctx, c, request)
	}); err != nil || m.Result == nil {
		return m, err
	}
	result, err := g.owners.FilterResult(ctx, c, m.Result)
	return &wire.Message{ID: m.ID, Result: result}, err
}
