package evaluation

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Replay decides again what was logged: by the policies it was decided by,
// which must come to the same result, and then by a candidate. Where these
// differ, the candidate would change something.
//
// What is masked in the log cannot be decided again. Whether the policies read
// it is not asked: a mask is not what was sent.
type Replay struct {
	candidate *Snapshots
	archive   func(revision string) (map[string][]byte, error)
	compiled  map[string]*Snapshots // by revision
	flips     map[flip]*Flips
	report    ReplayReport
}

// NewReplay returns a replay that decides by candidate, and gets the policies
// of a logged revision from archive.
func NewReplay(candidate *Snapshots, archive func(revision string) (map[string][]byte, error)) *Replay {
	return &Replay{
		candidate: candidate,
		archive:   archive,
		compiled:  make(map[string]*Snapshots),
		flips:     make(map[flip]*Flips),
		report:    ReplayReport{Candidate: candidate.Revision()},
	}
}

// mostRevisions is how many revisions are kept compiled.
const mostRevisions = 16

// errNoReplay means that an entry records no decision.
var errNoReplay = errors.New("this entry records no decision")

// Add decides the entry of a line of the log again, if it records a decision.
// An error means that the line or the archive could not be read.
func (r *Replay) Add(line []byte) error {
	var logged decisionlog.Record
	if err := json.Unmarshal(line, &logged); err != nil {
		return fmt.Errorf("read log entry: %w", err)
	}
	if len(logged.Masked) > 0 {
		r.report.Masked++
		return nil
	}
	was, err := r.snapshots(logged.Revision)
	if err != nil && logged.Revision != "" {
		return fmt.Errorf("replay entry %d: %w", logged.Index, err)
	}
	before, err := redecide(was, &logged)
	if errors.Is(err, errNoReplay) {
		return nil
	}
	if err != nil || !sameResults(before, loggedResults(&logged)) {
		r.report.unfaithful(&logged, err)
		return nil
	}
	after, err := redecide(r.candidate, &logged)
	return r.compare(line, before, after, err)
}

// snapshots returns a logged revision, compiled.
func (r *Replay) snapshots(revision string) (*Snapshots, error) {
	if s := r.compiled[revision]; s != nil {
		return s, nil
	}
	files, err := r.archive(revision)
	if err != nil {
		return nil, err
	}
	s, err := CompileStore(files)
	if err != nil {
		return nil, fmt.Errorf("compile revision %s: %w", revision, err)
	}
	if len(r.compiled) >= mostRevisions {
		clear(r.compiled)
	}
	r.compiled[revision] = s
	return s, nil
}

// redecide decides the request of a log entry by other snapshots, at its time.
func redecide(s *Snapshots, logged *decisionlog.Record) ([]decisionlog.Result, error) {
	switch logged.Kind {
	case decisionlog.KindEvaluation:
		return redecideOne(s, logged)
	case decisionlog.KindEvaluations:
		return redecideBatch(s, logged)
	}
	return nil, errNoReplay
}

func redecideOne(s *Snapshots, logged *decisionlog.Record) ([]decisionlog.Result, error) {
	var request authzen.EvaluationRequest
	if err := authzen.Unmarshal(logged.Request, &request); err != nil {
		return nil, err
	}
	snapshot, err := s.For(logged.Tenant)
	if err != nil {
		return []decisionlog.Result{denied(err)}, nil
	}
	outcome, err := snapshot.Decide(&request, environmentOf(logged, logged.Result))
	if err != nil {
		return nil, err
	}
	outcome.Approval = logged.Approval
	return []decisionlog.Result{outcome.Result}, nil
}

func redecideBatch(s *Snapshots, logged *decisionlog.Record) ([]decisionlog.Result, error) {
	var request authzen.EvaluationsRequest
	if err := authzen.Unmarshal(logged.Request, &request); err != nil {
		return nil, err
	}
	snapshot, err := s.For(logged.Tenant)
	if err != nil {
		return nil, err
	}
	b := batch{describe: func(error) *authzen.Error { return nil }, one: func(n int, r *authzen.EvaluationRequest) (*Outcome, error) {
		var was decisionlog.Result // nothing, of an item behind the last that was decided
		if n < len(logged.Evaluations) {
			was = logged.Evaluations[n]
		}
		outcome, err := snapshot.Decide(r, environmentOf(logged, &was))
		if err == nil {
			outcome.Approval = was.Approval
			prefix(outcome.Obligations, itemPrefix(n))
		}
		return outcome, err
	}}
	b.decideAll(&request)
	return b.results, nil
}

// environmentOf returns the environment that a result of an entry was decided in.
func environmentOf(logged *decisionlog.Record, r *decisionlog.Result) Environment {
	return Environment{Time: logged.Time, Approval: r.Approval}
}

func loggedResults(logged *decisionlog.Record) []decisionlog.Result {
	if logged.Result != nil {
		return []decisionlog.Result{*logged.Result}
	}
	return logged.Evaluations
}

// sameResults reports whether two lists of results read the same in the log.
func sameResults(a, b []decisionlog.Result) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
