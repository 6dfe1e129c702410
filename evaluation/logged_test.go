package evaluation_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/replay"
)

// loggedStore decides by the time as well.
const loggedStore = `
@id("reads") permit (principal, action == Action::"read", resource);
@id("late") forbid (principal, action, resource == doc::"2") when { context.at > datetime("2026-01-01") };
-- config.yaml --
clock: at
`

// loggedDecisions returns the decisions of the log, after a single request and a batch.
func loggedDecisions(t *testing.T) (all []replay.Logged) {
	t.Helper()
	e, l := engine(t, loggedStore, evaluation.Config{})
	if _, err := e.Evaluate(t.Context(), evaluation.Call{}, askedIn(t).single); err != nil {
		t.Fatal(err)
	}
	items := question("user alice", "read", "doc 2") + `,{},` + question("user alice", "write", "doc 1")
	if _, err := e.Evaluations(t.Context(), evaluation.Call{}, batch(t, `{"evaluations":[`+items+`]}`)); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(export(t, l)) {
		entry, err := replay.ReadEntry(line)
		if err != nil {
			t.Fatal(err)
		}
		decisions, err := replay.Decisions(entry)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, decisions...)
	}
	return all
}

// A logged decision is explained as it was made, at its time.
func TestExplainLogged(t *testing.T) {
	s := compile(t, loggedStore)
	type told struct {
		Decision bool
		Policies int
		Err      string
	}
	var got []told
	for _, l := range loggedDecisions(t) {
		explanation, err := replay.Explain(s.Snapshot, &l)
		if err != nil {
			got = append(got, told{Err: err.Error()[len("decision ")+len(l.ID):]})
			continue
		}
		got = append(got, told{explanation.Decision, len(explanation.Determining), ""})
	}
	want := []told{
		{true, 1, ""},
		{false, 1, ""},
		{Err: " is a denial because the item could not be read: /evaluations/1/subject is required"},
		{false, 0, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("explanations (-want +got):\n%s", diff)
	}
}

// What does not come out as it was is not explained as if it had.
func TestExplainLoggedOtherwise(t *testing.T) {
	s := compile(t, loggedStore)
	for what, change := range map[string]func(*replay.Logged){
		"another decision": func(l *replay.Logged) { l.Decision = !l.Decision },
		"other policies":   func(l *replay.Logged) { l.Policies = []string{"other"} },
		"another request":  func(l *replay.Logged) { l.Request = request(t, question("user alice", "erase", "doc 1")) },
	} {
		l := loggedDecisions(t)[0]
		change(&l)
		if e, err := replay.Explain(s.Snapshot, &l); e != nil || !errors.Is(err, replay.ErrOtherwise) {
			t.Errorf("%s: explained %v, %v", what, e, err)
		}
	}
}
