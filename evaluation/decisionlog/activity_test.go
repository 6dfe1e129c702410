package decisionlog_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// The summary counts what the decoded entries have, whatever their requests pretend.
func TestReadActivity(t *testing.T) {
	readable := 0
	l := openLog(t, t.TempDir(), decisionlog.Config{OnReadable: func() { readable++ }})
	all := slices.Concat(various(t, l), lifted(), calls())
	for i, trick := range []string{
		`{"context":{"decision":true,"x":"\"decision\":true,"}}`, `{"decision":false}`, `{"x":",\"kind\":\"admin\",\"tenant\":\"umbrella\""}`, `{"kind":"admin","tenant":"umbrella"}`,
	} {
		all = append(all, &decisionlog.Entry{ID: fmt.Sprint("trick-", i), Tenant: "acme", Kind: decisionlog.KindEvaluation, Request: jsontext.Value(trick), Result: &decisionlog.Result{Decision: i%2 == 1}})
	}
	all = append(all, &decisionlog.Entry{ID: `a","kind":"admin","tenant":"umbrella`, Tenant: "acme", Kind: decisionlog.KindEvaluation, Result: &decisionlog.Result{}})
	mustAppend(t, l, all...)
	if l.Head().Size != l.Readable() || readable == 0 {
		t.Errorf("%d entries are readable, and that was told %d times", l.Readable(), readable)
	}
	for _, tenants := range [][]string{nil, {"acme"}, {"umbrella", "initech"}, {}} {
		var want decisionlog.Activity
		var ids []string
		for _, line := range selected(t, l.Reader, decisionlog.Filter{Tenants: tenants}) {
			rows, err := decisionlog.ReadDecisions(line)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, rows[0].Entry.ID)
			for _, row := range rows {
				switch {
				case row.Result == nil || row.Kind != decisionlog.KindEvaluation && row.Kind != decisionlog.KindEvaluations:
				case row.Result.Decision:
					want.Allowed++
				default:
					want.Denied++
				}
			}
		}
		for _, most := range []int{0, 3, 1000} {
			got, err := l.ReadActivity(t.Context(), 0, 1000, tenants, most)
			if err != nil {
				t.Fatal(err)
			}
			var shown []string
			for _, item := range got.Entries {
				shown = append(shown, item.ID)
			}
			if wantShown := ids[max(0, len(ids)-most):]; !slices.Equal(shown, wantShown) {
				t.Errorf("%q: shown are %q, want %q", tenants, shown, wantShown)
			}
			if got.Allowed != want.Allowed || got.Denied != want.Denied || int(got.Omitted) != len(ids)-len(shown) || tenants == nil && got.Until != l.Readable() || len(ids) == 0 && got.Until != 0 {
				t.Errorf("%q: %+v, want %d allowed, %d denied", tenants, got, want.Allowed, want.Denied)
			}
		}
	}
}
