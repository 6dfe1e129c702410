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
	return levelOf(answer.Decisions, tools[0] == AnyTool), nil
}

// levelOf returns the level of a caller with these answers: for each tool one about a
// call, and one about a request. A caller that may not call a tool that there is not need
// not be restricted.
func levelOf(answers []authzen.Decision, anyTool bool) Level {
	level := LevelUnknown
	for i := 0; i+1 < len(answers); i += 2 {
		calls, requests := &answers[i], &answers[i+1]
		switch {
		case calls.Decision, !waitsAlike(calls, requests) && (needsCapability(calls) || isRequestable(calls)):
			return LevelFull
		case anyTool && !isRequestable(calls):
		case requests.Decision, needsCapability(requests), isRequestable(requests):
			level = LevelRestricted
		}
	}
	return level
}

// waitsAlike reports whether a call waits for what its request waits for: the approval
// of one template.
func waitsAlike(calls, requests *authzen.Decision) bool {
	switch {
	case !isRequestable(calls):
		return false
	case isRequestable(requests):
		return calls.Context.AccessRequest.Template == requests.Context.AccessRequest.Template
	}
	return needsCapability(requests)
}
