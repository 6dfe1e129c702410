package decisionlog_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// openLog opens the log in dir. When the test ends, it closes and verifies it.
func openLog(t testing.TB, dir string, cfg decisionlog.Config) *decisionlog.Log {
	t.Helper()
	l, err := decisionlog.Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		verifyLog(t, dir)
	})
	return l
}

// verifyLog verifies a closed log, and that bbolt finds no fault in it either.
func verifyLog(t testing.TB, dir string) *decisionlog.Report {
	t.Helper()
	report, err := decisionlog.Verify(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range segments(t, dir) {
		checkSegment(t, path)
	}
	return report
}

// verifyCopy verifies a copy of a log that is open.
func verifyCopy(t *testing.T, dir string) *decisionlog.Report {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy")
	copyDir(t, dir, copied)
	return verifyLog(t, copied)
}

func checkSegment(t testing.TB, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		for fault := range tx.Check() {
			t.Errorf("bbolt: %s: %v", path, fault)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func segmentPath(dir string) string {
	return filepath.Join(dir, "log", "00000000000000000000.db")
}

// entry is the entry number n of a test.
func entry(n int) *decisionlog.Entry {
	return &decisionlog.Entry{
		ID:      fmt.Sprintf("entry-%d", n),
		Time:    time.Date(2026, 11, 20, 9, 0, 0, n*1000, time.UTC),
		Kind:    decisionlog.KindEvaluation,
		Request: jsontext.Value(`{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}`),
		Result:  &decisionlog.Result{Decision: n%2 == 0, Policies: []string{"owner"}},
	}
}

// bulky is an entry with a request of that many bytes.
func bulky(bytes int) *decisionlog.Entry {
	e := entry(0)
	e.Request = jsontext.Value(`"` + strings.Repeat("x", bytes-2) + `"`)
	return e
}

func mustAppend(t testing.TB, l *decisionlog.Log, entries ...*decisionlog.Entry) {
	t.Helper()
	for _, e := range entries {
		if err := l.Append(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// fill appends the entries [from, until) of a test.
func fill(t testing.TB, l *decisionlog.Log, from, until int) {
	t.Helper()
	for n := from; n < until; n++ {
		mustAppend(t, l, entry(n))
	}
}

func export(t testing.TB, r *decisionlog.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := r.Export(context.Background(), &out, 0, -1); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// line is an exported line.
type line struct {
	Index int64 `json:"index"`
	decisionlog.Entry
}

func lines(t testing.TB, r *decisionlog.Reader) []line {
	t.Helper()
	var all []line
	for text := range bytes.Lines(export(t, r)) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		all = append(all, l)
	}
	return all
}

// wait waits for a state that other goroutines are about to reach.
func wait(t testing.TB, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !reached(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}
