package conformance_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/conformance/docpage"
)

// The page of the architecture has the packages of the module, and what their
// comments say that they are, up to the first colon.
func TestReferencePages(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}}\t{{.Doc}}", "./...")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var rows [][]string
	for line := range strings.Lines(string(out)) {
		path, doc, _ := strings.Cut(strings.TrimSpace(line), "\t")
		name := strings.TrimPrefix(path, module)
		if doc == "" {
			t.Errorf("%s has no package comment", name)
		}
		brief, _, _ := strings.Cut(doc, ": ")
		rows = append(rows, []string{"[`" + name + "`](../" + name + ")", strings.TrimRight(brief, ".:")})
	}
	docpage.Check(t, "../docs/architecture.md", "packages", docpage.Table([]string{"package", "content"}, rows))
}
