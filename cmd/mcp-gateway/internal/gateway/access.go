package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/access"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// capabilities returns whether the PDP knows capabilities, as far as the operator says.
func (c *pdpConfig) capabilities() enforce.CapabilitySupport {
	switch {
	case c.Capabilities == nil:
		return enforce.CapabilitiesDetected
	case *c.Capabilities:
		return enforce.CapabilitiesKnown
	}
	return enforce.CapabilitiesUnknown
}

// holder implements [access.Config.Holder].
func (c *currentRules) holder(server string, call *enforce.Call) (authzen.Subject, error) {
	of := *call
	of.Server = server
	subject, err := c.Load().mapper.Holder(coazCall(&of))
	if err != nil {
		return authzen.Subject{}, mappingError(err)
	}
	return subject, nil
}

// has implements [access.Config.HasTool]. A server that has not been listed yet is.
func (t *tools) has(ctx context.Context, c *enforce.Call, name string) (bool, error) {
	_, err := t.Tool(c.Server, name)
	if errors.Is(err, catalog.ErrUnknown) && !t.isListed(c.Server) {
		if err := t.refreshTools(context.WithoutCancel(ctx), c); err != nil {
			var refusal *enforce.Refusal
			if errors.As(err, &refusal) {
				return false, refusal
			}
			return false, enforce.UnknownTools(err)
		}
		_, err = t.Tool(c.Server, name)
	}
	return !errors.Is(err, catalog.ErrUnknown), nil
}

// known implements [access.Config.Tools]. Only the server of the call can be listed in its
// session.
func (t *tools) known(ctx context.Context, c *enforce.Call, server, wanted string) (names []string, known bool) {
	names = t.names(server)
	if slices.Contains(names, wanted) || c.Server != server || c.Upstream == nil || !t.isStale(server, true) {
		return names, t.isListed(server)
	}
	if err := t.refreshTools(context.WithoutCancel(ctx), c); err != nil {
		t.log.WarnContext(ctx, "the tools of a server for which a caller asks", "server", server, "request_id", c.RequestID, "error", err)
		return names, false
	}
	return t.names(server), true
}

// isListed reports whether this process has listed the tools of a server.
func (t *tools) isListed(server string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.refreshed[server].IsZero()
}

// addAccessTools adds the gateway's own tools to the first page of a server's tools. A
// tool of the server that has the same name is not replaced.
func (t *tools) addAccessTools(ctx context.Context, c *enforce.Call, result jsontext.Value) (jsontext.Value, error) {
	if c.Message.Method != wire.MethodToolsList || !t.rules.offersAccess(c.Server) || enforce.HasAccessTools(ctx) || isLaterPage(c.Message) {
		return result, nil
	}
	offered := t.access.Offered(ctx, c, []string{c.Server})
	if len(offered) == 0 {
		return result, nil
	}
	members, err := jsonobject.Parse(result)
	if err != nil {
		return nil, err
	}
	var items []jsontext.Value
	if err := json.Unmarshal(members["tools"], &items); err != nil {
		return nil, err
	}
	for _, name := range offered {
		if _, err := t.Tool(c.Server, name); errors.Is(err, catalog.ErrUnknown) {
			items = append(items, access.Definition(name))
		}
	}
	if err := members.Set("tools", items); err != nil {
		return nil, err
	}
	return members.Encode()
}

// isLaterPage reports whether a list continues another.
func isLaterPage(m *wire.Message) bool {
	var params struct {
		Cursor string `json:"cursor"`
	}
	return m.Params != nil && json.Unmarshal(m.Params, &params) == nil && params.Cursor != ""
}

// warnTaken says which tools of servers keep the gateway from offering its own.
func (g *gateway) warnTaken() {
	for _, s := range g.cfg.Servers {
		for _, name := range g.tools.names(s.Name) {
			if s.AccessTools && slices.Contains(access.ToolNames, name) {
				g.log.Warn("access_tools: the server has a tool of this name itself: the gateway does not offer its own", "server", s.Name, "tool", name)
			}
		}
	}
}
