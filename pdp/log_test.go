package pdp_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
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
	keep := pdp.LogConfig{SegmentBytes: 1, Retention: decisionlog.Retention{Bytes: 1}}
	s := start(t, pdp.Config{State: state, DecisionLog: pdp.LogConfig{SegmentBytes: 1}})
	batch := `{"evaluations":[` + strings.Repeat(aliceReads+",", 9) + aliceReads + `]}`
	for range 300 {
		post(t, http.DefaultClient, s.main+"/access/v1/evaluations", batch)
	}
	s.stop(t)

	s = start(t, pdp.Config{State: state, DecisionLog: keep})
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
