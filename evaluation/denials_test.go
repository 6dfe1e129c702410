package evaluation_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// AR-50, AR-65: an evaluation is resolved to what was asked and denied, as long
// as it is known and the policies are the same.
func TestDenial(t *testing.T) {
	e, _ := engine(t, approvalStore, evaluation.Config{})
	ids := make(map[string]string)
	ask := func(action string) {
		t.Helper()
		ids[action] = evaluation.NewDecisionID()
		call := evaluation.Call{ID: ids[action], Tenant: "acme", Caller: "gateway"}
		if _, err := e.Evaluate(t.Context(), call, request(t, question("user alice", action, "doc 1", `{"ticket":7}`))); err != nil {
			t.Fatal(err)
		}
	}
	for _, action := range []string{"wait", "read", "never", "unheard-of"} {
		ask(action)
		for range 300 { // others, before and behind
			if _, err := e.Evaluate(t.Context(), evaluation.Call{}, request(t, question("user bob", "read", "doc 1"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	ids["batch"] = evaluation.NewDecisionID()
	call := evaluation.Call{ID: ids["batch"], Tenant: "acme"}
	if _, err := e.Evaluations(t.Context(), call, batch(t, `{"subject":{"type":"user","id":"alice"},"resource":{"type":"doc","id":"1"},"evaluations":[{"action":{"name":"read"}},{"action":{"name":"wait"}},{"action":{}}]}`)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		tenant, id string
		found      bool
		unknown    bool
	}{
		{"acme", ids["wait"], true, false},
		{"acme", ids["read"], false, false},
		{"acme", ids["never"], false, false},
		{"acme", ids["unheard-of"], false, false},
		{"acme", ids["batch"] + ".1", true, false},
		{"acme", ids["batch"] + ".0", false, false},
		{"acme", ids["batch"] + ".2", false, true},
		{"acme", ids["batch"] + ".7", false, true},
		{"acme", ids["batch"], false, true},
		{"acme", ids["wait"] + ".0", false, true},
		{"globex", ids["wait"], false, true},
		{"acme", evaluation.NewDecisionID(), false, true},
		{"acme", "00000000-0000-7000-8000-000000000000", false, true},
		{"acme", "ffffffff-ffff-7fff-bfff-ffffffffffff", false, true},
		{"acme", `","id":"x`, false, true},
		{"acme", "", false, true},
	} {
		got, err := e.Denial(t.Context(), test.tenant, test.id)
		if (got != nil) != test.found || errors.Is(err, authzen.ErrUnknownEvaluation) != test.unknown || err != nil && !test.unknown {
			t.Errorf("%s %s: %+v, %v", test.tenant, test.id, got, err)
		}
	}
	got, err := e.Denial(t.Context(), "acme", ids["wait"])
	if err != nil || got.Template != "sre" || got.Caller != "gateway" || got.EvaluationID != ids["wait"] || string(got.Request.Context) != `{"ticket":7}` {
		t.Errorf("%+v, %v", got, err)
	}
	load(t, e, approvalStore+fmt.Sprintf("\n// %s", "changed"))
	if got, err := e.Denial(t.Context(), "acme", ids["wait"]); !errors.Is(err, authzen.ErrUnknownEvaluation) {
		t.Errorf("under other policies: %+v, %v", got, err)
	}
}

// An evaluation is known as soon as it was answered, however the log is kept,
// and however far its entry is from where its id belongs.
func TestDenialAtOnce(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	e := evaluation.NewEngine(l, evaluation.Config{})
	load(t, e, approvalStore)
	early := evaluation.NewDecisionID()
	ask := func(id, action string) {
		t.Helper()
		call := evaluation.Call{ID: id, Tenant: "acme"}
		if _, err := e.Evaluate(t.Context(), call, request(t, question("user alice", action, "doc 1", `{"ticket":7}`))); err != nil {
			t.Fatal(err)
		}
	}
	known := func(id string) {
		t.Helper()
		if got, err := e.Denial(t.Context(), "acme", id); err != nil || got.Template != "sre" {
			t.Errorf("right after the answer: %+v, %v", got, err)
		}
		if done, err := e.Recorded(t.Context(), id); !done || err != nil {
			t.Errorf("it is not recorded: %v, %v", done, err)
		}
	}
	for range 3000 {
		ask(evaluation.NewDecisionID(), "read")
	}
	ask(early, "wait")
	known(early)
	last := evaluation.NewDecisionID()
	ask(last, "wait")
	known(last)
	if done, err := e.Recorded(t.Context(), evaluation.NewDecisionID()); done || err != nil {
		t.Errorf("what was never recorded: %v, %v", done, err)
	}
}
