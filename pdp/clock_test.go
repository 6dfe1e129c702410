package pdp_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
)

// A step of the host's clock in either direction is in the log. The passing of time is not.
func TestClockSteps(t *testing.T) {
	state := t.TempDir()
	log, err := decisionlog.Open(state, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var program output
	look := make(chan time.Time)
	type reading struct {
		wall   time.Time
		passed time.Duration
	}
	readings := make(chan reading)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- pdp.WatchClock(ctx, look, func() (time.Time, time.Duration) {
			r := <-readings
			return r.wall, r.passed
		}, log, slog.New(slog.NewTextHandler(&program, nil)))
	}()
	now := reading{wall: time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)}
	readings <- now
	for _, step := range []time.Duration{
		0, 100 * time.Millisecond, -time.Hour, 0, time.Hour, -10 * 365 * 24 * time.Hour, time.Second /* a leap second */, 0,
	} {
		now = reading{now.wall.Add(time.Second + step), now.passed + time.Second}
		look <- time.Time{}
		readings <- now
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := decisionlog.Verify(t.Context(), state); err != nil {
		t.Error(err)
	}
	reader, err := decisionlog.OpenReadOnly(state)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var lines bytes.Buffer
	if _, err := reader.Export(t.Context(), &lines, 0, -1); err != nil {
		t.Fatal(err)
	}
	want := []string{"-3600000}", "3600000}", "-315360000000}", "1000}"}
	got := strings.Split(lines.String(), `"action":"clock_step","step_ms":`)[1:]
	if len(got) != len(want) {
		t.Fatalf("entries:\n%s", lines.String())
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("step %d: %s, want %s", i, got[i], want[i])
		}
	}
	if n := strings.Count(program.String(), "the clock was set"); n != len(want) {
		t.Errorf("the service's own log says it %d times:\n%s", n, program.String())
	}
}
