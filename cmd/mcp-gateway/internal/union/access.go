package union

import (
	"context"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// Access answers what callers ask about their capabilities.
type Access interface {
	// AnswerAt answers a call at an endpoint with these names of tools. It returns nil
	// for calls that are not about capabilities.
	AnswerAt(context.Context, *enforce.Call, enforce.ToolNames) (*enforce.Disposition, error)
	// Ways returns how callers ask for a capability at an endpoint.
	Ways(context.Context, *enforce.Call) enforce.Ways
	// RewriteAt returns the tools/call that a call of a tool of the gateway stands for,
	// at an endpoint with these names of tools, or nil for all others.
	RewriteAt(context.Context, *enforce.Call, enforce.ToolNames) (*wire.Message, error)
	// Welcome returns what the gateway says to the caller at an endpoint over these
	// servers, or nil for nothing.
	Welcome(ctx context.Context, c *enforce.Call, servers []string) jsontext.Value
	// Definitions returns the definitions of the gateway's own tools that the caller may
	// use at an endpoint over these servers.
	Definitions(ctx context.Context, c *enforce.Call, servers []string) []jsontext.Value
}

// answerAccess answers a request about capabilities, which no server gets. It reports
// whether the request is one. The names of the gateway's own tools are not those of a
// server, which have a separator.
func (h *Handler) answerAccess(c *call) bool {
	if h.cfg.Access == nil {
		return false
	}
	v, err := h.cfg.Access.AnswerAt(c.request.Context(), h.asCall(c), h.names())
	switch {
	case err != nil:
		h.fail(c, err)
	case v != nil:
		_ = c.out.Message(v.Status, v.Answer)
	}
	return err != nil || v != nil
}

// names are the names of tools at the union.
func (h *Handler) names() enforce.ToolNames {
	return enforce.ToolNames{Inner: h.toolOf, Outer: outerToolOf}
}

// rewrite makes a call of a tool of the gateway the tools/call that it stands for, which
// goes to a server.
func (h *Handler) rewrite(c *call) error {
	if h.cfg.Access == nil {
		return nil
	}
	m, err := h.cfg.Access.RewriteAt(c.request.Context(), h.asCall(c), h.names())
	if err != nil || m == nil {
		return err
	}
	params, err := m.Read()
	if err != nil {
		return err
	}
	received := *c.Received
	received.Message, received.Params = m, params
	c.Received = &received
	return nil
}

// definitions returns the definitions of the gateway's own tools for a caller.
func (h *Handler) definitions(c *call) []jsontext.Value {
	return h.cfg.Access.Definitions(c.request.Context(), h.asCall(c), h.serverNames())
}

// welcome returns what the gateway says to the caller of a request, or nil.
func (h *Handler) welcome(c *call) jsontext.Value {
	if h.cfg.Access == nil {
		return nil
	}
	return h.cfg.Access.Welcome(c.request.Context(), h.asCall(c), h.serverNames())
}

func (h *Handler) serverNames() (names []string) {
	for _, s := range h.cfg.Servers {
		names = append(names, s.Name)
	}
	return names
}

// toolOf returns the tool of a name at the union, SERVER__NAME or SERVER:NAME.
func (h *Handler) toolOf(asked string) (tool string, ok bool) {
	if server, name, found := strings.Cut(asked, ":"); found && h.server(server) != nil {
		return asked, name != ""
	}
	server, name, ok := split(asked)
	s := h.server(server)
	if s == nil || !ok || name == "" {
		return "", false
	}
	if len(asked) == MaxName {
		name = h.wholeName(s, asked, name)
	}
	return server + ":" + name, true
}

// outerToolOf returns the name of a tool SERVER:NAME at the union.
func outerToolOf(tool string) string {
	server, name, found := strings.Cut(tool, ":")
	if !found {
		return tool
	}
	return outerTool(server, name)
}

// ways returns how the caller of a call asks for a capability.
func (h *Handler) ways(c *call) enforce.Ways {
	if h.cfg.Access == nil {
		return enforce.Ways{}
	}
	return h.cfg.Access.Ways(c.request.Context(), h.asCall(c))
}

// offersAccess reports whether the endpoint has tools of its own.
func (h *Handler) offersAccess() bool {
	return h.cfg.Access != nil && h.cfg.OffersAccess != nil && h.cfg.OffersAccess()
}

// withAccess marks the context of a request if the endpoint has tools of its own.
func (h *Handler) withAccess(r *http.Request) *http.Request {
	if !h.offersAccess() {
		return r
	}
	return r.WithContext(enforce.WithAccessTools(r.Context()))
}

// asCall returns the call of a request as the gate knows it.
func (h *Handler) asCall(c *call) *enforce.Call {
	return &enforce.Call{
		Server: h.cfg.Name, Caller: c.caller, Message: c.Message, Params: c.Params, Stateless: c.Stateless, RequestID: uuid.NewString(),
		TraceParent: enforce.TraceParent(c.Params.Meta.TraceParent, c.request.Header.Get("Traceparent")),
	}
}
