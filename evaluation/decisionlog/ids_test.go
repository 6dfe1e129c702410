package decisionlog_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// An entry of a batched log is found as soon as it is accepted.
func TestLookupQueued(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	for n := range 3 {
		e := entry(n)
		e.ID = uuid.Must(uuid.NewV7()).String()
		mustAppend(t, l, e)
		if record, _, err := l.Lookup(t.Context(), e.ID); err != nil || record.Entry.ID != e.ID {
			t.Errorf("entry %d right after it was accepted: %v, %v", n, record, err)
		}
	}
}

// An entry far from the position of its id's time is found, also after the log is reopened.
func TestLookupSteppedClock(t *testing.T) {
	dir, start := t.TempDir(), time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	var ids []string
	add := func(l *decisionlog.Log, at time.Time, entries int) {
		t.Helper()
		for n := range entries {
			e := entry(n)
			e.Time, e.ID = at.Add(time.Duration(n)*time.Millisecond), idAt(at.Add(time.Duration(n)*time.Millisecond), len(ids))
			ids = append(ids, e.ID)
			mustAppend(t, l, e)
		}
	}
	check := func(l *decisionlog.Log) {
		t.Helper()
		for _, n := range []int{0, 1, 2499, 2500, 2501, 2502, 3000, 5500, 5501, 5502, len(ids) - 1} {
			if record, _, err := l.Lookup(t.Context(), ids[n]); err != nil || record.Index != int64(n) {
				t.Errorf("entry %d: %v, %v", n, record, err)
			}
		}
		for _, id := range []string{idAt(start, 9999), idAt(start.Add(-time.Minute), 1), idAt(start.Add(20*time.Minute), 1), idAt(time.Now(), 1)} {
			if record, _, err := l.Lookup(t.Context(), id); !errors.Is(err, decisionlog.ErrNoEntry) {
				t.Errorf("an id that none has: %v, %v", record, err)
			}
		}
	}
	l, err := decisionlog.Open(dir, decisionlog.Config{Durability: decisionlog.Batched, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	add(l, start.Add(10*time.Minute), 2500) // the clock is ten minutes fast
	add(l, start.Add(time.Millisecond), 1)
	add(l, start, 1) // 2,501 entries later than its id suggests
	add(l, start.Add(10*time.Minute), 3000)
	add(l, start.Add(-30*time.Minute), 2)
	check(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, dir, decisionlog.Config{})
	check(l)
	add(l, start.Add(5*time.Minute), 3)
	check(l)
}

// The search for an unknown id allocates little, for entries of any size.
func TestLookupCopiesNothing(t *testing.T) {
	dir := t.TempDir()
	large := func() *decisionlog.Entry {
		e := bulky(900_000)
		e.ID = uuid.Must(uuid.NewV7()).String()
		return e
	}
	l, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		mustAppend(t, l, large())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, dir, decisionlog.Config{})
	for range 20 {
		mustAppend(t, l, large())
	}
	_ = l.Head() // flushed first, so that the commit is not counted
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 4 {
		if _, _, err := l.Lookup(t.Context(), uuid.Must(uuid.NewV7()).String()); !errors.Is(err, decisionlog.ErrNoEntry) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 256<<10 {
		t.Errorf("four ids that no entry has took %d bytes", took)
	}
}
