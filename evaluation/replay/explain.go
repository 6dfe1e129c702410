package replay

import (
	"errors"
	"fmt"
	"slices"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

var (
	// ErrNotArchived means that the log does not have the policies of a revision.
	ErrNotArchived = errors.New("the policies that decided are not in the archive")
	// ErrNotCompiled means that the archived policies do not compile in this version of the program.
	ErrNotCompiled = errors.New("the policies that decided do not compile in this version")
	// ErrNoItem means that an id names no single decision of its entry.
	ErrNoItem = errors.New("the id names no single decision")
	// ErrUnevaluated means that a decision is a denial without an evaluation.
	ErrUnevaluated = errors.New("no policy was evaluated")
)

// A Policies returns the policies of a revision.
type Policies func(revision string) (*snapshot.Snapshots, error)

// Archived returns the policies that read returns from the archive of a log.
func Archived(read func(revision string) (map[string][]byte, error)) Policies {
	return func(revision string) (*snapshot.Snapshots, error) {
		archive, err := read(revision)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotArchived, err)
		}
		snapshots, err := snapshot.CompileLogged(archive)
		if err != nil { // not the fault of any existing store, so the error is no faults.List
			return nil, fmt.Errorf("%w:\n%v", ErrNotCompiled, err)
		}
		return snapshots, nil
	}
}

// ExplainID explains the decision of an entry that has the id, by the policies that made it. The error is
// one of the errors of this package if the decision cannot be explained.
func ExplainID(e *decisionlog.Entry, id string, of Policies) (*Logged, *explain.Explanation, error) {
	logged, err := DecisionOf(e, id)
	if err != nil {
		return nil, nil, err
	}
	snapshots, err := of(logged.Revision)
	if err != nil {
		return nil, nil, err
	}
	compiled, err := snapshots.For(logged.Tenant)
	if err != nil {
		return nil, nil, fmt.Errorf("decision %s is a denial because no policies were asked: %w", logged.ID, unevaluated{err})
	}
	explanation, err := Explain(compiled, logged)
	return logged, explanation, err
}

// unevaluated is an error that also is [ErrUnevaluated].
type unevaluated struct{ error }

func (u unevaluated) Unwrap() []error { return []error{u.error, ErrUnevaluated} }

// DecisionOf returns the decision of an entry that has the id. Its request may be masked.
func DecisionOf(e *decisionlog.Entry, id string) (*Logged, error) {
	decisions, err := MaskedDecisions(e)
	if err != nil {
		return nil, fmt.Errorf("decision %s: %w", e.ID, err)
	}
	for i := range decisions {
		if decisions[i].ID == id {
			return &decisions[i], nil
		}
	}
	if e.Kind == decisionlog.KindEvaluations {
		return nil, noItem{fmt.Sprintf("%s is a batch of %d decisions: name one, the first is %[1]s.0", e.ID, len(decisions))}
	}
	return nil, noItem{e.ID + " is no batch"}
}

// noItem is a text that is [ErrNoItem].
type noItem struct{ text string }

func (n noItem) Error() string { return n.text }
func (noItem) Unwrap() error   { return ErrNoItem }

// A Different is the result of a replay that differs from the logged one.
type Different struct {
	ID  string     `json:"id"`
	Was Conclusion `json:"was"`
	Is  Conclusion `json:"is"`
}

// A Conclusion is a decision with its determining policies.
type Conclusion struct {
	Decision bool     `json:"decision"`
	Policies []string `json:"policies,omitempty"`
}

func (d *Different) Error() string {
	return fmt.Sprintf("decision %s: %v: it is %t by %q, and was %t by %q", d.ID, ErrOtherwise, d.Is.Decision, d.Is.Policies, d.Was.Decision, d.Was.Policies)
}

func (d *Different) Unwrap() error { return ErrOtherwise }

// Explain explains a logged decision of the snapshot. It replays the decision and returns
// [ErrOtherwise] if the result differs.
func Explain(s *snapshot.Snapshot, l *Logged) (*explain.Explanation, error) {
	if l.Request == nil {
		return nil, fmt.Errorf("decision %s is a denial because the item could not be read: %w", l.ID, unevaluated{errors.New(messages(l.Errors))})
	}
	if hidden := HiddenFrom(s, l); hidden != nil {
		return nil, fmt.Errorf("decision %s: %w", l.ID, hidden)
	}
	e, err := explain.Explain(s, l.Request, l.Environment())
	if err != nil {
		return nil, fmt.Errorf("decision %s: %w", l.ID, err)
	}
	if is := (Conclusion{e.Decision, e.DeterminingIDs()}); is.Decision != l.Decision || !slices.Equal(is.Policies, l.Policies) {
		return nil, &Different{l.ID, Conclusion{l.Decision, l.Policies}, is}
	}
	e.Shadow = l.Shadow
	return e, nil
}
