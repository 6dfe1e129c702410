package evaluation

import (
	"errors"
	"fmt"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	// ErrMasked means that a part of a logged request is masked, so that it
	// cannot be decided again.
	ErrMasked = errors.New("the request is masked in the log")
	// ErrNoDecision means that a log entry records no decision, or not one that
	// policies made.
	ErrNoDecision = errors.New("this entry records no decision of policies")
)

// ExplainLogged explains a logged decision by the policies that it names, whose
// files these are, at its time: of a batch that of an item.
func ExplainLogged(files Archive, logged *decisionlog.Record, item int) (*Explanation, error) {
	if len(logged.Masked) > 0 {
		return nil, ErrMasked
	}
	request, err := loggedRequest(logged, item)
	if err != nil {
		return nil, err
	}
	all, err := CompileStore(files)
	if err != nil {
		return nil, fmt.Errorf("compile revision %s: %w", logged.Revision, err)
	}
	s, err := all.For(logged.Tenant)
	if err != nil {
		return nil, err
	}
	return s.Explain(request, environmentOf(logged))
}

// loggedRequest returns the request of an entry, or that of an item of a batch.
func loggedRequest(logged *decisionlog.Record, item int) (*authzen.EvaluationRequest, error) {
	switch logged.Kind {
	case decisionlog.KindEvaluation:
		request := new(authzen.EvaluationRequest)
		return request, authzen.Unmarshal(logged.Request, request)
	case decisionlog.KindEvaluations:
		var batch authzen.EvaluationsRequest
		if err := authzen.Unmarshal(logged.Request, &batch); err != nil {
			return nil, err
		}
		items := batch.Items()
		if item < 0 || item >= len(items) {
			return nil, fmt.Errorf("%w: it is a batch: name an item, from %s.0 to %s.%d", ErrNoDecision, logged.Entry.ID, logged.Entry.ID, len(items)-1)
		}
		if items[item].Err != nil {
			return nil, items[item].Err
		}
		return items[item].Request, nil
	}
	return nil, fmt.Errorf("%w: it is of kind %s", ErrNoDecision, logged.Kind)
}
