package access

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// maxEdits bounds the distance of a name to the one that a refusal suggests. It finds slips
// of the pen, and does not help to guess the names of other tools.
const maxEdits = 2

// checkTool refuses a name of a tool that a server does not have: nobody is asked about it.
// It accepts the name where the tools of the server are not known.
func (q *query) checkTool(ctx context.Context, n int, asked, tool string) error {
	server, name, _ := strings.Cut(tool, ":")
	if q.cfg.Tools == nil || name == enforce.AnyTool {
		return nil
	}
	names, known := q.cfg.Tools(ctx, q.call, server, name)
	if slices.Contains(names, name) {
		return nil
	}
	if of, _, qualified := strings.Cut(asked, ":"); qualified && of != server {
		return q.noServer(n, of)
	}
	if !known {
		return nil
	}
	return unknownTool("/tools/%d: the server %s has no tool %+.64q%s", n, server, name, didYouMean(name, names))
}

// noServer refuses the name of a tool at a server that the gateway does not have.
func (q *query) noServer(n int, server string) error {
	return unknownTool("/tools/%d: the gateway has no server %+.64q%s", n, server, didYouMean(server, q.cfg.Servers()))
}

// noTool refuses a name that is not one of a tool at the endpoint.
func (q *query) noTool(n int, asked string) error {
	if server, _, qualified := strings.Cut(asked, ":"); qualified && !slices.Contains(q.cfg.Servers(), server) {
		return q.noServer(n, server)
	}
	return invalid("/tools/%d is not the name of a tool", n)
}

// didYouMean returns the end of a message with the known name that a caller has misspelt, or
// "".
func didYouMean(name string, known []string) string {
	near := yamldoc.Nearest(name, known, min(maxEdits, len(name)/2))
	if near == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", near)
}

func unknownTool(format string, args ...any) *enforce.Refusal {
	return &enforce.Refusal{Code: wire.CodeParams, Status: statusOK, Message: fmt.Sprintf(format, args...), Data: enforce.Data{Reason: enforce.ReasonUnknownTool}}
}
