package conformance_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReadme holds the README, and the page of the gateway, to the code: what a
// user can set, ask or read is named there. Each row is where such names are
// declared, and how.
func TestReadme(t *testing.T) {
	const readme, gateway = "../README.md", "../docs/guides/mcp-gateway.md"
	for _, test := range []struct {
		page, what, file, pattern string
	}{
		{readme, "key of config.yaml", "../evaluation/settings.go", "`yaml:\"(\\w+)\"`"},
		{readme, "key of an approval template", "../evaluation/templates.go", "`yaml:\"(\\w+)\"`"},
		{readme, "field of the log", "../evaluation/decisionlog/entry.go", "`json:\"(\\w+)[,\"]"},
		{readme, "annotation", "../obligations/terms.go", `"(obligation_\w+|approval|requestable|reason_\w+)"`},
		{readme, "route of the admin listener", "../pdp/admin.go", `"(/(?:livez|readyz|metrics|admin/v1/[\w/]+))"`},
		{readme, "metric", "../pdp/telemetry.go", `(?:Histogram|Counter|Gauge)\("([\w.]+)"`},
		{readme, "route", "../schemas/authzen/metadata.go", `"(/[^"]+)"`},
		{readme, "exit code", "../cmd/policy-service/main.go", `exit\w+\s+= (\d+)`},
		{gateway, "key", "../cmd/mcp-gateway/config.go", "`yaml:\"(\\w+)\""},
		{gateway, "metric", "../cmd/mcp-gateway/telemetry.go", `(?:Histogram|Counter|Gauge)\("([\w.]+)"`},
		{gateway, "reason", "../cmd/mcp-gateway/internal/enforce/refusal.go", `Reason\w+\s+= "(\w+)"`},
	} {
		t.Run(test.what, func(t *testing.T) {
			page, names := read(t, test.page), submatches(test.pattern, read(t, test.file))
			if len(names) == 0 {
				t.Fatalf("%s declares no %s any more", test.file, test.what)
			}
			for _, name := range names {
				if !regexp.MustCompile(`[^\w]` + regexp.QuoteMeta(name) + `[^\w]`).MatchString(page) {
					t.Errorf("%s does not name the %s %s", test.page, test.what, name)
				}
			}
		})
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func submatches(pattern, text string) []string {
	var names []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		names = append(names, strings.TrimSpace(m[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
