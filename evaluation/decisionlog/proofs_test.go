package decisionlog_test

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

var proofs = flag.Int("proofs", 200, "how many proofs of each kind TestProofs makes, before and after pruning")

// A proofOf is a proof as testdata/proofs.py reads it.
type proofOf struct {
	Size    int64       `json:"size"`
	Index   *int64      `json:"index,omitzero"`
	Earlier *int64      `json:"earlier,omitzero"`
	Hashes  []tlog.Hash `json:"hashes"`
}

// TestProofs has another program, which shares nothing with this one, check
// proofs of random entries in logs of random sizes, and that those continue
// each other: as long as all is there, and after most was pruned. The control
// are the same proofs with a bit changed.
func TestProofs(t *testing.T) {
	python := external.Program(t, "python3")
	dir, whole := aged(t)
	lines := filepath.Join(t.TempDir(), "entries.jsonl")
	writeFile(t, lines, whole)
	size := int64(bytes.Count(whole, []byte("\n")))
	l := openLog(t, dir, agedConfig(10))
	r := rand.New(rand.NewPCG(13, 14))

	check := func(when string, pruned int64) {
		t.Helper()
		var made []proofOf
		for range *proofs {
			made = append(made, proveIn(t, l.Reader, r, pruned, size), proveSince(t, l.Reader, r, pruned, size))
		}
		if n := strings.Count(judged(t, python, lines, made), "good\n"); n != len(made) {
			t.Errorf("%s: %d of %d proofs are good", when, n, len(made))
		}
		changed := 0
		for i := range made {
			if len(made[i].Hashes) > 0 {
				changed++
				made[i].Hashes[r.IntN(len(made[i].Hashes))][r.IntN(tlog.HashSize)] ^= 1 << r.IntN(8)
			}
		}
		if n := strings.Count(judged(t, python, lines, made), "bad\n"); n != changed || n < len(made)/2 {
			t.Errorf("control: %s, %d of %d changed proofs are bad", when, n, changed)
		}
		t.Logf("%s: %d proofs are good, %d changed ones bad", when, len(made), changed)
	}
	check("before pruning", 0)
	if n, err := l.Prune(t.Context(), decisionlog.Retention{Age: 7 * 24 * time.Hour}); err != nil || n != 768 {
		t.Fatalf("%d entries are pruned: %v", n, err)
	}
	if _, err := l.ProveEntry(t.Context(), 3); !errors.Is(err, decisionlog.ErrPruned) {
		t.Errorf("a proof of what is pruned: %v", err)
	}
	check("after pruning", 768)
}

// proveIn proves that a random entry, of those that are not pruned, is in the
// log as it was at a random size.
func proveIn(t *testing.T, log *decisionlog.Reader, r *rand.Rand, pruned, size int64) proofOf {
	t.Helper()
	index := pruned + r.Int64N(size-pruned)
	p := proofOf{Size: index + 1 + r.Int64N(size-index), Index: &index}
	var err error
	if p.Hashes, err = tlog.ProveRecord(p.Size, index, log); err != nil {
		t.Fatal(err)
	}
	return p
}

// proveSince proves that the log at a random size continues that at another. Of
// what is pruned there is the size of each block.
func proveSince(t *testing.T, log *decisionlog.Reader, r *rand.Rand, pruned, size int64) proofOf {
	t.Helper()
	earlier := 1 + r.Int64N(size)
	if earlier < pruned {
		earlier = max(256, earlier/256*256)
	}
	p := proofOf{Size: max(earlier, pruned) + r.Int64N(size-max(earlier, pruned)+1), Earlier: &earlier}
	var err error
	if p.Hashes, err = tlog.ProveTree(p.Size, earlier, log); err != nil {
		t.Fatal(err)
	}
	return p
}

// judged returns what the other program says of proofs, a line of each.
func judged(t *testing.T, python, lines string, all []proofOf) string {
	t.Helper()
	var in bytes.Buffer
	for _, p := range all {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(text, '\n'))
	}
	command := exec.CommandContext(t.Context(), python, "testdata/proofs.py", lines)
	command.Stdin = &in
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
