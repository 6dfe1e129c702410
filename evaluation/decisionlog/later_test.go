package decisionlog_test

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// An entry that nobody waits for shares the record of the next one, or gets its own
// after five milliseconds. A process that dies before loses it.
func TestAppendLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l, err := decisionlog.Open(dir, decisionlog.Config{})
		if err != nil {
			t.Fatal(err)
		}
		written := 0
		later := func(n int) {
			t.Helper()
			if err := l.AppendLater(t.Context(), entry(n), func(err error) {
				if err != nil {
					t.Error(err)
				}
				written++
			}); err != nil {
				t.Fatal(err)
			}
		}
		later(0)
		if left := verifyKilled(t, dir); left != 0 {
			t.Errorf("%d entries are on disk at once, want none", left)
		}
		mustAppend(t, l, entry(1))
		if n := decisionlog.Records(t, dir); n != 1 || written != 1 {
			t.Errorf("%d records for both entries, %d calls of done, want one of each", n, written)
		}
		later(2)
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		if left := verifyKilled(t, dir); left != 3 || written != 2 {
			t.Errorf("%d entries are on disk after the delay, %d calls of done, want 3 and 2", left, written)
		}
		later(3)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if report := verifyLog(t, dir); report.Entries != 4 || written != 3 {
			t.Errorf("%d entries are in the closed log, %d calls of done, want 4 and 3", report.Entries, written)
		}
		if err := l.AppendLater(t.Context(), entry(4), func(error) { t.Error("done is called for a refused entry") }); !errors.Is(err, decisionlog.ErrUnavailable) {
			t.Errorf("AppendLater to a closed log: %v", err)
		}
	})
}

// verifyKilled returns the number of entries of the log that a process leaves which
// dies now.
func verifyKilled(t *testing.T, dir string) int64 {
	t.Helper()
	left := t.TempDir()
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	l, err := decisionlog.Open(left, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return verifyLog(t, left).Entries
}

// An entry that nobody waits for and that does not fit is reported.
func TestAppendLaterFull(t *testing.T) {
	l, err := decisionlog.Open(t.TempDir(), decisionlog.Config{MaxSize: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = l.Append(t.Context(), bulky(10_000))
	}
	outcome := make(chan error, 1)
	if err := l.AppendLater(t.Context(), entry(0), func(err error) { outcome <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-outcome; !errors.Is(err, decisionlog.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
