package decisionlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// aged makes a closed log of five segments of a block each, begun on the first
// five days of a month, with a few entries more.
func aged(t testing.TB) (dir string, whole []byte) {
	t.Helper()
	dir = t.TempDir()
	for n := range 5 {
		l, err := decisionlog.Open(dir, agedConfig(1+n))
		if err != nil {
			t.Fatal(err)
		}
		fill(t, l, int(l.Head().Size), 256*(n+1)+1)
		if n == 4 {
			wait(t, func() bool { return l.Head().Size == 256*5+1 })
			whole = export(t, l.Reader)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir, whole
}

// agedConfig is that of a log on some day of the month. Its segments, of which
// the first is of the first day, are of the day their second entry was on.
func agedConfig(day int) decisionlog.Config {
	cfg := small
	cfg.Now = func() time.Time { return time.Date(2026, 11, day, 12, 0, 0, 0, time.UTC) }
	return cfg
}

func TestPrune(t *testing.T) {
	day := 24 * time.Hour
	hold := func(text string) []decisionlog.Period {
		var p decisionlog.Period
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return []decisionlog.Period{p}
	}
	made, whole := aged(t)
	for _, tt := range []struct {
		name      string
		retention decisionlog.Retention
		want      []int64 // first indexes of the remaining segments
	}{
		{"nothing", decisionlog.Retention{}, []int64{0, 256, 512, 768, 1024, 1280}},
		{"by age", decisionlog.Retention{Age: 8 * day}, []int64{512, 768, 1024, 1280}},
		{"by age, all", decisionlog.Retention{Age: time.Hour}, []int64{1280}},
		{"by size", decisionlog.Retention{Bytes: 1}, []int64{1280}},
		{"by size, large", decisionlog.Retention{Bytes: 1 << 40}, []int64{0, 256, 512, 768, 1024, 1280}},
		{"held", decisionlog.Retention{Age: time.Hour, Hold: hold("2026-11-02/2026-11-03")}, []int64{256, 512, 1280}},
		{"held from", decisionlog.Retention{Age: time.Hour, Hold: hold("2026-11-04/")}, []int64{768, 1024, 1280}},
		{"held until", decisionlog.Retention{Age: time.Hour, Hold: hold("/2026-11-02T00:00:00Z")}, []int64{0, 256, 1280}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			copyDir(t, made, dir)
			l := openLog(t, dir, agedConfig(10))
			for range 2 { // the second call removes nothing
				if _, err := l.Prune(t.Context(), tt.retention); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, firsts(t, dir)); diff != "" {
				t.Errorf("segments (-want +got):\n%s", diff)
			}
			fill(t, l, 1, 20) // the log continues
			checkPruned(t, l.Reader, whole, tt.want)
			report, err := l.Verify(t.Context())
			if want := int64(256 * (6 - len(tt.want))); err != nil || report.Pruned != want {
				t.Errorf("report %v, %v, want %d pruned", report, err, want)
			}
		})
	}
}

// Whatever the limit on bytes, segments of the last five minutes stay: a start reads them for proofs.
func TestNewSegmentsAreNotPruned(t *testing.T) {
	dir, _ := aged(t)
	for _, tt := range []struct {
		after time.Duration
		want  []int64
	}{{4 * time.Minute, []int64{1024, 1280}}, {5 * time.Minute, []int64{1280}}} {
		cfg := agedConfig(5)
		day := cfg.Now()
		cfg.Now = func() time.Time { return day.Add(tt.after) }
		l := openLog(t, dir, cfg)
		if _, err := l.Prune(t.Context(), decisionlog.Retention{Bytes: 1}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, firsts(t, dir)); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", tt.after, diff)
		}
	}
}

func firsts(t testing.TB, dir string) []int64 {
	t.Helper()
	var all []int64
	for _, path := range segments(t, dir) {
		n, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(path), ".db"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// checkPruned checks that what is left of a log is what it was, that every
// entry of it can be proved, that the log follows from each state it had at
// the end of a block, and that it knows what is gone.
func checkPruned(t *testing.T, r *decisionlog.Reader, whole []byte, left []int64) {
	t.Helper()
	var reference referenceTree
	var want []byte
	head := r.Head()
	n := int64(0)
	for line := range bytes.Lines(whole) {
		reference.add(t, bytes.TrimSuffix(line, []byte("\n")))
		there := false
		for _, first := range left {
			there = there || first <= n && n < first+256
		}
		proof, err := tlog.ProveRecord(head.Size, n, r)
		switch {
		case there:
			want = append(want, line...)
			if err == nil {
				err = tlog.CheckRecord(proof, head.Size, head.Root, n, reference.leaves[n])
			}
			if err != nil {
				t.Fatalf("proof of entry %d: %v", n, err)
			}
		case !errors.Is(err, decisionlog.ErrPruned):
			t.Fatalf("proof of entry %d, which is pruned: %v", n, err)
		}
		n++
		if n%256 == 0 {
			if err := r.Continues(reference.head(t)); err != nil {
				t.Errorf("from size %d: %v", n, err)
			}
		}
	}
	if got := export(t, r); !bytes.HasPrefix(got, want) {
		t.Error("what is left is not what it was")
	}
}

// A segment whose hashes do not lead to the next is not pruned: it is evidence.
func TestPruneRefuses(t *testing.T) {
	dir, _ := aged(t)
	before := tlog.Hash(leftOf(t, dir, 0))
	editFile(t, segmentOf(dir, 256), func(entries, _ *bbolt.Bucket) error {
		value := bytes.Clone(entries.Get(key(511)))
		for i := range tlog.HashSize { // of the block, and of the two blocks: they agree
			value[8*tlog.HashSize+i] ^= 1
		}
		above := tlog.NodeHash(before, tlog.Hash(value[8*tlog.HashSize:][:tlog.HashSize]))
		copy(value[9*tlog.HashSize:], above[:])
		return entries.Put(key(511), value)
	})
	l, err := decisionlog.Open(dir, agedConfig(10))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = l.Prune(t.Context(), decisionlog.Retention{Age: 8 * 24 * time.Hour})
	checkIntegrity(t, err, 256)
	if _, err := os.Stat(segmentOf(dir, 256)); err != nil {
		t.Errorf("the segment is gone: %v", err)
	}
}

// The hashes of a pruned segment are checked against the tree, and an entry must name it.
func TestDamagedPrunedSegmentIsFound(t *testing.T) {
	made, _ := aged(t)
	l, err := decisionlog.Open(made, agedConfig(10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Prune(t.Context(), decisionlog.Retention{Age: 8 * 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func(dir string) error{
		"the hashes are gone":    func(dir string) error { return os.Remove(prunedPath(dir, 256)) },
		"the hashes are changed": func(dir string) error { return flipByte(prunedPath(dir, 256)) },
		"the hashes are cut off": func(dir string) error { return os.Truncate(prunedPath(dir, 256), 3) },
		"a segment is gone, its hashes are there": func(dir string) error {
			return errors.Join(os.WriteFile(prunedPath(dir, 1024), leftOf(t, dir, 1024), 0o600), os.Remove(segmentOf(dir, 1024)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			copyDir(t, made, dir)
			if err := harm(dir); err != nil {
				t.Fatal(err)
			}
			var integrity *decisionlog.IntegrityError
			if _, err := decisionlog.Verify(t.Context(), dir); !errors.As(err, &integrity) {
				t.Errorf("Verify: %v, want an IntegrityError", err)
			}
		})
	}
}

func prunedPath(dir string, first int) string {
	return filepath.Join(dir, "log", fmt.Sprintf("%020d.pruned", first))
}

func flipByte(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text[len(text)/2] ^= 1
	return os.WriteFile(path, text, 0o600)
}

func segmentOf(dir string, first int) string {
	return filepath.Join(dir, "log", fmt.Sprintf("%020d.db", first))
}

// leftOf returns the hashes that the segment of a block would leave behind.
func leftOf(t *testing.T, dir string, first int) (left []byte) {
	t.Helper()
	r, err := decisionlog.OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var indexes []int64
	for level := 8; (first+256)%(1<<level) == 0; level++ {
		indexes = append(indexes, tlog.StoredHashIndex(level, int64(first>>level)))
	}
	hashes, err := r.ReadHashes(indexes)
	if err != nil {
		t.Fatal(err)
	}
	for _, hash := range hashes {
		left = append(left, hash[:]...)
	}
	return left
}
