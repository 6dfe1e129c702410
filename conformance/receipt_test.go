package conformance_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/conformance/process"
)

// yeses are the members by which a PEP is told yes.
var yeses = map[string]string{
	module + "schemas/authzen.Decision":          "Decision",
	module + "schemas/authzen.AuthorizeResponse": "Allow",
}

// sayYes are the functions that may set them.
var sayYes = map[string]string{
	"evaluation.release":                         "it needs a receipt from the log, and says what the receipt does",
	"schemas/authzen.Authorize":                  "it says in another shape what a decision does",
	"pdp/client.decision.UnmarshalJSONFrom":      "a PEP has what the PDP said",
	"pdp/client.authorization.UnmarshalJSONFrom": "a PEP has what the PDP said",
}

// TestYesNeedsReceipt holds that one function of the service can say yes.
func TestYesNeedsReceipt(t *testing.T) {
	found := make(map[string]bool)
	for _, p := range units(t) {
		for _, at := range p.yes() {
			found[at] = true
			if sayYes[at] == "" {
				t.Errorf("%s can say yes: only evaluation.release does, with a receipt", at)
			}
		}
	}
	for at := range sayYes {
		if !found[at] {
			t.Errorf("%s is in the table and says nothing", at)
		}
	}
}

// Whoever says yes is seen, however it is written.
func TestYesIsSeen(t *testing.T) {
	const text = `package x
import "github.com/policy-service/policy-service/schemas/authzen"
type other struct { Decision bool }
type mine struct { authzen.Decision }
func keyed() any { return authzen.Decision{Decision: true} }
func nested() any { return []authzen.Decision{{Decision: true}} }
func unkeyed() any { return &authzen.Decision{true, nil} }
func set(d *authzen.Decision) { d.Decision = true }
func (m *mine) promoted() { m.Decision.Decision = true }
func pointed(d *authzen.Decision) *bool { return &d.Decision }
func allowed() any { return authzen.AuthorizeResponse{Allow: true} }
func converted() any { return authzen.Decision(struct { Decision bool; Context *authzen.DecisionContext }{true, nil}) }
func denied() any { return authzen.Decision{Context: nil} }
func unlike(o *other) { o.Decision = true }
func read(d *authzen.Decision) bool { return d.Decision }
var always = authzen.Decision{Decision: true}
`
	file := filepath.Join(t.TempDir(), "x.go")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	checker := newTypeChecker(t)
	got := checker.check(t, module+"x", file).yes()
	want := []string{"x", "x.allowed", "x.converted", "x.keyed", "x.mine.promoted", "x.nested", "x.pointed", "x.set", "x.unkeyed"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("who says yes (-want +got):\n%s", diff)
	}
}

// A unit is a package with its types.
type unit struct {
	path  string
	files []*ast.File
	types *types.Info
}

// A typeChecker knows the packages of the module and what they import.
type typeChecker struct {
	set    *token.FileSet
	config types.Config
}

func newTypeChecker(t *testing.T) *typeChecker {
	t.Helper()
	exports := make(map[string]string)
	for line := range strings.Lines(goList(t, "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}")) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	set := token.NewFileSet()
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	return &typeChecker{set, types.Config{Importer: importer.ForCompiler(set, "gc", open)}}
}

func (c *typeChecker) check(t *testing.T, path string, names ...string) unit {
	t.Helper()
	u := unit{path, nil, &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Selections: make(map[*ast.SelectorExpr]*types.Selection)}}
	for _, name := range names {
		file, err := parser.ParseFile(c.set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		u.files = append(u.files, file)
	}
	if _, err := c.config.Check(path, c.set, u.files, u.types); err != nil {
		t.Fatal(err)
	}
	return u
}

// units are the packages of the module, without tests.
func units(t *testing.T) (all []unit) {
	t.Helper()
	if err := process.Look(); err != nil {
		t.Fatal(err)
	}
	checker := newTypeChecker(t)
	for line := range strings.Lines(goList(t, "-f", `{{.ImportPath}}{{range .GoFiles}} {{$.Dir}}/{{.}}{{end}}`)) {
		fields := strings.Fields(line)
		all = append(all, checker.check(t, fields[0], fields[1:]...))
	}
	return all
}

func goList(t *testing.T, args ...string) string {
	t.Helper()
	list := exec.Command("go", append(append([]string{"list"}, args...), "./...")...)
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return string(out)
}

// yes returns the functions that can say yes, sorted; those outside of
// functions under the name of the package.
func (u unit) yes() (at []string) {
	for _, file := range u.files {
		for _, d := range file.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				if n != nil && u.saysYes(n) {
					at = append(at, strings.TrimPrefix(u.path, module)+nameOf(d))
				}
				return true
			})
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// nameOf returns the name of a function behind a point.
func nameOf(d ast.Decl) string {
	f, is := d.(*ast.FuncDecl)
	if !is {
		return ""
	}
	if f.Recv == nil {
		return "." + f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if pointer, is := receiver.(*ast.StarExpr); is {
		receiver = pointer.X
	}
	return fmt.Sprintf(".%s.%s", types.ExprString(receiver), f.Name.Name)
}

// saysYes reports whether a node gives a value to a member of yeses: in a
// literal, by an assignment, through its address or by a conversion.
func (u unit) saysYes(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CompositeLit:
		member := yesOf(u.types.TypeOf(n))
		return member != "" && slices.ContainsFunc(n.Elts, func(e ast.Expr) bool {
			pair, keyed := e.(*ast.KeyValueExpr)
			return !keyed || pair.Key.(*ast.Ident).Name == member
		})
	case *ast.AssignStmt:
		return slices.ContainsFunc(n.Lhs, u.isYes)
	case *ast.UnaryExpr:
		return n.Op == token.AND && u.isYes(n.X)
	case *ast.CallExpr:
		called := u.types.Types[n.Fun]
		return called.IsType() && yesOf(called.Type) != "" && !types.Identical(called.Type, u.types.TypeOf(n.Args[0]))
	}
	return false
}

// isYes reports whether an expression selects a member of yeses.
func (u unit) isYes(e ast.Expr) bool {
	selector, is := ast.Unparen(e).(*ast.SelectorExpr)
	if !is {
		return false
	}
	selection := u.types.Selections[selector]
	if selection == nil || selection.Kind() != types.FieldVal {
		return false
	}
	holder := selection.Recv()
	for _, i := range selection.Index()[:len(selection.Index())-1] { // embedded ones
		holder = fieldOf(holder, i)
	}
	return yesOf(holder) == selector.Sel.Name
}

func fieldOf(holder types.Type, i int) types.Type {
	if pointer, is := holder.Underlying().(*types.Pointer); is {
		holder = pointer.Elem()
	}
	return holder.Underlying().(*types.Struct).Field(i).Type()
}

// yesOf returns the member of a type by which it says yes, or "".
func yesOf(t types.Type) string {
	if pointer, is := types.Unalias(t).(*types.Pointer); is {
		t = pointer.Elem()
	}
	return yeses[types.TypeString(t, nil)]
}
