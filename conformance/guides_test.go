package conformance_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/conformance/process"
)

// The ten minutes of each guide work when they are pasted into a fresh clone, and
// show what the page says. TestGuide of cmd/mcp-gateway does the same with the
// guide of the gateway, which needs programs of others.
func TestGuides(t *testing.T) {
	external.Program(t, "curl")
	external.Program(t, "jq")
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for name, program := range map[string]string{"policy-service": path, "verify-log": shipped(t, "verify-log")} {
		must(t, os.Symlink(program, filepath.Join(bin, name)))
	}
	guides, err := filepath.Glob("../docs/guides/*.md")
	if err != nil || len(guides) == 0 {
		t.Fatalf("no guides: %v", err)
	}
	for _, guide := range guides {
		if filepath.Base(guide) == "mcp-gateway.md" {
			continue
		}
		t.Run(filepath.Base(guide), func(t *testing.T) {
			t.Parallel()
			shell := docpage.NewTerminal(t, "..", bin)
			shell.Follow(docpage.TenMinutes(t, guide))
			t.Logf("%s", shell.Screen())
		})
	}
}
