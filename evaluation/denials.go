package evaluation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Denial returns the denial that an evaluation of a tenant was, nil for one
// that no person could have lifted. The log has what was asked, and the answer
// to that is what it was as long as the policies are: it is
// [authzen.ErrUnknownEvaluation] when they are not, when the log has masked
// what was asked, or has no such evaluation of that tenant in the last hour.
func (e *Engine) Denial(ctx context.Context, tenant, evaluationID string) (*authzen.RequestableDenial, error) {
	s, now, err := e.begin(tenant)
	if err != nil {
		return nil, err
	}
	if at, ok := decisionlog.IDTime(evaluationID); !ok || at.Before(now.Add(-time.Hour)) {
		return nil, authzen.ErrUnknownEvaluation
	}
	entry, _, err := e.log.Lookup(ctx, evaluationID)
	switch {
	case errors.Is(err, decisionlog.ErrNoEntry):
		return nil, authzen.ErrUnknownEvaluation
	case err != nil:
		return nil, err
	case entry.Tenant != tenant || entry.Revision != s.Revision():
		return nil, authzen.ErrUnknownEvaluation
	}
	was := decisionOf(&entry.Entry, evaluationID)
	if was == nil {
		return nil, authzen.ErrUnknownEvaluation
	}
	outcome, err := s.Decide(was.Request, was.Environment())
	if err != nil || outcome.Template == "" {
		return nil, err
	}
	return &authzen.RequestableDenial{
		EvaluationID: evaluationID, Tenant: tenant, Caller: entry.Caller, Time: entry.Time,
		Revision: entry.Revision, Template: outcome.Template, Request: was.Request,
	}, nil
}

// decisionOf returns the decision of that id that an entry records, nil where
// it records none that can be made again.
func decisionOf(entry *decisionlog.Entry, id string) *replay.Logged {
	all, err := replay.Decisions(entry)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(all, func(l replay.Logged) bool { return l.ID == id && l.Request != nil })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// Recorded reports whether the log has an entry of that id.
func (e *Engine) Recorded(ctx context.Context, id string) (bool, error) {
	_, _, err := e.log.Lookup(ctx, id)
	if errors.Is(err, decisionlog.ErrNoEntry) {
		return false, nil
	}
	return err == nil, err
}
