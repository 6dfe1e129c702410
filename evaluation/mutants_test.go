package evaluation_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var mutants = flag.Bool("mutants", false, "plant bugs in the index and see each of them caught")

// plantedBugs are what TestIndexIsLinear must catch, each as a change of text
// that the named file has once.
var plantedBugs = []struct{ name, file, from, to string }{
	{"ancestors are ignored", "index.go", `look(l.in, group, visit)`, `_ = group`},
	{"ancestors are ignored behind a type", "index.go", `look(l.isIn, typedGroup{n.uid.Type, group}, visit)`, `_ = group`},
	{"an entity is not in itself", "index.go", `look(l.in, n.uid, visit)`, ``},
	{"an entity is not in itself behind a type", "index.go", `look(l.isIn, typedGroup{n.uid.Type, n.uid}, visit)`, ``},
	{"the type of is-in is dropped", "index.go", `return grow(&l.isIn, typedGroup{s.Type, s.Entity})`, `return grow(&l.in, s.Entity)`},
	{"policies for any entity are missed", "index.go", `if l.any != nil {`, `if false {`},
	{"a policy found twice is tried twice", "index.go", `return slices.Compact(into)`, `return into`},
	{"policies come in the order they are found", "index.go", `slices.Sort(into)`, `slices.Reverse(into)`},
	{"of a set of actions the first is filed", "scope.go", `for i, entity := range set.Entities {`, `for i, entity := range set.Entities[:min(1, len(set.Entities))] {`},
	{"a test behind what can error narrows", "scope.go", `if !cannotError(conjunct) {`, `if false {`},
	{"the presence of any attribute cannot error", "scope.go", "_, variable := n.Arg.(xast.NodeTypeVariable)\n\t\treturn variable", `return true`},
	{"a negation cannot error", "scope.go", `return cannotError(n.Arg)`, `return true`},
	{"an alternative on another variable is dropped", "scope.go", `if left == right {`, `if left == right || left != "" {`},
	{"an alternative is dropped", "scope.go", `return left, slices.Concat(leftTests, rightTests)`, `return left, slices.Concat(leftTests, rightTests)[:len(leftTests)]`},
	{"a type narrowed by a group is dropped", "scope.go", `narrowed[i] = xast.ScopeTypeIsIn{Type: t.Type, Entity: in.Entity}`, `narrowed[i] = in`},
	{"unless is read as when", "scope.go", `if condition.Condition == xast.ConditionUnless {`, `if false {`},
	{"a condition replaces a scope", "scope.go", `if len(condition) == 0 || len(tests) != 1 {`, "if len(condition) > 0 {\n\t\treturn condition\n\t}\n\tif len(tests) != 1 {"},
}

// TestIndexMutants plants each bug in the index and runs TestIndexIsLinear on
// the result, which must fail.
func TestIndexMutants(t *testing.T) {
	if !*mutants {
		t.Skip("skipped without -mutants: it builds this test once for every bug")
	}
	for _, bug := range plantedBugs {
		t.Run(strings.ReplaceAll(bug.name, " ", "-"), func(t *testing.T) {
			overlay := plant(t, bug.file, bug.from, bug.to)
			run := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay", overlay, "-run", "^TestIndexIsLinear$", ".")
			out, err := run.CombinedOutput()
			switch {
			case err == nil:
				t.Error("not caught")
			case !bytes.Contains(out, []byte("(-linear +index)")):
				t.Errorf("fails otherwise: %s", out)
			}
		})
	}
}

// plant changes a file for the go command and returns the overlay that says so.
func plant(t *testing.T, file, from, to string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), from); n != 1 {
		t.Fatalf("%s has %q %d times: plant the bug elsewhere", file, from, n)
	}
	original, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mutant, overlay := filepath.Join(dir, file), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {original: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{mutant: []byte(strings.Replace(string(source), from, to, 1)), overlay: replaced} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
