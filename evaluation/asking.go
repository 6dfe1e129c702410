package evaluation

import (
	"context"
	"errors"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// An AskingPolicy is a policy because of which a person is asked.
type AskingPolicy struct {
	Policy string `json:"policy"`          // id
	Reason string `json:"reason,omitzero"` // its text for users (@reason_user); "" if it has none, or is not in force any more
}

// Asking returns the policies because of which a decision of a tenant asks for a person by a template. It returns none
// if the log does not have the decision any more.
func (e *Engine) Asking(ctx context.Context, tenant, evaluationID, template string) ([]AskingPolicy, error) {
	entry, _, err := e.log.Lookup(ctx, evaluationID)
	switch {
	case errors.Is(err, decisionlog.ErrNoEntry) || errors.Is(err, decisionlog.ErrPruned):
		return nil, nil
	case err != nil:
		return nil, err
	case entry.Tenant != tenant:
		return nil, nil
	}
	was := decisionOf(&entry.Entry, evaluationID)
	if was == nil {
		return nil, nil
	}
	s, _, err := e.begin(tenant)
	current := err == nil && s.Revision() == was.Revision
	var all []AskingPolicy
	for _, id := range was.Policies {
		one := AskingPolicy{Policy: id}
		if current {
			terms := s.TermsOf(id)
			if terms == nil || terms.Approval != template && terms.Requestable != template {
				continue
			}
			one.Reason = terms.ReasonUser
		}
		all = append(all, one)
	}
	return all, nil
}
