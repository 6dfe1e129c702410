package main

import (
	"bytes"
	"encoding/csv"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// entries are lines of a log that are different.
func entries(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/entries.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// tableOf is the table in CSV that log export makes of lines.
func tableOf(t *testing.T, text []byte) [][]string {
	t.Helper()
	var out bytes.Buffer
	encoder, err := decisionlog.NewEncoder(&out, decisionlog.FormatCSV)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if err := encoder.Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := encoder.Flush(); err != nil {
		t.Fatal(err)
	}
	table, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestConvert holds that the file has the columns and rows of the table in CSV,
// and that values are what they were.
func TestConvert(t *testing.T) {
	var text bytes.Buffer
	if err := convert(bytes.NewReader(entries(t)), &text); err != nil {
		t.Fatal(err)
	}
	whole := bytes.NewReader(text.Bytes())
	file, err := parquet.OpenFile(whole, whole.Size())
	if err != nil {
		t.Fatal(err)
	}
	table := tableOf(t, entries(t))
	var columns []string
	for _, field := range file.Schema().Fields() {
		columns = append(columns, field.Name())
	}
	if diff := cmp.Diff(table[0], columns); diff != "" {
		t.Errorf("columns (-CSV +Parquet):\n%s", diff)
	}
	rows, err := parquet.Read[row](whole, whole.Size())
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(table)-1 {
		t.Fatalf("%d rows, the table has %d", len(rows), len(table)-1)
	}
	at := time.Date(2026, 11, 20, 9, 0, 0, 123456789, time.UTC)
	revision := "sha256:1c7b4cfbbe41254b7f8ac5d48c50f9226cb0aae3c3286142ffe75493d7b2dcd4"
	yes, no, of := true, false, func(s string) *string { return &s }
	want := []row{
		{Index: 0, ID: "start", Time: at, Kind: "reload", Decision: &yes, Revision: &revision},
		{Index: 1, ID: "one", Time: at, Tenant: of("acme"), Kind: "evaluation", SubjectType: of("user"), SubjectID: of("=alice"), Action: of("read"),
			ResourceType: of("doc"), ResourceID: of("1"), Decision: &yes, Policies: []string{"a b", "c"}, Obligations: []string{"notification"},
			Revision: &revision, Caller: of("gateway"), LatencyUS: 42,
			ShadowDecision: &no, ShadowErrors: []policyError{{of("p"), "no x"}, {nil, "evaluation_error"}}, ShadowRevision: &revision},
		{Index: 2, ID: "many.0", Time: at, Kind: "evaluations", SubjectType: of("user"), SubjectID: of("bob"), Decision: &no, Errors: []policyError{{nil, "no action"}}},
		{Index: 2, ID: "many.1", Time: at, Kind: "evaluations", SubjectType: of("user"), SubjectID: of("bob"), Decision: &yes},
		{Index: 3, ID: "key", Time: at, Kind: "admin"},
		{Index: 4, ID: "vote", Time: at, Kind: "approval", SubjectType: of("user"), SubjectID: of("alice"), Action: of("deploy"), ResourceType: of("doc"), ResourceID: of("1"),
			Event: of("approve"), Task: of("arq_1"), TaskStatus: of("approved"), Approval: of("apr_1"), Template: of("sre"), Approvers: []string{"user::carol"},
			Channel: of("api"), Comment: of("go"), ApprovedUntil: &at},
		{Index: 5, ID: "used", Time: at, Kind: "evaluation", Decision: &yes, Task: of("arq_1"), Approval: of("apr_1"), Template: of("sre"),
			Approvers: []string{"user::carol"}, Channel: of("api"), ApprovedUntil: &at},
	}
	if diff := cmp.Diff(want, rows, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// What is not whole lines of a log is no file.
func TestConvertRefuses(t *testing.T) {
	text := string(entries(t))
	for name, from := range map[string]string{
		"a broken end":      strings.TrimSuffix(text, "\n"),
		"another text":      "policy-service: no such log\n",
		"a line in between": strings.Replace(text, "\n", "\n\n", 1),
	} {
		var out bytes.Buffer
		err := convert(strings.NewReader(from), &out)
		if err == nil {
			t.Errorf("%s is converted", name)
		}
		if _, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len())); err == nil {
			t.Errorf("%s makes a file that can be read", name)
		}
	}
}
