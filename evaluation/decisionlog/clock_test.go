package decisionlog_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// block is the granularity of segment boundaries.
const block = 256

// The order of entries does not depend on the clock, and the log verifies. A clock that goes back
// neither begins nor removes a segment. One that goes ahead does, as control.
func TestClockSteps(t *testing.T) {
	begin := time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)
	for _, test := range []struct {
		name   string
		step   time.Duration
		pruned bool
	}{
		{"an hour back", -time.Hour, false},
		{"ten years back", -10 * 365 * 24 * time.Hour, false},
		{"a leap second", -time.Second, false},
		{"an hour ahead", time.Hour, false},
		{"ten years ahead: the control", 10 * 365 * 24 * time.Hour, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			now := begin
			open := func() *decisionlog.Log {
				log, err := decisionlog.Open(dir, decisionlog.Config{Now: func() time.Time { return now }})
				if err != nil {
					t.Fatal(err)
				}
				return log
			}
			for range 2 {
				log := open()
				for range block {
					if err := log.Append(t.Context(), &decisionlog.Entry{ID: "e", Time: now, Kind: decisionlog.KindEvaluation, Request: []byte(`{}`), Result: new(decisionlog.Result)}); err != nil {
						t.Fatal(err)
					}
				}
				if err := log.Close(); err != nil {
					t.Fatal(err)
				}
				now = now.Add(test.step)
			}
			log := open()
			removed, err := log.Prune(t.Context(), decisionlog.Retention{Age: 365 * 24 * time.Hour})
			if err != nil || (removed > 0) != test.pruned {
				t.Errorf("%d entries were removed, %v", removed, err)
			}
			if test.pruned {
				if err := log.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			var lines bytes.Buffer
			if n, err := log.Export(t.Context(), &lines, 0, -1); err != nil || n != 2*block {
				t.Fatalf("%d entries, %v", n, err)
			}
			stepped := strings.Split(lines.String(), "\n")[block]
			if !strings.HasPrefix(stepped, `{"index":256,`) || !strings.Contains(stepped, begin.Add(test.step).Format("2006-01-02T15:04:05Z")) {
				t.Errorf("the entry behind the step: %s", stepped)
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := decisionlog.Verify(context.Background(), dir); err != nil {
				t.Error(err)
			}
		})
	}
}
