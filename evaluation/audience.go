package evaluation

import (
	"context"
	"fmt"

	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A PermittedSubject is a stored subject, with the text of one of its attributes.
type PermittedSubject struct {
	ID        string
	Attribute string // "" if the entity has no such attribute of type String
}

// PermittedSubjects returns at most most stored subjects of a type that policies permit a request, which
// leaves the id of its subject open, and an attribute of each. It records nothing, because nobody acts on
// the answer as on a decision. A permit with obligations counts as a denial, as for [Engine.MayDecide].
func (e *Engine) PermittedSubjects(ctx context.Context, tenant string, req *authzen.EvaluationRequest, attribute string, most int) ([]PermittedSubject, error) {
	s, now, err := e.begin(tenant)
	if err != nil {
		return nil, err
	}
	candidates, err := s.SearchCandidates(&snapshot.SearchQuery{For: snapshot.ForSubject, Request: *req}, snapshot.Environment{Time: now})
	if err != nil {
		return nil, err
	}
	part, err := e.scan(ctx, tenant, s, candidates, 0, snapshot.SearchLimits{Results: most, Bytes: e.config.MaxAnswer, Candidates: e.config.MaxCandidates})
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	var all []PermittedSubject
	for _, found := range part.Results {
		if len(found.Obligations) == 0 {
			all = append(all, PermittedSubject{found.Name, s.TextAttribute(req.Subject.Type, found.Name, attribute)})
		}
	}
	return all, nil
}
