package decisionlog_test

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// The fault program is short in tests; make faults runs it at full length.
var (
	mutations = flag.Int("mutations", 1, "how often TestMutations changes a log in each way")
	kills     = flag.Int("kills", 6, "how often TestKillAnywhere kills a program")
	images    = flag.Int("images", 40, "how many crash images TestPowerLoss makes, and its control")
	faults    = flag.Int("faults", 2, "how many calls of each kind TestIOFaults lets fail")
)

// A mutation changes the files of a log of four segments. The last has 232 entries.
type mutation struct {
	name   string
	change func(t *testing.T, r *rand.Rand, dir, root string) // root has other and older logs
}

// changeEntries returns a mutation of the entries of a random segment.
func changeEntries(change func(r *rand.Rand, b *bbolt.Bucket, first int) error) func(*testing.T, *rand.Rand, string, string) {
	return func(t *testing.T, r *rand.Rand, dir, _ string) {
		n := r.IntN(4)
		editFile(t, segments(t, dir)[n], func(entries, _ *bbolt.Bucket) error { return change(r, entries, 256*n) })
	}
}

var mutationKinds = []mutation{
	{"a bit of a live page", func(t *testing.T, r *rand.Rand, dir, _ string) {
		path := segments(t, dir)[r.IntN(4)]
		file := readFile(t, path)
		at := bytes.Index(file, []byte(`{"index":`)) + r.IntN(2000) // lines, from the first of some page
		file[at] ^= 1 << r.IntN(8)
		writeFile(t, path, file)
	}},
	{"a file cut off", func(t *testing.T, r *rand.Rand, dir, _ string) {
		path := segments(t, dir)[r.IntN(4)]
		writeFile(t, path, readFile(t, path)[:r.IntN(64<<10)])
	}},
	{"an entry deleted", changeEntries(func(r *rand.Rand, b *bbolt.Bucket, first int) error {
		return b.Delete(key(first + r.IntN(230)))
	})},
	{"two entries swapped", changeEntries(func(r *rand.Rand, b *bbolt.Bucket, first int) error {
		i := first + r.IntN(200)
		j := i + 1 + r.IntN(30)
		a, c := bytes.Clone(b.Get(key(i))), bytes.Clone(b.Get(key(j)))
		return errors.Join(b.Put(key(i), c), b.Put(key(j), a))
	})},
	{"an entry inserted", changeEntries(func(r *rand.Rand, b *bbolt.Bucket, first int) error {
		i := first + r.IntN(230)
		return b.Put(append(key(i), byte(r.IntN(256))), b.Get(key(i)))
	})},
	{"an entry copied to another place", changeEntries(func(r *rand.Rand, b *bbolt.Bucket, first int) error {
		i := first + r.IntN(100)
		return b.Put(key(i+1+r.IntN(100)), bytes.Clone(b.Get(key(i))))
	})},
	{"another history without the key", func(t *testing.T, r *rand.Rand, dir, root string) {
		restore(t, r, dir, root)
		if err := forge(dir, 1000+r.IntN(50)); err != nil {
			t.Fatal(err)
		}
	}},
	{"an older state", restore},
	{"an empty log", func(t *testing.T, _ *rand.Rand, dir, _ string) {
		if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
			t.Fatal(err)
		}
	}},
	{"a segment of another log", func(t *testing.T, r *rand.Rand, dir, root string) {
		n := r.IntN(4)
		path := segments(t, dir)[n]
		writeFile(t, path, readFile(t, filepath.Join(root, "other", "log", filepath.Base(path))))
	}},
}

// restore restores the original log.
func restore(t *testing.T, r *rand.Rand, dir, root string) {
	t.Helper()
	older := filepath.Join(root, "older", []string{"100", "300", "900"}[r.IntN(3)])
	if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	copyDir(t, filepath.Join(older, "log"), filepath.Join(dir, "log"))
}

func editFile(t testing.TB, path string, change func(entries, meta *bbolt.Bucket) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0, &bbolt.Options{NoFreelistSync: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		return change(tx.Bucket([]byte("entries")), tx.Bucket([]byte("meta")))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func writeFile(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyDir(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, path[len(from):])
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		return copyFile(path, target)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Each random change of a log's files is found by opening or by verifying. The control is a copied
// log.
func TestMutations(t *testing.T) {
	root := t.TempDir()
	whole := filepath.Join(root, "whole")
	makeHistory(t, whole, filepath.Join(root, "older"), 0)
	makeHistory(t, filepath.Join(root, "other"), "", 1)
	copyDir(t, whole, filepath.Join(root, "copied"))
	if err := discovered(t, filepath.Join(root, "copied")); err != nil {
		t.Errorf("control: %v", err)
	}
	for n, kind := range mutationKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(5, uint64(n)))
			found := 0
			for range *mutations {
				dir := filepath.Join(root, "mutated", strconv.Itoa(n))
				copyDir(t, whole, dir)
				kind.change(t, r, dir, root)
				if err := discovered(t, dir); err != nil {
					found++
				} else {
					t.Error("it is not found")
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d of %d found", found, *mutations)
		})
	}
}

// discovered returns the error of verifying, or of opening if there is nothing to verify.
func discovered(t *testing.T, dir string) error {
	t.Helper()
	_, err := decisionlog.Verify(t.Context(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		var l *decisionlog.Log
		if l, err = decisionlog.Open(dir, small); err == nil {
			err = l.Close()
		}
	}
	var integrity *decisionlog.IntegrityError
	if err != nil && !errors.As(err, &integrity) {
		t.Errorf("%v, want an IntegrityError", err)
	}
	return err
}

// makeHistory creates a log of 1,000 entries in dir, and copies of earlier states.
func makeHistory(t *testing.T, dir, older string, offset int) {
	t.Helper()
	sizes := []int{100, 300, 900, 1000}
	for _, size := range sizes {
		l, err := decisionlog.Open(dir, small)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, l, int(l.Head().Size)+offset, size+offset)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for _, path := range segments(t, dir) {
			writeFile(t, path, compact(t, path))
		}
		if older != "" && size < slices.Max(sizes) {
			copyDir(t, dir, filepath.Join(older, map[int]string{100: "100", 300: "300", 900: "900"}[size]))
		}
	}
}
