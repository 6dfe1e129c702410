package enforce

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// declare says in every context of a question what the gateway can carry out
// (Obligations Profile, "Negotiation"), the labels of the caller, and at
// gateway.call_digest which call it is about, so that an approval is of these
// arguments and no others, and at gateway.authorization what the tool declares.
// Presented adds the capability that the call presents.
func (g *Gate) declare(ctx context.Context, call *Call, q *Question, digest string, presented bool) (*Question, error) {
	own := map[string]any{"supported_obligations": g.supported}
	if digest != "" {
		about := map[string]any{"call_digest": digest}
		if declared := call.Authorization(); declared != nil {
			about["authorization"] = declared
		}
		own["gateway"] = about
	}
	claim, err := g.claim(ctx, call, presented)
	if err != nil {
		return nil, err
	}
	if claim != nil {
		own["capability"] = claim
	}
	if call.Fulfils != nil {
		own["fulfils"] = call.fulfilled(digest)
	}
	if arguments := g.decisionArguments(call); arguments != nil {
		own[contextArguments] = arguments
	}
	if err := g.addLabels(own, call); err != nil {
		return nil, err
	}
	return q.with(own)
}

// Labelled returns the question with the present labels of the caller at
// session.labels of every context.
func (g *Gate) Labelled(call *Call, q *Question) (*Question, error) {
	own := make(map[string]any)
	if err := g.addLabels(own, call); err != nil || len(own) == 0 {
		return q, err
	}
	return q.with(own)
}

// addLabels adds the present labels of the caller to what a question declares.
func (g *Gate) addLabels(own map[string]any, call *Call) error {
	if g.cfg.Labels == nil {
		return nil
	}
	labels, err := g.cfg.Labels.Of(call)
	own["session"] = map[string]any{"labels": labels}
	return err
}

// with returns the question with members of every context.
func (q *Question) with(own map[string]any) (*Question, error) {
	said, err := json.Marshal(own, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	declared := *q
	if q.Evaluation != nil {
		evaluation := *q.Evaluation
		if evaluation.Context, err = merge(evaluation.Context, said); err != nil {
			return nil, fmt.Errorf("context: %w", err)
		}
		declared.Evaluation = &evaluation
	}
	if q.Evaluations != nil {
		batch := *q.Evaluations
		batch.Options = authzen.Options{Semantic: authzen.ExecuteAll} // every evaluation has its own answer
		if batch.Context, err = merge(batch.Context, said); err != nil {
			return nil, fmt.Errorf("context: %w", err)
		}
		batch.Evaluations = slices.Clone(batch.Evaluations)
		for i, item := range batch.Evaluations {
			if batch.Evaluations[i], err = declareItem(item, said); err != nil {
				return nil, fmt.Errorf("evaluation %d: %w", i, err)
			}
		}
		declared.Evaluations = &batch
	}
	return &declared, nil
}

// declareItem says it in the context of an item that has one of its own.
func declareItem(item, said jsontext.Value) (jsontext.Value, error) {
	members, err := jsonobject.Parse(item)
	if err != nil || members["context"] == nil {
		return item, err
	}
	if members["context"], err = merge(members["context"], said); err != nil {
		return nil, err
	}
	return members.Encode()
}

// contextArguments are the arguments of a call as a whole. They replace what a mapping
// says there.
const contextArguments = "arguments"

// merge lays the members of an object over those of another; where both are
// objects, theirs are laid over one another, too.
func merge(under, over jsontext.Value) (jsontext.Value, error) {
	if under.Kind() != '{' || over.Kind() != '{' {
		return over, nil
	}
	members, err := jsonobject.Parse(under)
	if err != nil {
		return nil, err
	}
	upper, err := jsonobject.Parse(over)
	if err != nil {
		return nil, err
	}
	for name, value := range upper {
		if name == contextArguments {
			members[name] = value
			continue
		}
		merged, err := merge(members[name], value)
		if err != nil {
			return nil, err
		}
		members[name] = merged
	}
	return members.Encode()
}
