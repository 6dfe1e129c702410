package decisionlog_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// descriptor returns the file descriptor of the segment in dir.
func descriptor(t *testing.T, dir string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == segmentPath(dir) {
			var fd int
			if _, err := fmt.Sscan(filepath.Base(link), &fd); err != nil {
				t.Fatal(err)
			}
			return fd
		}
	}
	t.Fatal("the segment is not open")
	return 0
}

func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	l, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, entry(0))
	if size := l.Head().Size; size != 1 {
		t.Fatalf("head has size %d, want 1", size)
	}
	segment := descriptor(t, dir)
	readOnly, err := os.Open(segmentPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	if err := syscall.Dup3(int(readOnly.Fd()), segment, syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, entry(1)) // it is in the journal
	if size := l.Head().Size; size != 1 {
		t.Errorf("head has size %d, want 1", size)
	}
	<-l.Failed()
	if err := l.Append(t.Context(), entry(2)); !errors.Is(err, decisionlog.ErrFailed) {
		t.Errorf("Append: %v, want ErrFailed", err)
	}
	if report := verifyCopy(t, dir); report.Entries != 2 {
		t.Errorf("%d entries, 2 were accepted", report.Entries)
	}
}

func TestTruncatedWhileOpen(t *testing.T) {
	dir := t.TempDir()
	l, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 0, 100)
	if size := l.Head().Size; size != 100 { // no commit is on its way
		t.Fatalf("head has size %d, want 100", size)
	}
	if err := os.Truncate(segmentPath(dir), 4096); err != nil {
		t.Fatal(err)
	}
	var integrity *decisionlog.IntegrityError
	if _, err := l.Verify(t.Context()); !errors.As(err, &integrity) {
		t.Errorf("Verify: %v, want an IntegrityError", err)
	}
	if err := l.Append(t.Context(), entry(100)); !errors.Is(err, decisionlog.ErrFailed) {
		t.Errorf("Append: %v, want ErrFailed", err)
	}
}
