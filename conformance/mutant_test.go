package conformance_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

var reloadMutant = flag.Bool("reload.mutant", false, "see TestReload fail on a program that decides each item of a batch by what is in force then")

// TestReloadMutant is a control of TestReload: of a program in which the items
// of a batch need not be decided by the same policies, the check sees it.
func TestReloadMutant(t *testing.T) {
	if !*reloadMutant {
		t.Skip("skipped without -reload.mutant: it builds the program once more")
	}
	const decides = "return e.decide(ctx, evaluationInput{snapshot: s,"
	dir := published(t)
	process := serveCommand(t, dir, t.TempDir())
	process.Path = mutant(t, "../evaluation/batch.go", decides, "s, _, _ := e.begin(ctx)\n"+decides)
	s := launch(t, process)
	l := newLoad(t, s)
	seen := new(tally)
	version := 0
	for len(seen.mixed) == 0 && version < 5000 {
		seen.add(*l.during(func() {
			for range 100 {
				version++
				publish(t, dir, version)
				s.apply(t, l, version)
			}
		}))
	}
	t.Logf("%d swaps: %v", version, seen)
	if len(seen.mixed) == 0 || len(seen.refused) > 0 {
		t.Errorf("%d answers are mixed, %d refused: would the check see it?", len(seen.mixed), len(seen.refused))
	}
}

// mutant builds the program with a change of text that a file has once.
func mutant(t *testing.T, file, from, to string) (program string) {
	t.Helper()
	source := read(t, file)
	if n := strings.Count(source, from); n != 1 {
		t.Fatalf("%s has %q %d times: plant the bug elsewhere", file, from, n)
	}
	original, err := filepath.Abs(file)
	must(t, err)
	dir := t.TempDir()
	changed, overlay, program := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "policy-service")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	must(t, err)
	put(t, changed, strings.Replace(source, from, to, 1))
	put(t, overlay, string(replaced))
	build := exec.Command("go", "build", "-overlay", overlay, "-o", program, "../cmd/policy-service")
	build.Stderr = os.Stderr
	must(t, build.Run())
	return program
}
