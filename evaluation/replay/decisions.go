package replay

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	// ErrOtherwise means that the replay of a logged decision gave a different result. The program or its
	// input differs.
	ErrOtherwise = errors.New("decided otherwise than it was")
	// ErrMasked means that a logged request cannot be replayed because part of it is masked.
	ErrMasked = errors.New("it is masked")
	// ErrNoDecision means that an entry of the log does not record an evaluation.
	ErrNoDecision = errors.New("it records no evaluation")
)

// A Logged is a logged decision: an evaluation, or one item of a batch.
type Logged struct {
	ID       string // the Decision-ID; for item n of a batch, with the suffix .n
	Tenant   string
	Revision string
	Time     time.Time
	// Request is nil for an invalid item, which is always a denial. Errors holds the reason.
	Request *authzen.EvaluationRequest
	Masked  []string // JSON Pointers into Request, to the masked members
	decisionlog.Result
}

// ReadEntry parses an entry of the log from a line of the log's export.
func ReadEntry(line []byte) (*decisionlog.Entry, error) {
	var e decisionlog.Entry
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, fmt.Errorf("read log entry: %w", err)
	}
	return &e, nil
}

// Decisions returns the decisions of an entry. It returns an error for an entry that is masked or that
// records something else.
func Decisions(e *decisionlog.Entry) ([]Logged, error) {
	if masked := slices.DeleteFunc(slices.Clone(e.Masked), func(p string) bool { return !isOfRequest(p) }); len(masked) > 0 {
		return nil, fmt.Errorf("%w at %s", ErrMasked, strings.Join(masked, ", "))
	}
	return MaskedDecisions(e)
}

// MaskedDecisions is Decisions for an entry that may be masked. Before a replay, callers must check
// with [HiddenFrom] that the masks do not matter.
func MaskedDecisions(e *decisionlog.Entry) ([]Logged, error) {
	switch {
	case e.Kind == decisionlog.KindEvaluations:
		return itemsOf(e)
	case e.Kind != decisionlog.KindEvaluation || e.Result == nil:
		return nil, fmt.Errorf("%w but %q", ErrNoDecision, e.Kind)
	}
	var request authzen.EvaluationRequest
	if err := authzen.Unmarshal(e.Request, &request); err != nil {
		return nil, err
	}
	return []Logged{logged(e, -1, &request, *e.Result)}, nil
}

// itemsOf returns the decisions of a batch, which may have stopped before its last item.
func itemsOf(e *decisionlog.Entry) ([]Logged, error) {
	var batch authzen.EvaluationsRequest
	if err := authzen.Unmarshal(e.Request, &batch); err != nil {
		return nil, err
	}
	var out []Logged
	for i, item := range batch.Items()[:min(len(batch.Evaluations), len(e.Evaluations))] {
		if item.Err != nil {
			item.Request = nil
		}
		out = append(out, logged(e, i, item.Request, e.Evaluations[i]))
	}
	return out, nil
}

// logged returns the decision of an entry, or of one of its items.
func logged(e *decisionlog.Entry, item int, request *authzen.EvaluationRequest, r decisionlog.Result) Logged {
	id := e.ID
	if item >= 0 {
		id = fmt.Sprintf("%s.%d", e.ID, item)
	}
	return Logged{ID: id, Tenant: e.Tenant, Revision: e.Revision, Time: e.Time, Request: request, Masked: maskedIn(e.Masked, item), Result: r}
}

// Environment returns the environment of the decision.
func (l *Logged) Environment() snapshot.Environment {
	return snapshot.Environment{Time: l.Time, Approval: l.Approval, Capability: l.Capability, CapabilityDenied: l.CapabilityDenied}
}

func messages(all []decisionlog.PolicyError) string {
	var out []string
	for _, e := range all {
		out = append(out, e.Message)
	}
	return strings.Join(out, "; ")
}
