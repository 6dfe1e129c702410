package main

import (
	"bytes"
	"encoding/csv"
	"os/exec"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// makeVaried makes a log of entries that are different.
func makeVaried(t *testing.T) (state, revision string) {
	t.Helper()
	state = t.TempDir()
	l, err := decisionlog.Open(state, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if revision, err = l.KeepArchive(map[string][]byte{"a.cedar": []byte("a")}); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 9, 0, 0, 123456789, time.UTC)
	for _, e := range []*decisionlog.Entry{
		{ID: "start", Time: at, Kind: decisionlog.KindReload, Request: jsontext.Value(`{"cause":"start"}`), Result: &decisionlog.Result{Decision: true}, Revision: revision},
		{ID: "one", Time: at, Kind: decisionlog.KindEvaluation, Tenant: "acme", Caller: "gateway", LatencyMicros: 42, Revision: revision,
			Request: jsontext.Value(`{"subject":{"type":"user","id":"=alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}`),
			Result: &decisionlog.Result{Decision: true, Policies: []string{"a b", "c"}, Obligations: []authzen.Obligation{{ID: "1", Type: "notification"}},
				Shadow: &decisionlog.Shadow{Revision: revision, Result: decisionlog.Result{Errors: []decisionlog.PolicyError{{Policy: "p", Message: "no x"}, {Message: "evaluation_error"}}}}}},
		{ID: "many", Time: at, Kind: decisionlog.KindEvaluations, Request: jsontext.Value(`{"subject":{"type":"user","id":"bob"},"evaluations":[{},{}]}`),
			Evaluations: []decisionlog.Result{{Errors: []decisionlog.PolicyError{{Message: "no action"}}}, {Decision: true}}},
		{ID: "key", Time: at, Kind: decisionlog.KindAdmin},
	} {
		if err := l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	return state, revision
}

// runExport runs log export.
func runExport(t *testing.T, state, format string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	export := exec.Command("policy-service", "log", "export", "--state", state, "--format", format)
	export.Stderr = &stderr
	out, err := export.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return out
}

// TestParquet holds that the file has the columns and rows of the table in CSV,
// and that values are what they were.
func TestParquet(t *testing.T) {
	state, revision := makeVaried(t)
	text := runExport(t, state, formatParquet)
	file, err := parquet.OpenFile(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	table, err := csv.NewReader(bytes.NewReader(runExport(t, state, decisionlog.FormatCSV))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, field := range file.Schema().Fields() {
		columns = append(columns, field.Name())
	}
	if diff := cmp.Diff(table[0], columns); diff != "" {
		t.Errorf("columns (-CSV +Parquet):\n%s", diff)
	}
	rows, err := parquet.Read[parquetRow](bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(table)-1 {
		t.Fatalf("%d rows, the table has %d", len(rows), len(table)-1)
	}
	at := time.Date(2026, 11, 20, 9, 0, 0, 123456789, time.UTC)
	yes, no, of := true, false, func(s string) *string { return &s }
	want := []parquetRow{
		{Index: 0, ID: "start", Time: at, Kind: "reload", Decision: &yes, Revision: &revision},
		{Index: 1, ID: "one", Time: at, Tenant: of("acme"), Kind: "evaluation", SubjectType: of("user"), SubjectID: of("=alice"), Action: of("read"),
			ResourceType: of("doc"), ResourceID: of("1"), Decision: &yes, Policies: []string{"a b", "c"}, Obligations: []string{"notification"},
			Revision: &revision, Caller: of("gateway"), LatencyUS: 42,
			ShadowDecision: &no, ShadowErrors: []parquetError{{of("p"), "no x"}, {nil, "evaluation_error"}}, ShadowRevision: &revision},
		{Index: 2, ID: "many.0", Time: at, Kind: "evaluations", SubjectType: of("user"), SubjectID: of("bob"), Decision: &no, Errors: []parquetError{{nil, "no action"}}},
		{Index: 2, ID: "many.1", Time: at, Kind: "evaluations", SubjectType: of("user"), SubjectID: of("bob"), Decision: &yes},
		{Index: 3, ID: "key", Time: at, Kind: "admin"},
	}
	if diff := cmp.Diff(want, rows, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
