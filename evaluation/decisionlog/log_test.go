package decisionlog_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	for round := range 10 {
		l, err := decisionlog.Open(dir, decisionlog.Config{Durability: decisionlog.Durability(round % 2)})
		if err != nil {
			t.Fatal(err)
		}
		if size := l.Head().Size; size != int64(round*7) {
			t.Fatalf("round %d: size = %d", round, size)
		}
		fill(t, l, round*7, round*7+7)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	report := verifyLog(t, dir)
	want := &decisionlog.Report{
		Entries:   70,
		Root:      report.Root,
		FirstTime: entry(0).Time,
		LastTime:  entry(69).Time,
	}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	r, err := decisionlog.OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if diff := cmp.Diff(decisionlog.Head{Size: 70, Root: report.Root}, r.Head()); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	l, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decisionlog.Open(dir, decisionlog.Config{}); !errors.Is(err, decisionlog.ErrLocked) {
		t.Errorf("second Open: %v, want ErrLocked", err)
	}
	if _, err := decisionlog.OpenReadOnly(dir); !errors.Is(err, decisionlog.ErrLocked) {
		t.Errorf("OpenReadOnly beside Open: %v, want ErrLocked", err)
	}
	if _, err := decisionlog.Verify(t.Context(), dir); !errors.Is(err, decisionlog.ErrLocked) {
		t.Errorf("Verify beside Open: %v, want ErrLocked", err)
	}
	mustAppend(t, l, entry(0))
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}

	r, err := decisionlog.OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := decisionlog.Open(dir, decisionlog.Config{}); !errors.Is(err, decisionlog.ErrLocked) {
		t.Errorf("Open beside OpenReadOnly: %v, want ErrLocked", err)
	}
	verifyLog(t, dir)
}

func TestOpenAtOnce(t *testing.T) {
	dir := t.TempDir()
	const openers = 16
	logs := make(chan *decisionlog.Log, openers)
	var done sync.WaitGroup
	for range openers {
		done.Go(func() {
			l, err := decisionlog.Open(dir, decisionlog.Config{})
			if err == nil {
				logs <- l
			} else if !errors.Is(err, decisionlog.ErrLocked) {
				t.Error(err)
			}
		})
	}
	done.Wait()
	close(logs)
	if len(logs) > 1 {
		t.Errorf("%d have the log open", len(logs))
	}
	for l := range logs {
		mustAppend(t, l, entry(0))
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "log", "*"))
	if diff := cmp.Diff([]string{segmentPath(dir)}, left); diff != "" || err != nil {
		t.Errorf("files (-want +got):\n%s%v", diff, err)
	}
}

func TestOpenReadOnlyWithoutLog(t *testing.T) {
	if _, err := decisionlog.OpenReadOnly(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenReadOnly of an empty directory: %v", err)
	}
}

func TestForeignSegment(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	later := filepath.Join(dir, "log", "00000000000000005000.db")
	if err := os.WriteFile(later, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := decisionlog.Open(dir, decisionlog.Config{}); err == nil {
		l.Close()
		t.Error("a directory with another segment opens as a new log")
	}
}

func TestAppendAfterClose(t *testing.T) {
	for _, durability := range []decisionlog.Durability{decisionlog.Strict, decisionlog.Batched} {
		l, err := decisionlog.Open(t.TempDir(), decisionlog.Config{Durability: durability})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(t.Context(), entry(0)); !errors.Is(err, decisionlog.ErrUnavailable) {
			t.Errorf("%v: Append after Close: %v, want ErrUnavailable", durability, err)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	for name, request := range map[string]string{
		"half an object":   `{"a":`,
		"a name twice":     `{"a":1,"\u0061":2}`,
		"no UTF-8":         "\"\xff\"",
		"more than a line": `"` + strings.Repeat("x", 16<<20) + `"`,
	} {
		e := entry(0)
		e.Request = jsontext.Value(request)
		err := l.Append(t.Context(), e)
		if err == nil || errors.Is(err, decisionlog.ErrUnavailable) || errors.Is(err, decisionlog.ErrFailed) {
			t.Errorf("%s: Append: %v", name, err)
		}
	}
	mustAppend(t, l, entry(0))
}

func TestReplacedFile(t *testing.T) {
	dir := t.TempDir()
	l, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, entry(0))
	if err := os.Rename(segmentPath(dir), segmentPath(dir)+".old"); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), entry(1)); !errors.Is(err, decisionlog.ErrFailed) {
		t.Errorf("Append: %v, want ErrFailed", err)
	}
	<-l.Failed()
	for name, err := range map[string]error{
		"Append": l.Append(t.Context(), entry(2)),
		"Err":    l.Err(),
		"Close":  l.Close(),
	} {
		if !errors.Is(err, decisionlog.ErrFailed) {
			t.Errorf("%s after a failure: %v, want ErrFailed", name, err)
		}
	}
}

// A log notices soon that its journal was deleted. Entries accepted meanwhile are in the segment.
func TestMissingJournalIsNoticed(t *testing.T) {
	dir := t.TempDir()
	l, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, entry(0))
	if err := os.Remove(filepath.Join(dir, "log", "journal.1")); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, entry(1))
	select {
	case <-l.Failed():
	case <-time.After(5 * time.Second):
		t.Fatal("the log goes on without its journal")
	}
	if report := verifyCopy(t, dir); report.Entries != 2 {
		t.Errorf("%d entries, 2 were accepted", report.Entries)
	}
}

func TestDurabilityText(t *testing.T) {
	for _, want := range []decisionlog.Durability{decisionlog.Strict, decisionlog.Batched} {
		var got decisionlog.Durability
		if err := got.UnmarshalText([]byte(want.String())); err != nil || got != want {
			t.Errorf("%v: got %v, %v", want, got, err)
		}
	}
	if err := new(decisionlog.Durability).UnmarshalText([]byte("Strict")); err == nil {
		t.Error("Strict with a capital is read")
	}
}
