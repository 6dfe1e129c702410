// Package enforcetest has the neighbours of a gate for tests of other packages.
package enforcetest

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// Tools implements [enforce.Tools] with functions. Without Find every tool
// is accepted, without a definition, without Filter every caller sees the whole list.
type Tools struct {
	Find   func(context.Context, *enforce.Call) (*enforce.Tool, error)
	Filter func(ctx context.Context, c *enforce.Call, result jsontext.Value, ask enforce.Ask) (jsontext.Value, error)
	// Output checks structured content. Nil takes any.
	Output func(server, tool string, structured jsontext.Value) error
}

// CheckOutput implements [enforce.Tools].
func (t Tools) CheckOutput(server, tool string, structured jsontext.Value) error {
	if t.Output == nil {
		return nil
	}
	return t.Output(server, tool, structured)
}

// FindTool implements [enforce.Tools].
func (t Tools) FindTool(ctx context.Context, c *enforce.Call) (*enforce.Tool, error) {
	if t.Find == nil {
		return new(enforce.Tool), nil
	}
	return t.Find(ctx, c)
}

// CheckItem implements [enforce.Tools]. Every item may be used.
func (t Tools) CheckItem(*enforce.Call) error { return nil }

// FilterList implements [enforce.Tools].
func (t Tools) FilterList(ctx context.Context, c *enforce.Call, result jsontext.Value, ask enforce.Ask) (jsontext.Value, error) {
	if t.Filter == nil {
		return result, nil
	}
	return t.Filter(ctx, c, result, ask)
}

// Tasks implements [enforce.Tasks] with functions. Without Own there is nothing
// that the gateway answers, without Filter every response passes.
type Tasks struct {
	Own    func(context.Context, *enforce.Call) (*enforce.Disposition, error)
	Filter func(ctx context.Context, c *enforce.Call, m *wire.Message) (*wire.Message, error)
}

// Answer implements [enforce.Tasks].
func (t Tasks) Answer(ctx context.Context, c *enforce.Call) (*enforce.Disposition, error) {
	if t.Own == nil {
		return nil, nil
	}
	return t.Own(ctx, c)
}

// FilterResponse implements [enforce.Tasks].
func (t Tasks) FilterResponse(ctx context.Context, c *enforce.Call, m *wire.Message) (*wire.Message, error) {
	if t.Filter == nil {
		return m, nil
	}
	return t.Filter(ctx, c, m)
}
