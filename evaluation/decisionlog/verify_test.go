package decisionlog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// makeLog makes a closed log with size entries and returns its directory. The
// entry 2 is the first that names a revision.
func makeLog(t testing.TB, size int) (dir, revision string) {
	t.Helper()
	dir = t.TempDir()
	l, err := decisionlog.Open(dir, decisionlog.Config{Durability: decisionlog.Batched})
	if err != nil {
		t.Fatal(err)
	}
	revision, err = l.KeepArchive(map[string][]byte{"a.cedar": []byte("a"), "tests/b.yaml": []byte("b")})
	if err != nil {
		t.Fatal(err)
	}
	for n := range size {
		e := entry(n)
		if n >= 2 {
			e.Revision = revision
		}
		mustAppend(t, l, e)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, revision
}

// edit changes a closed log without the package.
func edit(t testing.TB, dir string, change func(entries, meta *bbolt.Bucket) error) {
	t.Helper()
	db, err := bbolt.Open(segmentPath(dir), 0, &bbolt.Options{NoFreelistSync: true})
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

func key(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// checkIntegrity checks that err is an IntegrityError about the entry at index.
func checkIntegrity(t *testing.T, err error, index int64) {
	t.Helper()
	var integrity *decisionlog.IntegrityError
	switch {
	case !errors.As(err, &integrity):
		t.Errorf("%v, want an IntegrityError", err)
	case integrity.Index != index:
		t.Errorf("index = %d (%v), want %d", integrity.Index, err, index)
	}
}

func TestTampering(t *testing.T) {
	const size = 40
	flip := func(b []byte, i int) []byte {
		b = bytes.Clone(b)
		b[i] ^= 1
		return b
	}
	for _, tt := range []struct {
		name   string
		index  int64
		change func(entries, meta *bbolt.Bucket) error
	}{
		{"nothing", size, func(entries, meta *bbolt.Bucket) error { return nil }},
		{"a byte of a line", 7, func(entries, _ *bbolt.Bucket) error {
			v := entries.Get(key(7))
			return entries.Put(key(7), flip(v, bytes.Index(v, []byte("alice"))))
		}},
		{"the index in a line", 7, func(entries, _ *bbolt.Bucket) error {
			v := entries.Get(key(7))
			return entries.Put(key(7), bytes.Replace(v, []byte(`"index":7`), []byte(`"index":8`), 1))
		}},
		{"a line that is no JSON", 7, func(entries, _ *bbolt.Bucket) error {
			v := entries.Get(key(7))
			return entries.Put(key(7), flip(v, len(v)-1))
		}},
		{"the hash of a leaf", 11, func(entries, _ *bbolt.Bucket) error {
			return entries.Put(key(11), flip(entries.Get(key(11)), 0))
		}},
		{"the hash of a node", 15, func(entries, _ *bbolt.Bucket) error {
			return entries.Put(key(15), flip(entries.Get(key(15)), 4*tlog.HashSize))
		}},
		{"a value cut off", 15, func(entries, _ *bbolt.Bucket) error {
			return entries.Put(key(15), bytes.Clone(entries.Get(key(15))[:5*tlog.HashSize]))
		}},
		{"an entry deleted", 20, func(entries, _ *bbolt.Bucket) error { return entries.Delete(key(20)) }},
		{"the first entry deleted", 0, func(entries, _ *bbolt.Bucket) error { return entries.Delete(key(0)) }},
		{"two entries swapped", 4, func(entries, _ *bbolt.Bucket) error {
			a, b := bytes.Clone(entries.Get(key(4))), bytes.Clone(entries.Get(key(8)))
			return errors.Join(entries.Put(key(4), b), entries.Put(key(8), a))
		}},
		{"a key between two", 9, func(entries, _ *bbolt.Bucket) error {
			return entries.Put(append(key(8), 0), entries.Get(key(8)))
		}},
		{"two faults", 3, func(entries, _ *bbolt.Bucket) error {
			return errors.Join(entries.Delete(key(5)), entries.Put(key(3), flip(entries.Get(key(3)), 0)))
		}},
		{"the tail cut", size - 3, func(entries, _ *bbolt.Bucket) error {
			return errors.Join(entries.Delete(key(size-1)), entries.Delete(key(size-2)), entries.Delete(key(size-3)))
		}},
		{"everything cut", 0, func(entries, _ *bbolt.Bucket) error {
			for n := range size {
				if err := entries.Delete(key(n)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"an entry more", size, func(entries, _ *bbolt.Bucket) error {
			return entries.Put(key(size), entries.Get(key(size-1)))
		}},
		{"the root in the head", -1, func(_, meta *bbolt.Bucket) error {
			return meta.Put([]byte("head"), flip(meta.Get([]byte("head")), 8))
		}},
		{"a larger size in the head", size, func(_, meta *bbolt.Bucket) error {
			return meta.Put([]byte("head"), append(key(size+1), meta.Get([]byte("head"))[8:]...))
		}},
		{"a smaller size in the head", size - 1, func(_, meta *bbolt.Bucket) error {
			return meta.Put([]byte("head"), append(key(size-1), meta.Get([]byte("head"))[8:]...))
		}},
		{"an absurd size in the head", -1, func(_, meta *bbolt.Bucket) error {
			return meta.Put([]byte("head"), append(key(-1), meta.Get([]byte("head"))[8:]...))
		}},
		{"no head", -1, func(_, meta *bbolt.Bucket) error { return meta.Delete([]byte("head")) }},
		{"another format", -1, func(_, meta *bbolt.Bucket) error {
			return meta.Put([]byte("format"), []byte("decisionlog 2"))
		}},
		{"a bucket less", -1, func(_, meta *bbolt.Bucket) error { return meta.Tx().DeleteBucket([]byte("meta")) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := makeLog(t, size)
			edit(t, dir, tt.change)
			report, err := decisionlog.Verify(t.Context(), dir)
			if tt.name == "nothing" {
				if err != nil || report.Entries != tt.index {
					t.Errorf("report = %v, err = %v", report, err)
				}
				return
			}
			checkIntegrity(t, err, tt.index)
		})
	}
}

func TestOpenChecksTail(t *testing.T) {
	for name, change := range map[string]func(entries, meta *bbolt.Bucket) error{
		"tail": func(entries, _ *bbolt.Bucket) error { return entries.Delete(key(9)) },
		"head": func(_, meta *bbolt.Bucket) error {
			return meta.Put([]byte("head"), append(key(9), make([]byte, 32)...))
		},
		"edge": func(entries, _ *bbolt.Bucket) error { return entries.Put(key(7), make([]byte, 200)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := makeLog(t, 10)
			edit(t, dir, change)
			var integrity *decisionlog.IntegrityError
			if _, err := decisionlog.Open(dir, decisionlog.Config{}); !errors.As(err, &integrity) {
				t.Errorf("Open: %v, want an IntegrityError", err)
			}
			if _, err := decisionlog.OpenReadOnly(dir); !errors.As(err, &integrity) {
				t.Errorf("OpenReadOnly: %v, want an IntegrityError", err)
			}
		})
	}
}

func TestDamagedFile(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(file []byte) []byte
	}{
		{"empty", func(file []byte) []byte { return nil }},
		{"a few bytes", func(file []byte) []byte { return file[:100] }},
		{"the meta pages", func(file []byte) []byte { return file[:2*4096] }},
		{"half", func(file []byte) []byte { return file[:len(file)/2/4096*4096] }},
		{"a page less", func(file []byte) []byte { return file[:len(file)-4096] }},
		{"a byte less", func(file []byte) []byte { return file[:len(file)-1] }},
		{"zeros", func(file []byte) []byte { return make([]byte, len(file)) }},
		{"text", func(file []byte) []byte { return bytes.Repeat([]byte("decision"), len(file)/8) }},
		{"a meta page", func(file []byte) []byte { file[4096+16+48]++; return file }},
		{"both meta pages", func(file []byte) []byte { file[16]++; file[4096+16]++; return file }},
		{"pages in reverse", func(file []byte) []byte {
			pages := slices.Collect(slices.Chunk(file, 4096))
			slices.Reverse(pages[2:])
			return bytes.Join(pages, nil)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := makeLog(t, 40)
			if err := os.WriteFile(segmentPath(dir), tt.change(compact(t, segmentPath(dir))), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := decisionlog.Verify(t.Context(), dir)
			checkIntegrity(t, err, -1)
			_, err = decisionlog.Open(dir, decisionlog.Config{})
			checkIntegrity(t, err, -1)
			_, err = decisionlog.OpenReadOnly(dir)
			checkIntegrity(t, err, -1)
		})
	}
}

// compact returns a segment without the room at its end.
func compact(t testing.TB, path string) []byte {
	t.Helper()
	file := readFile(t, path)
	high := max(binary.NativeEndian.Uint64(file[16+40:]), binary.NativeEndian.Uint64(file[4096+16+40:]))
	return file[:high*4096]
}

// Each changed byte of a segment is found or has no effect, and none crashes the process.
func TestEveryByte(t *testing.T) {
	dir, _ := makeLog(t, 60)
	file := compact(t, segmentPath(dir))
	want, err := decisionlog.Verify(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i := 0; i < len(file); i += 1 + i%499 {
		damaged := bytes.Clone(file)
		damaged[i] ^= 1 << (i % 8)
		if err := os.WriteFile(segmentPath(dir), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := decisionlog.Verify(t.Context(), dir)
		var integrity *decisionlog.IntegrityError
		switch {
		case errors.As(err, &integrity):
			found++
		case err != nil:
			t.Errorf("byte %d: %v", i, err)
		case !cmp.Equal(got, want):
			t.Errorf("byte %d is changed, and the log is another:\n%s", i, cmp.Diff(want, got))
		}
	}
	if found == 0 {
		t.Error("no change is found")
	}
	t.Logf("%d changes found in %d bytes", found, len(file))
}

func TestVerifyArchive(t *testing.T) {
	for name, change := range map[string]func(archive, revision string) error{
		"no manifest": func(archive, revision string) error {
			return os.Remove(filepath.Join(archive, "revisions", revision))
		},
		"another manifest": func(archive, revision string) error {
			return os.WriteFile(filepath.Join(archive, "revisions", revision), nil, 0o600)
		},
		"no blob": func(archive, _ string) error {
			return os.Remove(filepath.Join(archive, "blobs", hash("a")))
		},
		"another blob": func(archive, _ string) error {
			return os.WriteFile(filepath.Join(archive, "blobs", hash("a")), []byte("A"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, revision := makeLog(t, 5)
			if err := change(filepath.Join(dir, "archive"), strings.TrimPrefix(revision, "sha256:")); err != nil {
				t.Fatal(err)
			}
			_, err := decisionlog.Verify(t.Context(), dir)
			checkIntegrity(t, err, 2)
		})
	}
	t.Run("a name that is none", func(t *testing.T) {
		dir := t.TempDir()
		l, err := decisionlog.Open(dir, decisionlog.Config{})
		if err != nil {
			t.Fatal(err)
		}
		e := entry(0)
		e.Revision = "sha256:../../x"
		mustAppend(t, l, e)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = decisionlog.Verify(t.Context(), dir)
		checkIntegrity(t, err, 0)
	})
}

func TestVerifyWhileAppending(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	fill(t, l, 0, 10)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 10; ; n++ {
			select {
			case <-stop:
				return
			default:
				if err := l.Append(context.Background(), entry(n)); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	for range 20 {
		if _, err := l.Verify(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-stopped
}

func TestVerifyExport(t *testing.T) {
	dir, revision := makeLog(t, 10)
	r, err := decisionlog.OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	whole := export(t, r)
	report, err := decisionlog.VerifyExport(bytes.NewReader(whole), r.Head())
	want := &decisionlog.Report{
		Entries:   10,
		Root:      r.Head().Root,
		Revisions: []string{revision},
		FirstTime: entry(0).Time,
		LastTime:  entry(9).Time,
	}
	if diff := cmp.Diff(want, report); diff != "" || err != nil {
		t.Errorf("report (-want +got):\n%s%v", diff, err)
	}

	text := slices.Collect(bytes.Lines(whole))
	without := func(i int) [][]byte { return slices.Delete(slices.Clone(text), i, i+1) }
	with := func(i int, old, new string) [][]byte {
		changed := slices.Clone(text)
		changed[i] = bytes.Replace(changed[i], []byte(old), []byte(new), 1)
		return changed
	}
	for _, tt := range []struct {
		name  string
		index int64
		text  [][]byte
	}{
		{"nothing", 0, nil},
		{"the last line missing", 9, text[:9]},
		{"the first line missing", 0, text[1:]},
		{"a line missing", 4, without(4)},
		{"a line more", 10, append(slices.Clone(text), []byte(`{"index":10,"id":"x"}`+"\n"))},
		{"a line twice", 5, slices.Insert(slices.Clone(text), 5, text[4])},
		{"a line changed", -1, with(4, "alice", "mallory")},
		{"a space more", -1, with(4, "}\n", "} \n")},
		{"a carriage return", -1, with(4, "\n", "\r\n")},
		{"a number too many", 4, with(4, `"index":4`, `"index":04`)},
		{"a name twice", 4, with(4, `"kind"`, `"id"`)},
		{"a name twice in the request", 4, with(4, `{"type":"user"`, `{"id":"user"`)},
		{"no UTF-8", 4, with(4, "alice", "\xff")},
		{"an empty line", 4, slices.Insert(slices.Clone(text), 4, []byte("\n"))},
		{"no line feed at the end", 9, with(9, "\n", "")},
		{"half a line", 9, with(9, "latency_us\":0}\n", "")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decisionlog.VerifyExport(bytes.NewReader(bytes.Join(tt.text, nil)), r.Head())
			checkIntegrity(t, err, tt.index)
		})
	}

	broken := errors.New("the disk is gone")
	var integrity *decisionlog.IntegrityError
	if _, err := decisionlog.VerifyExport(failingReader{broken}, r.Head()); !errors.Is(err, broken) || errors.As(err, &integrity) {
		t.Errorf("a reader that fails: %v", err)
	}
}

// A failingReader fails with err.
type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// FuzzVerifyExport gives VerifyExport text with the root that belongs to it,
// so that the form alone decides.
func FuzzVerifyExport(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "export.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	for _, seed := range []string{
		"",
		"\n",
		"{\"index\":0,\"id\":\"a\"}\n",
		"{\"index\":0,\"id\":\"a\"}\r\n",
		"{\"index\":0,\"index\":0}\n",
		"{\"index\":0,}\n",
		"{\"index\":0,\"time\":\"2026-11-20T09:00:00Z\",\"revision\":\"x\"}\n{\"index\":1,\"a\":[]}\n",
		"{\"index\":0,\"id\":\"a\"}\n{\"index\":1,\"id\":\"b\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		report, err := decisionlog.VerifyExport(bytes.NewReader(text), referenceHead(t, text))
		if err != nil {
			var integrity *decisionlog.IntegrityError
			if !errors.As(err, &integrity) {
				t.Errorf("%v, want an IntegrityError", err)
			}
			return
		}
		if len(text) > 0 && text[len(text)-1] != '\n' {
			t.Error("text that breaks off is accepted")
		}
		n := 0
		for line := range bytes.Lines(text) {
			if !bytes.HasPrefix(line, fmt.Appendf(nil, `{"index":%d,`, n)) {
				t.Errorf("line %d is accepted: %q", n, line)
			}
			n++
		}
		if int64(n) != report.Entries {
			t.Errorf("%d entries, %d lines", report.Entries, n)
		}
	})
}

// Verify includes accepted entries of an open log.
func TestVerifyWhileOpen(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	for n := range 3 {
		mustAppend(t, l, entry(n))
		report, err := l.Verify(t.Context())
		if err != nil || report.Entries != int64(n)+1 {
			t.Errorf("%v, %v after %d entries", report, err, n+1)
		}
	}
}
