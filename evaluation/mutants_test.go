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

// A plantedBug is a change of text that the named file has once.
type plantedBug struct{ name, file, from, to string }

// indexBugs are what TestIndexIsLinear must catch.
var indexBugs = []plantedBug{
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

func TestIndexMutants(t *testing.T) {
	testCaught(t, indexBugs, "TestIndexIsLinear", "(-linear +index)")
}

func TestSearchMutants(t *testing.T) {
	testCaught(t, searchBugs, "TestSearchIsExact", "(-loop +search)", "-search.n=100000")
}

// searchBugs are what TestSearchIsExact must catch.
var searchBugs = []plantedBug{
	{"an entity is not in itself", "bound.go", `return either(b.itself(group), bound{ordinals: b.below[group]})`, `return bound{ordinals: b.below[group]}`},
	{"what is below a group is missed", "bound.go", `return either(b.itself(group), bound{ordinals: b.below[group]})`, `return b.itself(group)`},
	{"an alternative is dropped", "bound.go", `return either(b.condition(n.Left), b.condition(n.Right))`, `return b.condition(n.Left)`},
	{"one condition is enough", "bound.go", `if all = append(all, satisfied); satisfied.everyone {`, `if all = []bound{satisfied}; satisfied.everyone {`},
	{"what reads nothing bounds nobody", "bound.go", "	case xast.NodeTypeExtensionCall:\n", "	case xast.NodeTypeHas:\n\t\treturn nobody\n	case xast.NodeTypeExtensionCall:\n"},
	{"forbids permit", "bound.go", `if !p.ordered[ordinal].permits() {`, `if p.ordered[ordinal].permits() {`},
	{"the groups of a member are missed", "bound.go", `slices.Concat(b.query.node(member).ancestors, []cedar.EntityUID{member})`, `[]cedar.EntityUID{member}`},
	{"a member of a list is missed", "bound.go", `if _, reads := b.attribute(n); !reads && !b.isOpen(n) {`, `if _, reads := b.attribute(n); reads {
		return nobody
	} else if !b.isOpen(n) {`},
	{"elements are not filed", "population.go", `p.elements[name][key] = append(p.elements[name][key], ordinal)`, `_ = key`},
	{"a set is filed by its first element", "population.go", "p.elements[name][key] = append(p.elements[name][key], ordinal)\n\t\t\t}", "p.elements[name][key] = append(p.elements[name][key], ordinal)\n\t\t\t}\n\t\t\tbreak"},
	{"a group that is not written out is known", "bound.go", `if computesGroup(p.syntax) {`, `if false {`},
	{"the other entity is missed", "question.go", `permitted := either(b.permitted(&s.policies), b.itself(other))`, `permitted := b.permitted(&s.policies)`},
	{"what is said of the other entity is forgotten", "question.go", `if uid == other {`, `if false {`},
	{"an answer needs no decision", "question.go", `return out.Obligations, out.Decision && !unmet, nil`, `return out.Obligations, !unmet, nil`},
	{"an obligation nobody can meet", "question.go", `return !q.support.Has(o.Type)`, `return false`},
	{"an obligation speaks of nobody", "question.go", `*searched, open.evaluation = uid, about`, `*searched = uid; _ = about`},
	{"a page begins one late", "search.go", `token.From = part.next`, `token.From = part.next + 1`},
	{"a page has one too many", "question.go", `case len(out.hits) == results:`, `case len(out.hits) > results:`},
	{"the principal is looked for among resources", "bound.go", `return p.reverse.find(&action, &resource, nil, nil)`, `return p.index.find(&action, &resource, nil, nil)`},
	{"tests that name something are skipped", "index.go", "		l.tests(visit)\n", ""},
}

// testCaught plants each bug and runs a test on the result, which must fail and
// say that what it compares differs.
func testCaught(t *testing.T, bugs []plantedBug, test, differs string, args ...string) {
	t.Helper()
	if !*mutants {
		t.Skip("skipped without -mutants: it builds this test once for every bug")
	}
	for _, bug := range bugs {
		t.Run(strings.ReplaceAll(bug.name, " ", "-"), func(t *testing.T) {
			overlay := plant(t, bug.file, bug.from, bug.to)
			run := exec.Command("go", append([]string{"test", "-count=1", "-vet=off", "-overlay", overlay, "-run", "^" + test + "$", "."}, args...)...)
			out, err := run.CombinedOutput()
			switch {
			case err == nil:
				t.Error("not caught")
			case !bytes.Contains(out, []byte(differs)):
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
