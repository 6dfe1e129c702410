package evaluation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// The version of the policies last in force is known after a restart, also when
// the entry about it is pruned, and where what is kept beside the log is lost or
// is another log's.
func TestFloor(t *testing.T) {
	dir, clock := t.TempDir(), now
	config := decisionlog.Config{SegmentBytes: 1, Now: func() time.Time { return clock }}
	open := func() (*evaluation.Engine, *decisionlog.Log) {
		t.Helper()
		l, err := decisionlog.Open(dir, config)
		if err != nil {
			t.Fatal(err)
		}
		return evaluation.NewEngine(l, evaluation.Config{}), l
	}
	floor := func(e *evaluation.Engine, want int64) {
		t.Helper()
		if got, err := e.Floor(t.Context()); err != nil || got != want {
			t.Errorf("the floor is %d, %v, not %d", got, err, want)
		}
	}
	reload := func(e *evaluation.Engine, version int64) {
		t.Helper()
		change := evaluation.Change{Archive: archive(fmt.Sprintf("@id(\"v%d\") permit (principal, action, resource);\n", version)), Cause: "change", Version: version}
		if _, err := e.Reload(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}

	e, l := open()
	floor(e, 0)
	reload(e, 7)
	reload(e, 0)
	if _, err := e.ReloadShadow(t.Context(), evaluation.Change{Archive: archive(tenanted), Cause: "change", Version: 9}); err != nil {
		t.Fatal(err)
	}
	floor(e, 7)
	beside := filepath.Join(dir, "floor")
	kept, err := os.ReadFile(beside)
	if err != nil {
		t.Fatal(err)
	}
	for name, lose := range map[string]func() error{
		"lost":          func() error { return os.Remove(beside) },
		"another log's": func() error { return os.WriteFile(beside, []byte(`{"key":"other+1+x","version":99}`), 0o600) },
	} {
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		floor(e, 7)
		if again, err := os.ReadFile(beside); err != nil || string(again) != string(kept) {
			t.Errorf("%s: %s, %v", name, again, err)
		}
	}

	for range 600 { // so that the entry about version 7 is in a segment that ends
		if _, err := e.Evaluate(t.Context(), evaluation.Call{}, askedIn(t).single); err != nil {
			t.Fatal(err)
		}
		l.Head() // has it committed: segments end between commits
	}
	clock = clock.Add(1000 * time.Hour)
	if n, err := l.Prune(t.Context(), decisionlog.Retention{Age: time.Hour}); err != nil || n < 256 {
		t.Fatalf("%d entries are pruned, %v", n, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	e, l = open()
	defer l.Close()
	floor(e, 7)
	if err := os.WriteFile(beside, []byte(`{"version":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Floor(t.Context()); err == nil {
		t.Errorf("the floor is %d, of a damaged file", got)
	}
}
