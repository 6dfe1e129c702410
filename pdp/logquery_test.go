package pdp_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
)

// fillLog records n decisions of tenant acme in a log.
func fillLog(t *testing.T, state string, n int) {
	t.Helper()
	log, err := decisionlog.Open(state, decisionlog.Config{Durability: decisionlog.Batched})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		e := decisionlog.Entry{
			ID: fmt.Sprint("d-", i), Time: time.Unix(int64(i), 0), Kind: decisionlog.KindEvaluation, Tenant: "acme", Result: &decisionlog.Result{Decision: i%2 == 0},
			Request: jsontext.Value(fmt.Sprintf(`{"subject":{"type":"user","id":"u%d"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}`, i)),
		}
		if err := log.Append(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// A query that reads a part of the log says which, and the queries that continue there reach entry 0. An empty
// answer never looks like an empty log.
func TestQueryLooks(t *testing.T) {
	state := t.TempDir()
	fillLog(t, state, 4000)
	s := start(t, pdp.Config{State: state})
	ask := func(query string) (header http.Header, entries int) {
		t.Helper()
		response, body := get(t, s.admin+pdp.PathLogQuery+"?"+query)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s", query, response.Status, body)
		}
		return response.Header, strings.Count(body, "\n")
	}
	until, answers, found := "", 0, 0
	for more := true; more; answers++ {
		header, entries := ask("look=1500&limit=50&kind=evaluation&tenant=acme&subject=user:u0" + until)
		from, _, _ := strings.Cut(header.Get(pdp.HeaderLookedAt), "-")
		until, found = "&until="+from, found+entries
		more = header.Get(pdp.HeaderMore) == "true"
	}
	if answers != 3 || found != 1 {
		t.Errorf("%d answers with %d entries, want 3 with 1", answers, found)
	}
	if header, entries := ask("limit=50&until=1000"); entries != 50 || header.Get(pdp.HeaderLookedAt) != "950-1000" || header.Get(pdp.HeaderMore) != "true" {
		t.Errorf("%d entries, %v", entries, header)
	}
	if header, entries := ask("subject=nobody&until=1000"); entries != 0 || header.Get(pdp.HeaderLookedAt) != "0-1000" || header.Get(pdp.HeaderMore) != "" {
		t.Errorf("%d entries, %v", entries, header)
	}
	for _, query := range []string{"look=100001", "look=-1", "look=5&limit=0", "shadow=same", "errors=1", "resourse=x"} {
		if response, body := get(t, s.admin+pdp.PathLogQuery+"?"+query); response.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s %s", query, response.Status, body)
		}
	}
}

// Every filter goes through the query of a URL and back.
func TestFiltersInQueries(t *testing.T) {
	deny := false
	f := decisionlog.Filter{
		From: 1, Until: 9, Since: time.Unix(1, 5).UTC(), Before: time.Unix(9, 0).UTC(), Tenant: "acme", Subject: "user:alice", Decision: &deny, Policy: "p", ID: "i",
		Kind: decisionlog.KindEvaluation, Resource: "doc:1&2", Action: "a b", RequestID: "r", TraceID: "t", Task: "arq_1", Shadow: decisionlog.ShadowDiffers, Errors: true,
	}
	query, err := url.ParseQuery(f.Query().Encode())
	if err != nil {
		t.Fatal(err)
	}
	got, err := decisionlog.ParseQuery(query)
	if err != nil || got.Query().Encode() != f.Query().Encode() || len(query) != 17 {
		t.Errorf("%v: %+v, %v", query, got, err)
	}
}

// Exports have the formats of the command line. Cells of a table are no formulas.
func TestExportFormats(t *testing.T) {
	state := t.TempDir()
	fillLog(t, state, 10)
	s := start(t, pdp.Config{State: state})
	for format, want := range map[string]struct{ media, begins string }{
		"": {"application/jsonl", `{"index":0,`}, "jsonl": {"application/jsonl", `{"index":0,`}, "ocsf": {"application/jsonl", `{"activity_id":99,`},
		"csv": {"text/csv; charset=utf-8; header=present", "index,id,time,tenant,"}, "bundle": {"application/zip", "PK"},
	} {
		response, body := get(t, s.admin+pdp.PathLogExport+"?tenant=acme&format="+format)
		if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != want.media || !strings.HasPrefix(body, want.begins) {
			t.Errorf("%q: %s %s %.80s", format, response.Status, response.Header.Get("Content-Type"), body)
		}
	}
	if response, body := get(t, s.admin+pdp.PathLogExport+"?format=xml"); response.StatusCode != http.StatusBadRequest {
		t.Errorf("xml: %s %s", response.Status, body)
	}
	if _, lines := get(t, s.admin+pdp.PathLogExport+"?kind=admin"); lines != "" {
		t.Errorf("exports by programs are in the log, which would feed streams for ever: %s", lines)
	}
}
