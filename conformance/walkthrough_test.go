package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/conformance/process"
)

// section returns the fenced blocks of a language in a section of a page.
func section(t *testing.T, page, title, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "# "+title+"\n")
	if !found {
		t.Fatalf("%s has no section %q", page, title)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var blocks []string
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(rest, -1) {
		blocks = append(blocks, match[1])
	}
	return blocks
}

// The store of docs/guides/policy-author.md in which security alone approves passes
// the tests that the page has, and not without its forbid.
func TestSeparationOfDuty(t *testing.T) {
	policies, tests := section(t, "guides/policy-author.md", "Separation of duty", "cedar"), section(t, "guides/policy-author.md", "Separation of duty", "yaml")
	if len(policies) != 1 || len(tests) != 1 {
		t.Fatalf("the page has %d stores and %d files of tests", len(policies), len(tests))
	}
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	loose, _, _ := strings.Cut(policies[0], `@id("only-security-approves")`)
	for name, test := range map[string]struct {
		policies string
		passes   bool
	}{"as it is": {policies[0], true}, "without its forbid": {loose, false}} {
		store := filepath.Join(t.TempDir(), "store")
		for file, text := range map[string]string{
			"approvals.cedar": test.policies, "tests/duty.yaml": tests[0],
			"config.yaml": "approval_templates: {production: {ttl: 15m}}\n",
			"entities.json": `[{"uid": {"type": "Role", "id": "lead"}, "attrs": {}, "parents": []}, {"uid": {"type": "Role", "id": "security"}, "attrs": {}, "parents": []},
				{"uid": {"type": "user", "id": "lee"}, "attrs": {}, "parents": [{"type": "Role", "id": "lead"}]},
				{"uid": {"type": "user", "id": "sam"}, "attrs": {}, "parents": [{"type": "Role", "id": "security"}]}]`,
		} {
			at := filepath.Join(store, file)
			if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command(path, "test", store).CombinedOutput(); (err == nil) != test.passes {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
