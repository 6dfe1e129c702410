package enforce

import (
	"context"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Level says how a caller gets tools called (MCPx, ADR-003, "Token Types").
type Level string

const (
	LevelUnknown    Level = ""           // the policies let the caller neither call nor request
	LevelFull       Level = "full"       // the caller calls
	LevelRestricted Level = "restricted" // the caller requests calls, and others carry them out
)

// Level asks the PDP for the level of the caller of a call at a server. It is about no
// tool in particular: a tool that needs a capability or an approval is called all the
// same.
func (g *Gate) Level(ctx context.Context, call *Call, server string) (Level, error) {
	calls, requests, err := g.cfg.MapLevel(call, server)
	if err != nil {
		return LevelUnknown, err
	}
	batch := new(authzen.EvaluationsRequest)
	for _, evaluation := range []*authzen.EvaluationRequest{calls, requests} {
		item, err := json.Marshal(evaluation)
		if err != nil {
			return LevelUnknown, err
		}
		batch.Evaluations = append(batch.Evaluations, item)
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
	return levelOf(&answer.Decisions[0], &answer.Decisions[1]), nil
}

// levelOf returns the level of a caller with these answers about calls and requests.
func levelOf(calls, requests *authzen.Decision) Level {
	switch {
	case calls.Decision, needsCapability(calls) && !isRequestable(calls):
		return LevelFull
	case requests.Decision, needsCapability(requests), isRequestable(requests):
		return LevelRestricted
	}
	return LevelUnknown
}
