package pdp_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// keysOf reads the public keys of a log.
func keysOf(t *testing.T, state string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(state, decisionlog.PublicKeys))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// TestCheckpointSinks holds that the sinks get checkpoints that verify, the
// last of them over all that was answered, and that one which refuses gets
// another.
func TestCheckpointSinks(t *testing.T) {
	notes := make(chan string, 100)
	refused := false
	witness := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !refused {
			refused = true
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		note, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		notes <- string(note)
	}))
	defer witness.Close()
	file := filepath.Join(t.TempDir(), "checkpoints.jsonl")
	s := start(t, pdp.Config{DecisionLog: pdp.LogConfig{CheckpointFile: file, CheckpointURL: witness.URL}})
	for range 5 {
		post(t, http.DefaultClient, s.main+"/access/v1/evaluation", aliceReads)
	}
	keys := keysOf(t, s.state)
	<-notes // after one that was refused
	s.stop(t)

	var last *decisionlog.Checkpoint
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var kept struct {
			Note string `json:"note"`
		}
		if err := json.Unmarshal(line, &kept); err != nil {
			t.Fatal(err)
		}
		if last, err = decisionlog.ParseCheckpoint([]byte(kept.Note), keys); err != nil {
			t.Error(err)
		}
	}
	if last == nil || last.Size != 6 {
		t.Errorf("the last checkpoint in the file is %v, want one over 6 entries", last)
	}
}

// TestPruned holds that a service prunes what its configuration does not keep,
// and that its log verifies over the admin listener all the same.
func TestPruned(t *testing.T) {
	state := t.TempDir()
	earlier := func() time.Time { return time.Now().Add(-time.Hour) } // nothing removes the segments of the last minutes
	l, err := decisionlog.Open(state, decisionlog.Config{Durability: decisionlog.Batched, SegmentBytes: 1, Now: earlier})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 300 {
		if err := l.Append(t.Context(), &decisionlog.Entry{ID: fmt.Sprint(n), Time: earlier(), Kind: decisionlog.KindAdmin}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	s := start(t, pdp.Config{State: state, DecisionLog: pdp.LogConfig{SegmentBytes: 1, Retention: decisionlog.Retention{Bytes: 1}}})
	for path := filepath.Join(state, "log", "00000000000000000000.db"); ; {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			break
		}
		get(t, s.admin+"/livez")
	}
	_, bundle := get(t, s.admin+"/admin/v1/log/export?format=bundle")
	report, err := decisionlog.VerifyBundle(strings.NewReader(bundle), int64(len(bundle)), keysOf(t, state))
	if err != nil || report.First != 256 || report.Entries != report.Size-256 {
		t.Errorf("report %+v, %v", report, err)
	}
	if response, body := get(t, s.admin+pdp.PathLogEntries+"/0"); response.StatusCode != http.StatusGone || !strings.Contains(body, "pruned") {
		t.Errorf("a pruned entry: %s %s", response.Status, body)
	}
	if _, lines := get(t, s.admin+"/admin/v1/log/export?kind=pruned"); !strings.Contains(lines, `"request":{"from":0,"until":256,"reason":"size","all":[{"from":0,"until":256}]}`) {
		t.Errorf("no entry says what was pruned: %s", lines)
	}
}

// TestSecretsAreMasked holds that what looks like a secret decides, and is not
// in the log.
func TestSecretsAreMasked(t *testing.T) {
	s := start(t, pdp.Config{DecisionLog: pdp.LogConfig{Mask: []string{"pin"}}})
	body := strings.TrimSuffix(aliceReads, "}") + `,"context":{"api_key":"hush-1","pin":"hush-2","note":"hush-3"}}`
	if response, answer := post(t, http.DefaultClient, s.main+"/access/v1/evaluation", body); answer != `{"decision":true}` {
		t.Errorf("%s %s", response.Status, answer)
	}
	_, entry := get(t, s.admin+"/admin/v1/log/query?limit=1")
	for text, want := range map[string]bool{"hush-1": false, "hush-2": false, "hush-3": true, `"masked":["/request/context/api_key","/request/context/pin"]`: true} {
		if strings.Contains(entry, text) != want {
			t.Errorf("%s is in the log: %t, want %t:\n%s", text, !want, want, entry)
		}
	}
}

// TestRequestIDsAreMasked holds that a token that a client sends as the id of
// its request, or as a part of its resource, is nowhere in the log, and that
// the denial can be lifted all the same.
func TestRequestIDsAreMasked(t *testing.T) {
	s := start(t, pdp.Config{Policies: policySet(t, "agent-tools")})
	const token = "tok_eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.dozjgNryP4J3"
	const call = `{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"github.push_code"}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.main+authzen.PathEvaluation, strings.NewReader(call+`}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Request-ID", token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	denied, err := io.ReadAll(response.Body)
	if err != nil || response.Header.Get("X-Request-ID") != token {
		t.Fatalf("%s %q, %v", denied, response.Header.Get("X-Request-ID"), err)
	}
	asked, body := post(t, http.DefaultClient, s.main+authzen.PathRequests, filled(t, []byte(call+`,"denial":{
		"expires_at":"${denied/context/access_request/expires_at}","evaluation_id":"${denied/context/evaluation_id}"}}`), map[string]string{"denied": string(denied)}))
	if asked.StatusCode != http.StatusAccepted {
		t.Errorf("%s %s", asked.Status, body)
	}
	_, log := get(t, s.admin+pdp.PathLogExport)
	if strings.Contains(log, token[4:]) || !strings.Contains(log, `"request_id":"masked:`) {
		t.Errorf("the token is in the log, or no mask is:\n%s", log)
	}
}

// TestQueryStreams holds that a query answers with entries as large as requests
// may be without having them all in memory, says how many it selects, and
// refuses a kind that there is not.
func TestQueryStreams(t *testing.T) {
	state := t.TempDir()
	l, err := decisionlog.Open(state, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 60 {
		e := decisionlog.Entry{
			ID: fmt.Sprint("large-", n), Time: time.Unix(int64(n), 0), Kind: decisionlog.KindEvaluation, Tenant: "large",
			Request: jsontext.Value(`"` + strings.Repeat("x", 900_000) + `"`), Result: new(decisionlog.Result),
		}
		if err := l.Append(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := start(t, pdp.Config{State: state})
	peak := make(chan uint64)
	done := make(chan struct{})
	go func() {
		most := uint64(0)
		for look := time.NewTicker(time.Millisecond); ; {
			select {
			case <-look.C:
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
			case <-done:
				peak <- most
				return
			}
		}
	}()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	response, err := http.Get(s.admin + pdp.PathLogQuery + "?limit=50&tenant=large")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	size, err := io.Copy(io.Discard, response.Body)
	close(done)
	if took := int64(<-peak) - int64(before.HeapAlloc); err != nil || size < 50*900_000 || took > 32<<20 {
		t.Errorf("%d MiB took %d MiB of memory, %v", size>>20, took>>20, err)
	}
	if got := response.Header.Get(pdp.HeaderTotal); got != "60" {
		t.Errorf("%s: %q, want 60", pdp.HeaderTotal, got)
	}
	if response, body := get(t, s.admin+pdp.PathLogQuery+"?kind=aproval"); response.StatusCode != http.StatusBadRequest || !strings.Contains(body, "approval") {
		t.Errorf("a kind that there is not: %s %s", response.Status, body)
	}
}
