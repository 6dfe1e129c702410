package conformance_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/conformance/process"
)

// storeBlock matches a file of the store on a page: its name in the text, and its content behind it.
var storeBlock = regexp.MustCompile("(?s)`(store/[\\w./]+)`.*?```\\w+\n(.*?)```")

// The store and the commands of docs/reference/capabilities.md work as they are, and show what the page
// says.
func TestCapabilitiesPage(t *testing.T) {
	external.Program(t, "curl")
	external.Program(t, "jq")
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(path, filepath.Join(bin, "policy-service")); err != nil {
		t.Fatal(err)
	}
	page := read(t, "../docs/reference/capabilities.md")
	shell := docpage.NewTerminal(t, "..", bin, "PATH="+bin+":"+os.Getenv("PATH"))
	files := storeBlock.FindAllStringSubmatch(page, -1)
	if len(files) != 5 {
		t.Fatalf("the page has %d files of a store, want policies, schema, entities, settings and tests", len(files))
	}
	for _, file := range files {
		at := filepath.Join(shell.Dir, file[1])
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(file[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, example, found := strings.Cut(page, "\n## Example\n")
	example, _, _ = strings.Cut(example, "\n## ")
	if !found {
		t.Fatal("the page has no example")
	}
	shell.Follow(example)
	t.Logf("%s", shell.Screen())
}
