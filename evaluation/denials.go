package evaluation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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
	id, item, _ := strings.Cut(evaluationID, ".")
	entry, err := e.find(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("look for evaluation: %w", err)
	}
	if entry == nil || entry.Tenant != tenant || entry.Revision != s.revision {
		return nil, authzen.ErrUnknownEvaluation
	}
	request, err := entry.evaluation(item)
	if err != nil {
		return nil, err
	}
	outcome, err := s.Decide(request, Environment{Time: entry.Time})
	var invalid *authzen.ValidationError
	if errors.As(err, &invalid) { // an item of a batch that could not be read
		return nil, nil
	}
	if err != nil || outcome.Template == "" {
		return nil, err
	}
	return &authzen.RequestableDenial{
		EvaluationID: evaluationID, Tenant: tenant, Caller: entry.Caller, Time: entry.Time,
		Revision: entry.Revision, Template: outcome.Template, Request: request,
	}, nil
}

// logged is what counts of an entry of the log.
type logged struct {
	ID       string           `json:"id"`
	Time     time.Time        `json:"time"`
	Tenant   string           `json:"tenant"`
	Kind     decisionlog.Kind `json:"kind"`
	Request  jsontext.Value   `json:"request"`
	Revision string           `json:"revision"`
	Caller   string           `json:"caller"`
}

// evaluation returns the request of an evaluation, or that of one item of a
// batch.
func (l *logged) evaluation(item string) (*authzen.EvaluationRequest, error) {
	switch {
	case l.Kind == decisionlog.KindEvaluation && item == "":
		request := new(authzen.EvaluationRequest)
		return request, authzen.Unmarshal(l.Request, request)
	case l.Kind == decisionlog.KindEvaluations && item != "":
		var batch authzen.EvaluationsRequest
		if err := authzen.Unmarshal(l.Request, &batch); err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(item)
		if items := batch.Items(); err == nil && n >= 0 && n < len(items) && items[n].Err == nil {
			return items[n].Request, nil
		}
	}
	return nil, authzen.ErrUnknownEvaluation
}

// around is how far an entry may stand from where its id belongs: entries are
// in the order in which they came to the log, and ids in that of their time.
const around = 2048

// find returns the entry of that id, nil for none. Ids that are made here sort
// by time, so that few entries need to be read.
func (e *Engine) find(ctx context.Context, id string) (*logged, error) {
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
func (e *Engine) entry(ctx context.Context, index int64) (*logged, error) {
	var line bytes.Buffer
	if _, err := e.log.Export(ctx, &line, index, index+1); err != nil {
		return nil, err
	}
	l := new(logged)
	return l, json.Unmarshal(line.Bytes(), l)
}

// scan looks for the id among some entries.
func (e *Engine) scan(ctx context.Context, id string, from, until int64) (*logged, error) {
	var lines bytes.Buffer
	if _, err := e.log.Export(ctx, &lines, from, until); err != nil {
		return nil, err
	}
	mark := fmt.Appendf(nil, `,"id":%q,`, id)
	for line := range bytes.Lines(lines.Bytes()) {
		if !bytes.Contains(line, mark) {
			continue
		}
		l := new(logged)
		if err := json.Unmarshal(line, l); err != nil || l.ID == id {
			return l, err
		}
	}
	return nil, nil
}

// Recorded reports whether the log has an entry of that id.
func (e *Engine) Recorded(ctx context.Context, id string) (bool, error) {
	found, err := e.find(ctx, id)
	return found != nil, err
}
