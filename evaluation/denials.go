package evaluation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Denial returns the denial that an evaluation of a tenant was, nil for one
// that no person could have lifted. The log has what was asked, and the answer
// to that is what it was as long as the policies are: it is
// [authzen.ErrUnknownEvaluation] when they are not, when the log has masked
// what was asked, or has no such evaluation of that tenant in the last hour.
func (e *Engine) Denial(ctx context.Context, tenant, evaluationID string) (*authzen.RequestableDenial, error) {
	s, now, err := e.begin(WithCall(ctx, Call{Tenant: tenant}))
	if err != nil {
		return nil, err
	}
	id, _, _ := strings.Cut(evaluationID, ".")
	if at, ok := timeOf(id); !ok || at.Before(now.Add(-time.Hour)) {
		return nil, authzen.ErrUnknownEvaluation
	}
	entry, err := e.find(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("look for evaluation: %w", err)
	}
	if entry == nil || entry.Tenant != tenant || entry.Revision != s.revision {
		return nil, authzen.ErrUnknownEvaluation
	}
	was := decisionOf(entry, evaluationID)
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
func decisionOf(entry *decisionlog.Entry, id string) *Logged {
	all, err := Decisions(entry)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(all, func(l Logged) bool { return l.ID == id && l.Request != nil })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// timeOf returns the time in an id that was made here.
func timeOf(id string) (time.Time, bool) {
	parsed, err := uuid.Parse(id)
	if err != nil || parsed.Version() != 7 {
		return time.Time{}, false
	}
	return time.Unix(parsed.Time().UnixTime()), true
}

// around is how far an entry may stand from where its id belongs: entries are
// in the order in which they came to the log, and ids in that of their time.
const around = 2048

// find returns the entry of that id, nil for none. Ids that are made here sort
// by time, so that few entries are read, also for an id that is none.
func (e *Engine) find(ctx context.Context, id string) (*decisionlog.Entry, error) {
	if _, ok := timeOf(id); !ok {
		return nil, nil
	}
	size := e.log.Head().Size
	var failed error
	before := func(i int64) bool { // whether entry i is older
		other, err := e.idAt(ctx, i)
		failed = errors.Join(failed, err)
		return err == nil && other < id
	}
	low, step := size, int64(1)
	for low > 0 && !before(low-1) && failed == nil {
		low, step = max(0, low-step), 2*step
	}
	at := low + int64(sort.Search(int(min(step, size-low)), func(n int) bool { return !before(low + int64(n)) }))
	if failed != nil {
		return nil, failed
	}
	return e.scan(ctx, id, max(0, at-around), min(size, at+around))
}

// idAt returns the id of one entry, "" for one that is gone.
func (e *Engine) idAt(ctx context.Context, index int64) (string, error) {
	var line bytes.Buffer
	if _, err := e.log.Export(ctx, &line, index, index+1); err != nil || line.Len() == 0 {
		return "", err
	}
	entry, err := ReadEntry(line.Bytes())
	if err != nil {
		return "", err
	}
	return entry.ID, nil
}

// scan looks for the id among some entries.
func (e *Engine) scan(ctx context.Context, id string, from, until int64) (*decisionlog.Entry, error) {
	var lines bytes.Buffer
	if _, err := e.log.Export(ctx, &lines, from, until); err != nil {
		return nil, err
	}
	mark := fmt.Appendf(nil, `,"id":%q,`, id)
	for line := range bytes.Lines(lines.Bytes()) {
		if !bytes.Contains(line, mark) {
			continue
		}
		if entry, err := ReadEntry(line); err != nil || entry.ID == id {
			return entry, err
		}
	}
	return nil, nil
}

// Recorded reports whether the log has an entry of that id.
func (e *Engine) Recorded(ctx context.Context, id string) (bool, error) {
	found, err := e.find(ctx, id)
	return found != nil, err
}
