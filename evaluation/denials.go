package evaluation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/google/uuid"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Denial returns the denial that an evaluation of a tenant was, nil for one
// that no person could have lifted. The log has what was asked, and the answer
// to that is what it was as long as the policies are: it is
// [authzen.ErrUnknownEvaluation] when they are not, or when the log has no such
// evaluation of that tenant.
func (e *Engine) Denial(ctx context.Context, tenant, evaluationID string) (*authzen.RequestableDenial, error) {
	s, _, err := e.begin(WithCall(ctx, Call{Tenant: tenant}))
	if err != nil {
		return nil, err
	}
	id, _, _ := strings.Cut(evaluationID, ".")
	entry, err := e.find(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("look for evaluation: %w", err)
	}
	if entry == nil || entry.Tenant != tenant || entry.Revision != s.revision {
		return nil, authzen.ErrUnknownEvaluation
	}
	l := decisionOf(entry, evaluationID)
	if l == nil || l.Request == nil { // or an item of a batch that could not be read
		return nil, authzen.ErrUnknownEvaluation
	}
	outcome, err := s.Decide(l.Request, l.Environment())
	if err != nil || outcome.Template == "" {
		return nil, err
	}
	return &authzen.RequestableDenial{
		EvaluationID: evaluationID, Tenant: tenant, Caller: entry.Caller, Time: entry.Time,
		Revision: entry.Revision, Template: outcome.Template, Request: l.Request,
	}, nil
}

// decisionOf returns the decision of that id, nil for none that an entry has.
func decisionOf(e *decisionlog.Entry, id string) *Logged {
	decisions, err := Decisions(e)
	if err != nil { // it records something else, or is masked
		return nil
	}
	for i := range decisions {
		if decisions[i].ID == id {
			return &decisions[i]
		}
	}
	return nil
}

// around is how far an entry may stand from where its id belongs: entries are
// in the order in which they came to the log, and ids in that of their time.
const around = 2048

// find returns the entry of that id, nil for none. Ids that are made here sort
// by time, so that few entries need to be read.
func (e *Engine) find(ctx context.Context, id string) (*decisionlog.Entry, error) {
	if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 7 {
		return nil, nil
	}
	size := e.log.Head().Size
	var failed error
	before := func(i int64) bool { // whether entry i is older
		l, err := e.entry(ctx, i)
		failed = errors.Join(failed, err)
		return err == nil && l.ID < id
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

// entry reads one entry.
func (e *Engine) entry(ctx context.Context, index int64) (*decisionlog.Entry, error) {
	var line bytes.Buffer
	if _, err := e.log.Export(ctx, &line, index, index+1); err != nil {
		return nil, err
	}
	return ReadEntry(line.Bytes())
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
		if e, err := ReadEntry(line); err != nil || e.ID == id {
			return e, err
		}
	}
	return nil, nil
}

// Recorded reports whether the log has an entry of that id.
func (e *Engine) Recorded(ctx context.Context, id string) (bool, error) {
	found, err := e.find(ctx, id)
	return found != nil, err
}
