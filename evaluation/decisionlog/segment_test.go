package decisionlog_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// small is a configuration under which every block is a segment.
var small = decisionlog.Config{Durability: decisionlog.Batched, SegmentBytes: 1}

// segments lists the segments in dir by name.
func segments(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "log", "*.db"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// makeSegments makes a closed log of that many entries, a segment for each
// block.
func makeSegments(t testing.TB, size int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	l, err := decisionlog.Open(dir, small)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 0, size)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSegmentsBySize(t *testing.T) {
	dir := makeSegments(t, 700)
	if got := len(segments(t, dir)); got != 3 {
		t.Errorf("%d segments, want 3", got)
	}
	l := openLog(t, dir, small)
	fill(t, l, 700, 1100)
	wait(t, func() bool { return l.Head().Size == 1100 })
	if got := len(segments(t, dir)); got != 5 {
		t.Errorf("%d segments, want 5", got)
	}
	text := export(t, l.Reader)
	if got, want := referenceHead(t, text), l.Head(); got != want {
		t.Errorf("head = %v, that of the export %v", want, got)
	}
	if report, err := l.Verify(t.Context()); err != nil || report.Entries != 1100 {
		t.Errorf("report = %v, err = %v", report, err)
	}
	checkAllProofs(t, l.Reader, text, 37)
}

// checkAllProofs proves every step-th entry of an export, and that the log
// follows from each state it had after one of them.
func checkAllProofs(t testing.TB, r *decisionlog.Reader, text []byte, step int) {
	t.Helper()
	var reference referenceTree
	for line := range bytes.Lines(text) {
		reference.add(t, bytes.TrimSuffix(line, []byte("\n")))
	}
	head := r.Head()
	for n := 0; n < len(reference.leaves); n += step {
		proof, err := tlog.ProveRecord(head.Size, int64(n), r)
		if err == nil {
			err = tlog.CheckRecord(proof, head.Size, head.Root, int64(n), reference.leaves[n])
		}
		if err != nil {
			t.Fatalf("proof of entry %d: %v", n, err)
		}
		root, err := tlog.TreeHash(int64(n+1), &reference)
		if err != nil {
			t.Fatal(err)
		}
		follows, err := tlog.ProveTree(head.Size, int64(n+1), r)
		if err == nil {
			err = tlog.CheckTree(follows, head.Size, head.Root, int64(n+1), root)
		}
		if err != nil {
			t.Fatalf("size %d follows from %d: %v", head.Size, n+1, err)
		}
	}
}

func TestSegmentsByAge(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	cfg := decisionlog.Config{Now: func() time.Time { return now }}
	for day, size := range []int{300, 512, 520} {
		l, err := decisionlog.Open(dir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, l, int(l.Head().Size), size)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got, want := len(segments(t, dir)), []int{1, 1, 2}[day]; got != want {
			t.Errorf("day %d: %d segments, want %d", day, got, want)
		}
		now = now.Add(24 * time.Hour)
	}
	verifyLog(t, dir)
}

// A missing, truncated or foreign segment is found when the log is opened.
func TestDamagedSegmentsAreFound(t *testing.T) {
	other := makeSegments(t, 1000)
	for name, harm := range map[string]func(paths []string) error{
		"the first is gone":    func(paths []string) error { return os.Remove(paths[0]) },
		"one is gone":          func(paths []string) error { return os.Remove(paths[2]) },
		"the last is gone":     func(paths []string) error { return os.Remove(paths[3]) },
		"one is empty":         func(paths []string) error { return os.Truncate(paths[1], 0) },
		"one is cut off":       func(paths []string) error { return os.Truncate(paths[1], 3*4096) },
		"one is another's":     func(paths []string) error { return copyFile(segments(t, other)[1], paths[1]) },
		"one is in two places": func(paths []string) error { return copyFile(paths[1], paths[2]) },
		"one is its hashes":    func(paths []string) error { return os.Rename(paths[1], paths[1][:len(paths[1])-2]+"pruned") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := decisionlog.Open(dir, small)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 1000 {
				mustAppend(t, l, entry(n+1)) // one off the other's
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if err := harm(segments(t, dir)); err != nil {
				t.Fatal(err)
			}
			var integrity *decisionlog.IntegrityError
			if l, err := decisionlog.Open(dir, small); !errors.As(err, &integrity) {
				t.Errorf("Open: %v, want an IntegrityError", err)
				if err == nil {
					l.Close()
				}
			}
			if _, err := decisionlog.Verify(t.Context(), dir); !errors.As(err, &integrity) {
				t.Errorf("Verify: %v, want an IntegrityError", err)
			}
		})
	}
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// Verifying and reading find a changed byte of a sealed segment. Opening does not read it.
func TestSealedSegmentChanged(t *testing.T) {
	dir := makeSegments(t, 600)
	path := segments(t, dir)[1]
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(file, []byte(`"index":300,`))
	file = bytes.Replace(file, file[at:at+80], bytes.Replace(file[at:at+80], []byte("entry-300"), []byte("entry-3OO"), 1), 1)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = decisionlog.Verify(t.Context(), dir)
	checkIntegrity(t, err, 300)
}

// Reading finds a damaged page of a sealed segment. Opening does not read it.
func TestSealedPageDamaged(t *testing.T) {
	dir := makeSegments(t, 600)
	path := segments(t, dir)[0]
	file := readFile(t, path)
	page := bytes.Index(file, []byte(`"index":10,`)) / 4096 * 4096
	file[page+8] ^= 0xff // what kind of page it is
	writeFile(t, path, file)
	l, err := decisionlog.Open(dir, small)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var integrity *decisionlog.IntegrityError
	for range 2 {
		if _, err := l.Export(t.Context(), new(bytes.Buffer), 0, -1); !errors.As(err, &integrity) {
			t.Errorf("Export: %v, want an IntegrityError", err)
		}
	}
	if _, err := l.Export(t.Context(), new(bytes.Buffer), 256, -1); err != nil {
		t.Errorf("Export of the rest: %v", err)
	}
	mustAppend(t, l, entry(600))
}

// Missing files are noticed within five seconds, without appends.
func TestSegmentsWatched(t *testing.T) {
	for name, harm := range map[string]func(paths []string) error{
		"nothing":              func([]string) error { return nil },
		"a sealed one is gone": func(paths []string) error { return os.Remove(paths[0]) },
		"a sealed one is cut":  func(paths []string) error { return os.Truncate(paths[1], 4096) },
		"the last is gone":     func(paths []string) error { return os.Remove(paths[2]) },
		"the last is another": func(paths []string) error {
			return errors.Join(copyFile(paths[2], paths[2]+".copy"), os.Rename(paths[2]+".copy", paths[2]))
		},
		"the last is cut": func(paths []string) error { return os.Truncate(paths[2], 4096) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := makeSegments(t, 600)
			synctest.Test(t, func(t *testing.T) {
				l, err := decisionlog.Open(dir, small)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				if err := l.Err(); err != nil {
					t.Fatalf("before the harm: %v", err)
				}
				if err := harm(slices.Clone(segments(t, dir))); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if err := l.Err(); (err == nil) != (name == "nothing") {
					t.Errorf("after five seconds: %v", err)
				}
				_ = l.Close()
			})
		})
	}
}
