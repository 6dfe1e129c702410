package enforce

import (
	"context"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Level says how a caller gets tools called (MCPx, ADR-003, "Token Types").
type Level string

const (
	LevelUnknown    Level = ""           // the policies do not tell
	LevelFull       Level = "full"       // the caller calls
	LevelRestricted Level = "restricted" // the caller requests calls, and others carry them out
)

// AnyTool stands for a tool of a server when no tool is meant.
const AnyTool = "*"

// Level asks the PDP for the level of the caller of a call, which shows in what it may do
// with tools of a server. Where no tools are known, it is asked about [AnyTool].
func (g *Gate) Level(ctx context.Context, call *Call, server string, tools []string) (Level, error) {
	if len(tools) == 0 {
		tools = []string{AnyTool}
	}
	batch := new(authzen.EvaluationsRequest)
	for _, tool := range tools {
		calls, requests, err := g.cfg.MapLevel(call, server, tool)
		if err != nil {
			return LevelUnknown, err
		}
		for _, evaluation := range []*authzen.EvaluationRequest{calls, requests} {
			item, err := json.Marshal(evaluation)
			if err != nil {
				return LevelUnknown, err
			}
			batch.Evaluations = append(batch.Evaluations, item)
		}
	}
	own := map[string]any{"supported_obligations": g.supported}
	if err := g.addLabels(own, call); err != nil {
		return LevelUnknown, err
	}
	question, err := (&Question{Evaluations: batch}).with(own)
	if err != nil {
		return LevelUnknown, err
	}
	answer, err := g.cfg.PDP.Ask(ctx, call.Caller.Tenant, question)
	if err != nil {
		return LevelUnknown, err
	}
	return levelOf(answer.Decisions), nil
}

// levelOf returns the level of a caller with these answers: for each tool one about a
// call, and one about a request. The caller has the highest level of those.
func levelOf(answers []authzen.Decision) Level {
	level := LevelUnknown
	for i := 0; i+1 < len(answers); i += 2 {
		switch levelFor(&answers[i], &answers[i+1]) {
		case LevelFull:
			return LevelFull
		case LevelRestricted:
			level = LevelRestricted
		}
	}
	return level
}

// levelFor returns the level that shows in the answers about one tool. A call that is
// denied whatever people say tells nothing: the server may not be the caller's, or the
// tool may not exist.
func levelFor(calls, requests *authzen.Decision) Level {
	switch {
	case calls.Decision:
		return LevelFull
	case !isRequestable(calls):
		if needsCapability(calls) {
			return LevelFull
		}
		return LevelUnknown
	case waitsAlike(calls, requests):
		return LevelRestricted
	}
	return LevelFull
}

// waitsAlike reports whether a call that a person may permit waits for what its request
// waits for: the approval of one template, or somebody who requests. A request for want of a
// capability does not tell its template.
func waitsAlike(calls, requests *authzen.Decision) bool {
	if isRequestable(requests) {
		return calls.Context.AccessRequest.Template == requests.Context.AccessRequest.Template
	}
	return requests.Decision || needsCapability(requests)
}
