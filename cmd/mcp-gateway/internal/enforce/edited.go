package enforce

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
)

// Edited makes a call one with the arguments that its approver has changed, and returns
// the question about it and its digest, as Judge asks them. The arguments have to fit the
// tool. Judge does not ask about the call as it came: policies decide on the new one.
func (g *Gate) Edited(ctx context.Context, call *Call, arguments jsontext.Value) (*Question, string, error) {
	edited := *call
	edited.CheckTool = nil // the headers are those of the call as it came
	if err := edited.coerce(arguments); err != nil {
		return nil, "", err
	}
	if err := g.resolveTool(ctx, &edited); err != nil {
		return nil, "", err
	}
	q, err := g.cfg.Map(&edited)
	if err != nil {
		return nil, "", g.unmapped(&edited, err)
	}
	_, digest, err := g.bind(&edited)
	if err != nil {
		return nil, "", err
	}
	if q, err = g.declare(ctx, &edited, q, digest, false); err != nil {
		return nil, "", err
	}
	if edited.Tool != nil {
		tool := *edited.Tool
		tool.Coerced = edited.Params.Arguments // the headers of the request to the server follow them
		edited.Tool = &tool
	}
	call.Message, call.Params, call.Tool = edited.Message, edited.Params, edited.Tool
	return q, digest, nil
}
