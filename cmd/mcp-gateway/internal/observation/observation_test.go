package observation_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/observation"
)

func open(t *testing.T, path string) *observation.Summary {
	t.Helper()
	s, err := observation.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func rows(t *testing.T, s *observation.Summary) []observation.Row {
	t.Helper()
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	all, err := s.Rows()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func seen(name, refusal string, hour int) *observation.Row {
	at := time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC)
	return &observation.Row{
		Key:   observation.Key{Server: "files", Method: "tools/call", Name: name, Caller: "user::alice", Refusal: refusal},
		Calls: 1, First: at, Last: at, Decision: fmt.Sprint("d", hour),
	}
}

// Two processes count together, and what they have counted outlives both.
func TestSummary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "observed.db")
	one, two := open(t, path), open(t, path)
	one.Add(seen("write", "denied", 1))
	one.Add(seen("write", "denied", 2))
	one.Add(seen("read", "", 3))
	rows(t, one)
	two.Add(seen("write", "denied", 4))
	two.Add(seen("write", "", 5))
	want := []observation.Row{*seen("read", "", 3), *seen("write", "", 5), *seen("write", "denied", 4)}
	want[2].Calls, want[2].First = 3, seen("", "", 1).First
	if diff := cmp.Diff(want, rows(t, two)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, rows(t, open(t, path))); diff != "" {
		t.Error(diff)
	}
	taken, err := one.Take()
	if diff := cmp.Diff(want, taken); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if got := rows(t, two); got != nil {
		t.Errorf("after Take: %v", got)
	}
}

// Names that clients invent do not fill the disk, and no call is lost.
func TestSummaryIsBounded(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "observed.db"))
	const calls = observation.MaxRows + 500
	for n := range calls {
		s.Add(seen(fmt.Sprint("file:///", n), "denied", 1))
		if n%4000 == 0 {
			rows(t, s)
		}
	}
	all := rows(t, s)
	if len(all) > observation.MaxRows+1 {
		t.Errorf("%d rows", len(all))
	}
	sum := int64(0)
	for _, row := range all {
		sum += row.Calls
	}
	if sum != calls || all[0].Name != "" || all[0].Calls < 400 {
		t.Errorf("%d calls of %d; the first row is %+v", sum, calls, all[0])
	}
}
