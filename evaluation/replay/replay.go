package replay

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Replay repeats logged decisions, first with the logged policies and then with a candidate. The
// logged policies must give the same result. A different result of the candidate is a change.
//
// It repeats a masked decision if the masked values matter neither for the logged policies nor for the
// candidate; see [HiddenFrom].
type Replay struct {
	candidate *snapshot.Snapshots
	archive   func(revision string) (map[string][]byte, error)
	compiled  map[string]*snapshot.Snapshots // by revision
	flips     Tally
	hidden    map[Hidden]*NotReplayable
	report    Report
}

// New returns a Replay for candidate. It reads the policies of a logged revision from archive.
func New(candidate *snapshot.Snapshots, archive func(revision string) (map[string][]byte, error)) *Replay {
	return &Replay{
		candidate: candidate,
		archive:   archive,
		compiled:  make(map[string]*snapshot.Snapshots),
		hidden:    make(map[Hidden]*NotReplayable),
		report:    Report{Candidate: candidate.Revision()},
	}
}

// mostRevisions is the number of compiled revisions in the cache.
const mostRevisions = 16

// Add replays a line of the log if it records a decision. An error means that the line or the archive
// could not be read.
func (r *Replay) Add(line []byte) error {
	var record decisionlog.Record
	if err := json.Unmarshal(line, &record); err != nil {
		return fmt.Errorf("read log entry: %w", err)
	}
	logged, err := MaskedDecisions(&record.Entry)
	switch {
	case errors.Is(err, ErrNoDecision):
		return nil
	case err != nil:
		r.report.unfaithful(&record, err)
		return nil
	}
	if path := maskedResult(record.Masked); path != "" { // a masked result cannot be compared
		r.skip(record.ID, &Hidden{Path: path})
		return nil
	}
	was, err := r.snapshots(record.Revision)
	if err != nil && record.Revision != "" {
		return fmt.Errorf("replay entry %d: %w", record.Index, err)
	}
	if hidden := hiddenIn(was, logged); hidden != nil {
		r.skip(record.ID, hidden)
		return nil
	}
	before, err := redecide(was, logged)
	if err != nil || !sameResults(before, logged) {
		r.report.unfaithful(&record, err)
		return nil
	}
	if hidden := hiddenIn(r.candidate, logged); hidden != nil {
		r.skip(record.ID, hidden)
		return nil
	}
	if len(record.Masked) > 0 {
		r.report.DecidedMasked++
	}
	after, err := redecide(r.candidate, logged)
	return r.compare(line, before, after, err)
}

// hiddenIn returns a masked value that matters for one of the decisions, or nil.
func hiddenIn(s *snapshot.Snapshots, logged []Logged) *Hidden {
	for i := range logged {
		compiled, err := s.For(logged[i].Tenant)
		if err != nil {
			continue // denied before any policy is evaluated
		}
		if hidden := HiddenFrom(compiled, &logged[i]); hidden != nil {
			return hidden
		}
	}
	return nil
}

// skip counts an entry that cannot be replayed.
func (r *Replay) skip(id string, why *Hidden) {
	r.report.Masked++
	known := r.hidden[*why]
	if known == nil {
		known = &NotReplayable{Hidden: *why}
		r.hidden[*why] = known
	}
	known.Count++
	if len(known.Examples) < mostExamples {
		known.Examples = append(known.Examples, id)
	}
}

// snapshots returns the compiled snapshots of a logged revision.
func (r *Replay) snapshots(revision string) (*snapshot.Snapshots, error) {
	if s := r.compiled[revision]; s != nil {
		return s, nil
	}
	files, err := r.archive(revision)
	if err != nil {
		return nil, err
	}
	s, err := snapshot.CompileLogged(files)
	if err != nil {
		return nil, fmt.Errorf("compile revision %s: %w", revision, err)
	}
	if len(r.compiled) >= mostRevisions {
		clear(r.compiled)
	}
	r.compiled[revision] = s
	return s, nil
}

// redecide repeats logged decisions with other snapshots.
func redecide(s *snapshot.Snapshots, logged []Logged) ([]decisionlog.Result, error) {
	out := make([]decisionlog.Result, len(logged))
	for i := range logged {
		again, err := logged[i].again(s)
		if err != nil {
			return nil, err
		}
		out[i] = again
	}
	return out, nil
}

// again repeats a decision with other snapshots in the logged environment. An invalid item remains a
// denial.
func (l *Logged) again(s *snapshot.Snapshots) (decisionlog.Result, error) {
	if l.Request == nil {
		return l.Result, nil
	}
	compiled, err := s.For(l.Tenant)
	if err != nil {
		return snapshot.DeniedResult(err), nil
	}
	outcome, err := compiled.Decide(l.Request, l.Environment())
	_, item, isItem := strings.Cut(l.ID, ".")
	var invalid *authzen.ValidationError
	switch {
	case isItem && errors.As(err, &invalid):
		return snapshot.DeniedResult(invalid.Below("/evaluations/" + item)), nil
	case err != nil:
		return decisionlog.Result{}, err
	case isItem:
		snapshot.PrefixObligations(outcome.Obligations, item+".")
	}
	result := outcome.Result()
	result.Approval, result.Capability, result.CapabilityDenied, result.Shadow = l.Approval, l.Capability, l.CapabilityDenied, l.Shadow
	return result, nil
}

// inFormOf returns a result whose notifications have the form of the logged ones, if the two differ
// only in the draft of the profile.
func inFormOf(again decisionlog.Result, logged []authzen.Obligation) decisionlog.Result {
	again.Obligations = slices.Clone(again.Obligations)
	for i := range again.Obligations {
		if i < len(logged) && sameNotification(&again.Obligations[i], &logged[i]) {
			again.Obligations[i].Properties = logged[i].Properties
		}
	}
	return again
}

// sameResults reports whether repeated decisions have the same log records.
func sameResults(again []decisionlog.Result, logged []Logged) bool {
	for i := range again {
		x, errX := json.Marshal(inFormOf(again[i], logged[i].Obligations))
		y, errY := json.Marshal(logged[i].Result)
		if errX != nil || errY != nil || !bytes.Equal(x, y) {
			return false
		}
	}
	return true
}
