package pdp_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/pdp"
)

// loggedPolicies are the policies of the entries of entriesLog.
const loggedPolicies = `@id("readers")
permit (principal, action == Action::"read", resource);

@id("writers")
permit (principal, action == Action::"write", resource) when { context.token == "x" };
`

// entriesLog records entries of every state in which an explanation can be. It returns the file without
// which the archive lacks the policies of the entry "lost".
func entriesLog(t *testing.T, state string) (lostFile string) {
	t.Helper()
	log, err := decisionlog.Open(state, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	revision, err := log.KeepArchive(map[string][]byte{"a.cedar": []byte(loggedPolicies)})
	if err != nil {
		t.Fatal(err)
	}
	tenants, err := log.KeepArchive(map[string][]byte{"tenants/acme/a.cedar": []byte(loggedPolicies)})
	if err != nil {
		t.Fatal(err)
	}
	lost, err := log.KeepArchive(map[string][]byte{"b.cedar": []byte(loggedPolicies)})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(action, more string) jsontext.Value {
		return jsontext.Value(fmt.Sprintf(`{"subject":{"type":"user","id":"alice"},"action":{"name":%q},"resource":{"type":"doc","id":"1"}%s}`, action, more))
	}
	readers := &decisionlog.Result{Decision: true, Policies: []string{"readers"}}
	for _, e := range []*decisionlog.Entry{
		{ID: "allowed", Kind: decisionlog.KindEvaluation, Request: ask("read", ""), Result: readers, Revision: revision},
		{ID: "denied", Kind: decisionlog.KindEvaluation, Request: ask("delete", ""), Result: &decisionlog.Result{}, Revision: revision},
		{ID: "masked", Kind: decisionlog.KindEvaluation, Request: ask("write", `,"context":{"token":"ghp_0123456789abcdefghij0123456789abcdef"}`), Result: &decisionlog.Result{}, Revision: revision},
		{ID: "lost", Kind: decisionlog.KindEvaluation, Request: ask("read", ""), Result: readers, Revision: lost},
		{ID: "other", Kind: decisionlog.KindEvaluation, Request: ask("delete", ""), Result: readers, Revision: revision},
		{ID: "batch", Kind: decisionlog.KindEvaluations, Revision: revision, Evaluations: []decisionlog.Result{*readers, {}},
			Request: jsontext.Value(`{"subject":{"type":"user","id":"alice"},"resource":{"type":"doc","id":"1"},"evaluations":[{"action":{"name":"read"}},{"action":{"name":"delete"}}]}`)},
		{ID: "admin", Kind: decisionlog.KindAdmin, Request: jsontext.Value(`{"action":"x"}`)},
		{ID: "acme", Tenant: "acme", Kind: decisionlog.KindEvaluation, Request: ask("read", ""), Result: readers, Revision: revision},
		{ID: "nobody", Tenant: "nobody", Kind: decisionlog.KindEvaluation, Request: ask("read", ""), Result: &decisionlog.Result{}, Revision: tenants},
	} {
		e.Time = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
		if err := log.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(state, "archive", "revisions", strings.TrimPrefix(lost, "sha256:"))
}

// records are the entries of an answer.
func records(t *testing.T, lines []byte) (all []decisionlog.Record) {
	t.Helper()
	for line := range bytes.Lines(lines) {
		var r decisionlog.Record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// An entry is answered as it was recorded, by Decision-ID and by index.
func TestLogEntry(t *testing.T) {
	state := t.TempDir()
	entriesLog(t, state)
	s := start(t, pdp.Config{State: state})
	_, lines := get(t, s.admin+pdp.PathLogExport+"?until=9")
	for i, line := range strings.Split(strings.TrimSuffix(lines, "\n"), "\n") {
		var e decisionlog.Record
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{e.Entry.ID, fmt.Sprint(i)} {
			if response, body := get(t, s.admin+pdp.PathLogEntries+"/"+id); body != line || response.StatusCode != http.StatusOK {
				t.Errorf("%s: %s %s, want %s", id, response.Status, body, line)
			}
		}
	}
	for _, id := range []string{"batch.0", "batch.1"} {
		if response, body := get(t, s.admin+pdp.PathLogEntries+"/"+id); response.StatusCode != http.StatusOK || !strings.Contains(body, `"id":"batch"`) {
			t.Errorf("%s: %s %s", id, response.Status, body)
		}
	}
	for _, id := range []string{"none", "-1", "10000", "batch.2", "allowed.0", "99999999999999999999", "%00", ".."} {
		if response, body := get(t, s.admin+pdp.PathLogEntries+"/"+id); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s %s", id, response.Status, body)
		}
	}
}

// A decision is explained by the policies that made it. One that cannot be explained says why.
func TestLogEntryExplanation(t *testing.T) {
	state := t.TempDir()
	lost := entriesLog(t, state)
	s := start(t, pdp.Config{State: state})
	if err := os.Rename(lost, lost+".away"); err != nil {
		t.Fatal(err)
	}
	defer os.Rename(lost+".away", lost) // the whole log is verified at the end
	document := newOpenAPI(t)
	for id, want := range map[string]string{"allowed": "permitted by readers", "0": "permitted by readers", "denied": "no permit applies", "batch.0": "permitted by readers", "batch.1": "no permit applies"} {
		response, body := get(t, s.admin+pdp.PathLogEntries+"/"+id+"/explanation")
		var got explain.Explanation
		if err := json.Unmarshal([]byte(body), &got); err != nil || response.StatusCode != http.StatusOK || got.Because != want {
			t.Errorf("%s: %s %s %v, want %q", id, response.Status, body, err, want)
		}
	}
	for id, want := range map[string]pdp.Unexplained{
		"masked": {Reason: "masked"}, "lost": {Reason: "not_archived"}, "other": {Reason: "otherwise"}, "admin": {Reason: "no_decision"},
		"batch": {Reason: "no_item"}, "5": {Reason: "no_item"}, "nobody": {Reason: "unevaluated"},
	} {
		response, body := get(t, s.admin+pdp.PathLogEntries+"/"+id+"/explanation")
		document.check(t, "GET", pdp.PathLogEntries+"/:id/explanation", response.StatusCode, []byte(body))
		var got pdp.Unexplained
		if err := json.Unmarshal([]byte(body), &got); err != nil || response.StatusCode != http.StatusUnprocessableEntity || got.Reason != want.Reason || got.Message == "" {
			t.Errorf("%s: %s %s %v", id, response.Status, body, err)
		}
		if (got.Masked != nil) != (id == "masked") || (got.Different != nil) != (id == "other") {
			t.Errorf("%s: details %s", id, body)
		}
		if got.Masked != nil && (got.Masked.Path != "/context/token" || got.Masked.Policy != "writers") {
			t.Errorf("%s: masked is %+v", id, got.Masked)
		}
		if d := got.Different; d != nil && (d.Is.Decision || !d.Was.Decision || d.Was.Policies[0] != "readers") {
			t.Errorf("%s: different is %+v", id, d)
		}
	}
}

// An entry of another tenant and an unknown one have the same answer, also by index and after it was pruned.
func TestLogEntryOfTenants(t *testing.T) {
	d := newDesks(t)
	key := d.key("acme", pdp.ScopeAudit)
	for _, suffix := range []string{"", "/explanation", "/evidence"} {
		code, unknown := d.ask("GET", pdp.PathLogEntries+"/nothing"+suffix, key, "")
		if code != http.StatusNotFound {
			t.Errorf("%s: an unknown entry: %d", suffix, code)
		}
		_, other := d.ask("GET", fmt.Sprintf("%s/%d", pdp.PathLogEntries, d.index["globex"]), d.key("all", pdp.ScopeAudit), "")
		var e decisionlog.Record
		if err := json.Unmarshal(other, &e); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{fmt.Sprint(d.index["globex"]), fmt.Sprint(d.index[""]), e.Entry.ID, e.Entry.ID + ".0", "100000"} {
			if code, body := d.ask("GET", pdp.PathLogEntries+"/"+id+suffix, key, ""); code != http.StatusNotFound || string(body) != string(unknown) {
				t.Errorf("%s%s: %d %s, an unknown one is %s", id, suffix, code, body, unknown)
			}
		}
	}
}

// Evidence of an Access Request has its submission and the votes, the policies, and none of another tenant. It
// is a bundle that the package verifies.
func TestLogEntryEvidence(t *testing.T) {
	d := newDesks(t)
	decision, _ := d.decide()
	if code, body := d.ask("POST", decision, d.key("acme", pdp.ScopeApprove), `{"decision":"approve","comment":"for the release"}`); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	key := d.key("acme", pdp.ScopeAudit)
	task := strings.Split(decision, "/")[4]
	_, lines := d.ask("GET", pdp.PathLogQuery+"?task="+task, key, "")
	entries := records(t, lines)
	if len(entries) != 2 {
		t.Fatalf("%d entries of the request:\n%s", len(entries), lines)
	}
	for _, e := range entries {
		code, pack := d.ask("GET", fmt.Sprintf("%s/%d/evidence", pdp.PathLogEntries, e.Index), key, "")
		report, err := decisionlog.VerifyBundle(bytes.NewReader(pack), int64(len(pack)), keysOf(t, d.state))
		if code != http.StatusOK || err != nil || report.Entries != 2 {
			t.Errorf("evidence of entry %d: %d %+v %v", e.Index, code, report, err)
		}
	}
	_, lines = d.ask("GET", pdp.PathLogQuery+"?limit=1&action=tool.invoke&kind=evaluation&before="+entries[0].Time.Format(time.RFC3339Nano), key, "")
	denied := records(t, lines)[0]
	code, pack := d.ask("GET", pdp.PathLogEntries+"/"+denied.Entry.ID+"/evidence", key, "")
	report, err := decisionlog.VerifyBundle(bytes.NewReader(pack), int64(len(pack)), keysOf(t, d.state))
	if code != http.StatusOK || err != nil || report.Entries != 3 {
		t.Errorf("evidence of the denial: %d %+v %v", code, report, err)
	}
	if !bytes.Contains(pack, []byte("policies/"+strings.TrimPrefix(denied.Revision, "sha256:")+"/")) {
		t.Error("the policies of the denial are missing")
	}
}
