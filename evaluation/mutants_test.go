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
	{"ancestors are ignored", "snapshot/policyindex.go", `visitKey(l.in, group, visit)`, `_ = group`},
	{"ancestors are ignored behind a type", "snapshot/policyindex.go", `visitKey(l.isIn, typedGroup{n.UID.Type, group}, visit)`, `_ = group`},
	{"an entity is not in itself", "snapshot/policyindex.go", `visitKey(l.in, n.UID, visit)`, ``},
	{"an entity is not in itself behind a type", "snapshot/policyindex.go", `visitKey(l.isIn, typedGroup{n.UID.Type, n.UID}, visit)`, ``},
	{"the type of is-in is dropped", "snapshot/policyindex.go", `return getOrAdd(&l.isIn, typedGroup{s.Type, s.Entity})`, `return getOrAdd(&l.in, s.Entity)`},
	{"policies for any entity are missed", "snapshot/policyindex.go", `if l.any != nil {`, `if false {`},
	{"a policy found twice is tried twice", "snapshot/policyindex.go", `return slices.Compact(into)`, `return into`},
	{"policies come in the order they are found", "snapshot/policyindex.go", `slices.Sort(into)`, `slices.Reverse(into)`},
	{"of a set of actions the first is filed", "cedarsyntax/scope.go", `for i, entity := range set.Entities {`, `for i, entity := range set.Entities[:min(1, len(set.Entities))] {`},
	{"a test behind what can error narrows", "cedarsyntax/scope.go", `if !cannotError(conjunct) {`, `if false {`},
	{"the presence of any attribute cannot error", "cedarsyntax/scope.go", "_, variable := n.Arg.(xast.NodeTypeVariable)\n\t\treturn variable", `return true`},
	{"a negation cannot error", "cedarsyntax/scope.go", `return cannotError(n.Arg)`, `return true`},
	{"an alternative on another variable is dropped", "cedarsyntax/scope.go", `if left == right {`, `if left == right || left != "" {`},
	{"an alternative is dropped", "cedarsyntax/scope.go", `return left, slices.Concat(leftTests, rightTests)`, `return left, slices.Concat(leftTests, rightTests)[:len(leftTests)]`},
	{"a type narrowed by a group is dropped", "cedarsyntax/scope.go", `narrowed[i] = xast.ScopeTypeIsIn{Type: t.Type, Entity: in.Entity}`, `narrowed[i] = in`},
	{"unless is read as when", "cedarsyntax/scope.go", `if condition.Condition == xast.ConditionUnless {`, `if false {`},
	{"a condition replaces a scope", "cedarsyntax/scope.go", `if len(condition) == 0 || len(tests) != 1 {`, "if len(condition) > 0 {\n\t\treturn condition\n\t}\n\tif len(tests) != 1 {"},
}

func TestIndexMutants(t *testing.T) {
	testCaught(t, indexBugs, "TestIndexIsLinear", "(-linear +index)")
}

func TestSearchMutants(t *testing.T) {
	testCaught(t, searchBugs, "TestSearchIsExact", "(-loop +search)", "-search.n=100000")
}

// searchBugs are what TestSearchIsExact must catch.
var searchBugs = []plantedBug{
	{"an entity is not in itself", "snapshot/prefilter.go", `return union(b.single(group), candidateSet{positions: b.descendants[group]})`, `return candidateSet{positions: b.descendants[group]}`},
	{"what is below a group is missed", "snapshot/prefilter.go", `return union(b.single(group), candidateSet{positions: b.descendants[group]})`, `return b.single(group)`},
	{"an alternative is dropped", "snapshot/prefilter.go", `return union(b.condition(n.Left), b.condition(n.Right))`, `return b.condition(n.Left)`},
	{"one condition is enough", "snapshot/prefilter.go", `if all = append(all, satisfied); satisfied.all {`, `if all = []candidateSet{satisfied}; satisfied.all {`},
	{"what reads nothing bounds nobody", "snapshot/prefilter.go", "	case xast.NodeTypeExtensionCall:\n", "	case xast.NodeTypeHas:\n\t\treturn noCandidates\n	case xast.NodeTypeExtensionCall:\n"},
	{"forbids permit", "snapshot/prefilter.go", `if !p.Ordered[ordinal].Permits() {`, `if p.Ordered[ordinal].Permits() {`},
	{"the groups of a member are missed", "snapshot/prefilter.go", `slices.Concat(b.query.Node(member).Ancestors, []cedar.EntityUID{member})`, `[]cedar.EntityUID{member}`},
	{"a member of a list is missed", "snapshot/prefilter.go", `if _, reads := b.attribute(n); !reads && !b.isUnknown(n) {`, `if _, reads := b.attribute(n); reads {
		return nobody
	} else if !b.isOpen(n) {`},
	{"elements are not filed", "snapshot/entityindex.go", `p.elements[name][key] = append(p.elements[name][key], ordinal)`, `_ = key`},
	{"a set is filed by its first element", "snapshot/entityindex.go", "p.elements[name][key] = append(p.elements[name][key], ordinal)\n\t\t\t}", "p.elements[name][key] = append(p.elements[name][key], ordinal)\n\t\t\t}\n\t\t\tbreak"},
	{"a group that is not written out is known", "snapshot/prefilter.go", `if computesGroup(p.Syntax) {`, `if false {`},
	{"the other entity is missed", "snapshot/search.go", `permitted := union(b.permitted(&s.Policies), b.single(other))`, `permitted := b.permitted(&s.Policies)`},
	{"what is said of the other entity is forgotten", "snapshot/search.go", `if uid == other {`, `if false {`},
	{"an answer needs no decision", "snapshot/search.go", `return out.Obligations, out.Decision && !unmet, nil`, `return out.Obligations, !unmet, nil`},
	{"an obligation nobody can meet", "snapshot/search.go", `return !q.Support.Has(o.Type)`, `return false`},
	{"an obligation speaks of nobody", "snapshot/search.go", `*searched, open.evaluation = uid, about`, `*searched = uid; _ = about`},
	{"a page begins one late", "search.go", `token.From = part.Next`, `token.From = part.Next + 1`},
	{"a page has one too many", "snapshot/search.go", `case len(out.Results) == m.Results ||`, `case len(out.Results) > m.Results ||`},
	{"the principal is looked for among resources", "snapshot/prefilter.go", `return p.reverse.find(&action, &resource, nil, nil)`, `return p.index.find(&action, &resource, nil, nil)`},
	{"tests that name something are skipped", "snapshot/policyindex.go", "		l.visitNamed(visit)\n", ""},
}

// testCaught plants each bug and runs a test on the result, which must fail and
// say that what it compares differs.
func testCaught(t *testing.T, bugs []plantedBug, test, differs string, args ...string) {
	t.Helper()
	for _, bug := range bugs {
		plant(t, bug.file, bug.from, bug.to) // a bug that cannot be planted any more is found without the flag
	}
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
	mutant, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
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
