package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations/plain"
)

// A verdict is what a verifier says of a bundle: a line about it, or which
// entry is at fault.
type verdict struct {
	good  bool
	says  string // of a good one
	index string // of the first entry that is not as it was, if it can tell
}

var entryNumber = regexp.MustCompile(`entry (\d+)`)

func verdictOf(says string, err error) verdict {
	if err == nil {
		return verdict{good: true, says: strings.TrimSpace(says)}
	}
	var v verdict
	if m := entryNumber.FindStringSubmatch(err.Error()); m != nil {
		v.index = m[1]
	}
	return v
}

// ours is the verdict of the package that writes bundles.
func ours(t testing.TB, path string, keys []string) verdict {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	r, err := decisionlog.VerifyBundle(file, info.Size(), keys)
	if err != nil {
		var integrity *decisionlog.IntegrityError
		if !errors.As(err, &integrity) {
			t.Errorf("%v, want an IntegrityError", err)
		}
		return verdictOf("", err)
	}
	return verdictOf(fmt.Sprintf("verified: %s (%d to %d) of the %d in %s\nroot %s", plain.Count(r.Entries, "entry", "entries"), r.First, r.Last, r.Size, r.Origin, r.Root), nil)
}

// python is the verdict of the script, which shares nothing with the others. It
// has 400 MB of address space, of which the interpreter takes a part.
func python(t testing.TB, path, keyFile string) verdict {
	t.Helper()
	interpreter := external.Program(t, "python3")
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -v 400000; exec "$@"`, "sh", interpreter, "testdata/verify_log.py", path, keyFile)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() == 4 {
		return verdictOf("", errors.New(stderr.String()))
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	return verdictOf(stdout.String(), nil)
}

// A fixture is a log, and the bundles of it.
type fixture struct {
	keys    []string
	keyFile string
	bundles map[string][]byte
}

// newFixture makes a log of 1,100 entries, of which a segment is pruned.
func newFixture(t testing.TB) fixture {
	t.Helper()
	dir := t.TempDir()
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	config := decisionlog.Config{Durability: decisionlog.Batched, SegmentBytes: 1, Now: func() time.Time { return now }}
	l, err := decisionlog.Open(dir, config)
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{keyFile: filepath.Join(dir, "checkpoint", "key.pub"), bundles: make(map[string][]byte)}
	f.add(t, l, "empty", decisionlog.Filter{})
	revision, err := l.KeepArchive(map[string][]byte{"a.cedar": []byte("permit (principal, action, resource);"), "config.yaml": []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 1100 {
		e := decisionlog.Entry{
			ID: fmt.Sprint("entry-", n), Time: now, Tenant: []string{"acme", "initech", "hooli"}[n%3], Kind: decisionlog.KindEvaluation,
			Request: jsontext.Value(`{"subject":{"type":"user","id":"alice"}}`), Result: &decisionlog.Result{Decision: n%2 == 0}, Revision: revision,
		}
		if n%3 == 0 && n > 600 && n < 610 { // what people did about the denial 601
			e.Kind, e.Request, e.Result, e.Revision = decisionlog.KindRequest, jsontext.Value(`{"event":"submit","task":"arq_1","items":[{"evaluation_id":"entry-600"}],"subject":{"type":"user","id":"alice"}}`), nil, ""
		}
		if err := l.Append(context.Background(), &e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil { // with every entry on disk
		t.Fatal(err)
	}
	if l, err = decisionlog.Open(dir, config); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	deny := false
	f.add(t, l, "whole", decisionlog.Filter{})
	f.add(t, l, "range", decisionlog.Filter{From: 300, Until: 333})
	f.add(t, l, "one", decisionlog.Filter{ID: "entry-513"})
	f.add(t, l, "none", decisionlog.Filter{ID: "nothing"})
	f.addEvidence(t, l)
	f.add(t, l, "denials of a tenant", decisionlog.Filter{Tenant: "acme", Decision: &deny})
	if _, err := l.Prune(t.Context(), decisionlog.Retention{Bytes: 100_000, Hold: []decisionlog.Period{}}); err != nil {
		t.Fatal(err)
	}
	f.add(t, l, "pruned", decisionlog.Filter{})
	if f.keys, err = l.Keys(); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) add(t testing.TB, l *decisionlog.Log, name string, selects decisionlog.Filter) {
	t.Helper()
	var out bytes.Buffer
	if _, err := l.WriteBundle(t.Context(), &out, selects); err != nil {
		t.Fatal(err)
	}
	f.bundles[name] = out.Bytes()
}

// addEvidence adds evidence of a denial about which a person was asked.
func (f *fixture) addEvidence(t testing.TB, l *decisionlog.Log) {
	t.Helper()
	var out bytes.Buffer
	if err := l.WriteEvidence(t.Context(), &out, 600); err != nil {
		t.Fatal(err)
	}
	f.bundles["evidence"] = out.Bytes()
}

// node is the verdict of the module that evidence has, about a bundle that is unpacked.
func node(t testing.TB, content []byte, keyFile string) error {
	t.Helper()
	_, all := members(t, content)
	dir := t.TempDir()
	for name, text := range all {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "verify.mjs")
	if err := os.WriteFile(program, decisionlog.VerifyModule, 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), external.Program(t, "node"), program, keyFile).CombinedOutput()
	var ended *exec.ExitError
	if err != nil && (!errors.As(err, &ended) || ended.ExitCode() != 4) {
		t.Fatalf("%v\n%s", err, said)
	}
	if err != nil {
		return fmt.Errorf("%s", said)
	}
	return nil
}

// judge holds that all verifiers say the same of a bundle, the script only if
// it is asked.
func (f *fixture) judge(t testing.TB, name string, content []byte, ask bool) verdict {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle.zip")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	want := ours(t, path, f.keys)
	if got := verdictOf(verify(path, f.keys)); got != want {
		t.Errorf("%s: verify-log says %+v, the package %+v", name, got, want)
	}
	if !ask {
		return want
	}
	if err := node(t, content, f.keyFile); (err == nil) != want.good {
		t.Errorf("%s: verify.mjs says %v, the package %+v", name, err, want)
	}
	if got := python(t, path, f.keyFile); got != want {
		t.Errorf("%s: the script says %+v, the package %+v", name, got, want)
	}
	return want
}

func TestGoodBundles(t *testing.T) {
	f := newFixture(t)
	for name, content := range f.bundles {
		if v := f.judge(t, name, content, true); !v.good {
			t.Errorf("%s is not verified: %+v", name, v)
		} else {
			t.Logf("%s: %s", name, v.says)
		}
	}
}

// members takes a bundle apart.
func members(t testing.TB, content []byte) (names []string, all map[string][]byte) {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	all = make(map[string][]byte)
	for _, file := range archive.File {
		r, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names, all[file.Name] = append(names, file.Name), text
	}
	return names, all
}

// assemble makes a bundle of members, those that are nil left out.
func assemble(t testing.TB, names []string, all map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, name := range names {
		if all[name] == nil {
			continue
		}
		w, err := archive.Create(name)
		if err == nil {
			_, err = w.Write(all[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A tampering changes the members of a bundle.
type tampering struct {
	name   string
	change func(all map[string][]byte)
}

// lines applies a change to the lines of a member.
func lines(all map[string][]byte, name string, change func([][]byte) [][]byte) {
	all[name] = bytes.Join(change(slices.Collect(bytes.Lines(all[name]))), nil)
}

// tamperings are the kinds there are, each at a place that r chooses.
func tamperings(r *rand.Rand, other map[string][]byte) []tampering {
	flip := func(name string) func(map[string][]byte) {
		return func(all map[string][]byte) { all[name][r.IntN(len(all[name]))] ^= 1 << r.IntN(8) }
	}
	entries := func(change func([][]byte) [][]byte) func(map[string][]byte) {
		return func(all map[string][]byte) { lines(all, "entries.jsonl", change) }
	}
	return []tampering{
		{"a bit of an entry", flip("entries.jsonl")},
		{"a bit of a hash", flip("hashes")},
		{"a bit of the checkpoint", flip("checkpoint")},
		{"a bit of the manifest", flip("manifest")},
		{"an entry less", entries(func(l [][]byte) [][]byte { i := r.IntN(len(l)); return slices.Delete(l, i, i+1) })},
		{"an entry twice", entries(func(l [][]byte) [][]byte { i := r.IntN(len(l)); return slices.Insert(l, i, l[i]) })},
		{"two entries swapped", entries(func(l [][]byte) [][]byte {
			i := r.IntN(len(l) - 1)
			l[i], l[i+1] = l[i+1], l[i]
			return l
		})},
		{"an entry forged", entries(func(l [][]byte) [][]byte {
			i := r.IntN(len(l))
			l[i] = bytes.Replace(l[i], []byte(`"alice"`), []byte(`"mallory"`), 1)
			return l
		})},
		{"an entry and its hash less", func(all map[string][]byte) {
			cut := func(l [][]byte) [][]byte { return l[:len(l)-1] }
			lines(all, "entries.jsonl", cut)
			lines(all, "hashes", cut)
		}},
		{"the tail cut off", entries(func(l [][]byte) [][]byte { return l[:r.IntN(len(l))] })},
		{"half an entry", func(all map[string][]byte) {
			all["entries.jsonl"] = all["entries.jsonl"][:len(all["entries.jsonl"])-1-r.IntN(30)]
		}},
		{"a hash more", func(all map[string][]byte) {
			lines(all, "hashes", func(l [][]byte) [][]byte { return append(l, l[0]) })
		}},
		{"a hash less", func(all map[string][]byte) { lines(all, "hashes", func(l [][]byte) [][]byte { return l[1:] }) }},
		{"another log's checkpoint", func(all map[string][]byte) { all["checkpoint"] = other["checkpoint"] }},
		{"another bundle's checkpoint", func(all map[string][]byte) { all["checkpoint"] = other["older checkpoint"] }},
		{"another bundle's manifest", func(all map[string][]byte) { all["manifest"] = other["manifest"] }},
		{"no manifest", func(all map[string][]byte) { all["manifest"] = nil }},
		{"no hashes", func(all map[string][]byte) { all["hashes"] = nil }},
	}
}

// Evidence has the entry, the request that was made because of it and the policies. No change of any of its
// files is verified.
func TestTamperedEvidence(t *testing.T) {
	f := newFixture(t)
	names, all := members(t, f.bundles["evidence"])
	if n := bytes.Count(all["entries.jsonl"], []byte("\n")); n != 4 {
		t.Errorf("%d entries, want the denial and 3 of the request:\n%s", n, all["entries.jsonl"])
	}
	var policies string
	for _, name := range names {
		if strings.HasPrefix(name, "policies/") && strings.HasSuffix(name, "/a.cedar") {
			policies = name
		}
	}
	for _, name := range names {
		_, all := members(t, f.bundles["evidence"])
		all[name] = bytes.Clone(all[name])
		all[name][len(all[name])/2] ^= 1
		if name == "verify.mjs" {
			continue // the module verifies everything but itself
		}
		if v := f.judge(t, name, assemble(t, names, all), true); v.good {
			t.Errorf("a bit of %s: it is verified", name)
		}
	}
	for name, change := range map[string]func(){
		"a file less":        func() { all[policies] = nil },
		"a file more":        func() { all["policies/x"] = []byte("x"); names = append(names, "policies/x") },
		"a file of a parent": func() { names = slices.Replace(names, len(names)-1, len(names), "../x"); all["../x"] = []byte("x") },
	} {
		names, all = members(t, f.bundles["evidence"])
		change()
		path := filepath.Join(t.TempDir(), "bundle.zip")
		if err := os.WriteFile(path, assemble(t, names, all), 0o600); err != nil {
			t.Fatal(err)
		}
		if v := ours(t, path, f.keys); v.good {
			t.Errorf("%s: it is verified", name)
		}
		if _, err := verify(path, f.keys); err == nil {
			t.Errorf("%s: verify-log verifies it", name)
		}
		if got := python(t, path, f.keyFile); got.good {
			t.Errorf("%s: the script verifies it", name)
		}
	}
}

// TestTamperedBundles changes bundles in every way there is. All three
// verifiers find it, and say the same entry where they can tell. The control
// is a bundle that is taken apart and put together again.
func TestTamperedBundles(t *testing.T) {
	f := newFixture(t)
	other := newFixture(t)
	_, foreign := members(t, other.bundles["whole"])
	_, older := members(t, f.bundles["empty"])
	_, none := members(t, f.bundles["none"])
	foreign["older checkpoint"], foreign["manifest"] = older["checkpoint"], none["manifest"]
	for _, bundle := range []string{"range", "denials of a tenant", "pruned"} {
		r := rand.New(rand.NewPCG(1, uint64(len(bundle))))
		names, all := members(t, f.bundles[bundle])
		if v := f.judge(t, "control", assemble(t, names, all), true); !v.good {
			t.Errorf("%s: put together again it is not verified: %+v", bundle, v)
		}
		for _, tamper := range tamperings(r, foreign) {
			for round := range 2 {
				_, all := members(t, f.bundles[bundle])
				tamper.change(all)
				name := bundle + ": " + tamper.name
				if v := f.judge(t, name, assemble(t, names, all), round == 0 && bundle == "denials of a tenant"); v.good {
					t.Errorf("%s: it is verified", name)
				}
			}
		}
	}
}

// TestTamperedFile changes bits of the file itself. What a ZIP file says in two
// places, verifiers may read in either; none may take what is not the entries.
func TestTamperedFile(t *testing.T) {
	f := newFixture(t)
	good := f.bundles["range"]
	_, want := members(t, good)
	r := rand.New(rand.NewPCG(2, 3))
	path := filepath.Join(t.TempDir(), "bundle.zip")
	found := 0
	for range 200 {
		changed := bytes.Clone(good)
		changed[r.IntN(len(changed))] ^= 1 << r.IntN(8)
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]verdict{"the package": ours(t, path, f.keys), "verify-log": verdictOf(verify(path, f.keys))} {
			if !v.good {
				found++
				continue
			}
			if _, got := members(t, changed); !bytes.Equal(got["entries.jsonl"], want["entries.jsonl"]) {
				t.Errorf("%s takes another bundle", name)
			}
		}
	}
	if found == 0 {
		t.Error("no change is found")
	}
}

// zeros returns so many MiB of zeros, compressed: that of one as often as there
// are.
func zeros(t *testing.T, mebibytes int) (compressed []byte, sum uint32) {
	t.Helper()
	one, part := make([]byte, 1<<20), new(bytes.Buffer)
	w, err := flate.NewWriter(part, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(one)
	if err := errors.Join(err, w.Flush()); err != nil {
		t.Fatal(err)
	}
	length := part.Len()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for range mebibytes {
		sum = crc32.Update(sum, crc32.IEEETable, one)
	}
	return append(bytes.Repeat(part.Bytes()[:length], mebibytes), part.Bytes()[length:]...), sum
}

// TestLongLine holds that a small bundle with a member of hundreds of MiB, in a
// line, is refused in little memory.
func TestLongLine(t *testing.T) {
	const length, most = 384 << 20, 256 << 20
	f := newFixture(t)
	names, all := members(t, f.bundles["one"])
	compressed, sum := zeros(t, length>>20)
	for _, long := range names {
		var out bytes.Buffer
		archive := zip.NewWriter(&out)
		for _, name := range names {
			var w io.Writer
			var err error
			text := all[name]
			if name == long {
				text = compressed
				w, err = archive.CreateRaw(&zip.FileHeader{
					Name: name, Method: zip.Deflate, CRC32: sum, CompressedSize64: uint64(len(compressed)), UncompressedSize64: length,
				})
			} else {
				w, err = archive.Create(name)
			}
			if err == nil {
				_, err = w.Write(text)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "bundle.zip")
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := verify(path, f.keys); err == nil || !strings.Contains(err.Error(), "too") {
			t.Errorf("%s: verify-log says %v", long, err)
		}
		if got := ours(t, path, f.keys); got.good {
			t.Errorf("%s: the package verifies it", long)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("%s: the two programs took %d MiB", long, took>>20)
		}
		if got := python(t, path, f.keyFile); got.good {
			t.Errorf("%s: the script verifies it", long)
		}
	}
}

// judgeProofs reads proofs, one on each line, and prints "true" or "false" for each.
const judgeProofs = `
import { readFileSync } from "node:fs";
const { verifyEntry, verifyKeyChange } = await import("./verify.mjs");
const keys = process.argv[2].split(" ");
for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const asked = JSON.parse(line);
  const verdict = asked.hashes ? verifyEntry(asked, keys) : verifyKeyChange(asked.checkpoint, keys[0], asked.key);
  console.log(await verdict.then(() => true, () => false));
}
`

// The module verifies each of a hundred proofs, and refuses each of a hundred changed ones. It accepts a new key
// only with the signature of the old one.
func TestModuleVerifiesProofs(t *testing.T) {
	dir := t.TempDir()
	l, err := decisionlog.Open(dir, decisionlog.Config{Durability: decisionlog.Batched})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for n := range 1000 {
		e := decisionlog.Entry{ID: fmt.Sprint("entry-", n), Kind: decisionlog.KindAdmin, Request: jsontext.Value(`"\u00e9 é <script>"`)}
		if err := l.Append(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := l.Lookup(t.Context(), "entry-999"); err != nil { // which has every entry committed
		t.Fatal(err)
	}
	keys, err := l.Keys()
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(4, 5))
	var asked, want strings.Builder
	ask := func(question any, good bool) {
		text, err := json.Marshal(question)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&asked, "%s\n", text)
		fmt.Fprintln(&want, good)
	}
	for n := range int64(100) {
		proof, err := l.ProveEntry(t.Context(), n*10)
		if err != nil {
			t.Fatal(err)
		}
		ask(proof, true)
		switch n % 5 {
		case 0:
			proof.Hashes[r.IntN(len(proof.Hashes))][r.IntN(32)] ^= 1 << r.IntN(8)
		case 1:
			proof.Line = strings.Replace(proof.Line, "script", "Script", 1)
		case 2:
			proof.Hashes = proof.Hashes[1:]
		case 3:
			proof.Index++
		case 4:
			proof.Checkpoint = strings.Replace(proof.Checkpoint, "\n1000\n", "\n1001\n", 1)
		}
		ask(proof, false)
	}
	change, err := l.RotateKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	after, err := l.Sign()
	if err != nil {
		t.Fatal(err)
	}
	ask(change, true)
	ask(decisionlog.KeyChange{Key: change.Key, Checkpoint: after.Note}, false) // without the old signature
	ask(decisionlog.KeyChange{Key: keys[0][:len(keys[0])-4] + "AAA=", Checkpoint: change.Checkpoint}, false)
	program := filepath.Join(dir, "judge.mjs")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "verify.mjs"), decisionlog.VerifyModule, 0o600), os.WriteFile(program, []byte(judgeProofs), 0o600)); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), external.Program(t, "node"), program, keys[0])
	command.Stdin = strings.NewReader(asked.String())
	got, err := command.CombinedOutput()
	if err != nil || string(got) != want.String() {
		t.Errorf("%v: verdicts (-want +got):\n%s", err, cmp.Diff(want.String(), string(got)))
	}
}
