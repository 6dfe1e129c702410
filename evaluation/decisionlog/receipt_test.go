package decisionlog_test

import (
	"testing"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// A receipt permits exactly what the log has as permit.
func TestReceiptMatchesTheLog(t *testing.T) {
	yes, no := decisionlog.Result{Decision: true}, decisionlog.Result{}
	for _, tt := range []struct {
		name  string
		entry decisionlog.Entry
		want  [4]bool // of items -1 to 2
	}{
		{"nothing", decisionlog.Entry{}, [4]bool{}},
		{"yes", decisionlog.Entry{Result: &yes}, [4]bool{1: true}},
		{"no", decisionlog.Entry{Result: &no}, [4]bool{}},
		{"a batch", decisionlog.Entry{Evaluations: []decisionlog.Result{no, yes}}, [4]bool{2: true}},
	} {
		l := openLog(t, t.TempDir(), decisionlog.Config{})
		e := entry(0)
		e.Result, e.Evaluations = tt.entry.Result, tt.entry.Evaluations
		recorded, err := l.Record(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		refused, err := l.Record(t.Context(), e)
		if err == nil {
			t.Errorf("%s: a closed log has recorded it", tt.name)
		}
		for i, want := range tt.want {
			if got := recorded.Decision(i - 1); got != want {
				t.Errorf("%s: item %d is %v, want %v", tt.name, i-1, got, want)
			}
			if refused.Decision(i - 1) {
				t.Errorf("%s: item %d is permitted without an entry", tt.name, i-1)
			}
		}
	}
}
