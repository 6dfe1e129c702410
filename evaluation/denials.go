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

// Denial returns the denial of a tenant's evaluation, or nil if an approval could not have lifted it. It
// replays the logged request, which gives the same result while the policies are the same. It returns
// [authzen.ErrUnknownEvaluation] in three cases: the policies changed, the log masked the request, or
// the tenant has no such evaluation in the last hour.
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

// decisionOf returns the decision with that id in an entry, or nil if the entry has none that can be
// replayed.
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

// Recorded reports whether the log has an entry with that id.
func (e *Engine) Recorded(ctx context.Context, id string) (bool, error) {
	_, _, err := e.log.Lookup(ctx, id)
	if errors.Is(err, decisionlog.ErrNoEntry) {
		return false, nil
	}
	return err == nil, err
}
