package decisionlog_test

import (
	"bytes"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// A referenceTree is the tree as tlog documents it: all hashes in a row.
type referenceTree struct {
	hashes []tlog.Hash
	leaves []tlog.Hash
}

func (r *referenceTree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		out[i] = r.hashes[index]
	}
	return out, nil
}

func (r *referenceTree) add(t testing.TB, line []byte) {
	hashes, err := tlog.StoredHashes(int64(len(r.leaves)), line, r)
	if err != nil {
		t.Fatal(err)
	}
	r.hashes = append(r.hashes, hashes...)
	r.leaves = append(r.leaves, hashes[0])
}

func (r *referenceTree) head(t testing.TB) decisionlog.Head {
	root, err := tlog.TreeHash(int64(len(r.leaves)), r)
	if err != nil {
		t.Fatal(err)
	}
	return decisionlog.Head{Size: int64(len(r.leaves)), Root: root}
}

// referenceHead is the head of the log whose export is text.
func referenceHead(t testing.TB, text []byte) decisionlog.Head {
	var reference referenceTree
	for line := range bytes.Lines(text) {
		reference.add(t, bytes.TrimSuffix(line, []byte("\n")))
	}
	return reference.head(t)
}

func TestTree(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	var reference referenceTree
	if got, want := l.Head(), reference.head(t); got != want {
		t.Fatalf("empty: head = %v, want %v", got, want)
	}
	for n := range 300 {
		mustAppend(t, l, entry(n))
		var line bytes.Buffer
		if _, err := l.Export(t.Context(), &line, int64(n), -1); err != nil {
			t.Fatal(err)
		}
		reference.add(t, bytes.TrimSuffix(line.Bytes(), []byte("\n")))
		if got, want := l.Head(), reference.head(t); got != want {
			t.Fatalf("size %d: head = %v, want %v", n+1, got, want)
		}
		if n < 70 || n%50 == 49 {
			checkProofs(t, l.Reader, &reference)
		}
	}
	if got, want := referenceHead(t, export(t, l.Reader)), l.Head(); got != want {
		t.Errorf("head = %v, that of the export %v", want, got)
	}
}

// checkProofs proves from the log that its head has every leaf, and follows
// from an earlier one.
func checkProofs(t *testing.T, r *decisionlog.Reader, reference *referenceTree) {
	head := r.Head()
	for n, leaf := range reference.leaves {
		proof, err := tlog.ProveRecord(head.Size, int64(n), r)
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckRecord(proof, head.Size, head.Root, int64(n), leaf); err != nil {
			t.Fatalf("size %d: proof of entry %d: %v", head.Size, n, err)
		}
	}
	size := head.Size/2 + 1
	root, err := tlog.TreeHash(size, r)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := tlog.ProveTree(head.Size, size, r)
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.CheckTree(proof, head.Size, head.Root, size, root); err != nil {
		t.Fatalf("size %d follows from %d: %v", head.Size, size, err)
	}
}
