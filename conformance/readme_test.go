package conformance_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReadme holds the README to the code: what a user can set, ask or read is
// named there. Each row is where such names are declared, and how.
func TestReadme(t *testing.T) {
	readme := read(t, "../README.md")
	for _, test := range []struct {
		what, file, pattern string
	}{
		{"key of config.yaml", "../evaluation/settings.go", "`yaml:\"(\\w+)\"`"},
		{"key of an approval template", "../evaluation/templates.go", "`yaml:\"(\\w+)\"`"},
		{"field of the log", "../evaluation/decisionlog/entry.go", "`json:\"(\\w+)[,\"]"},
		{"annotation", "../obligations/terms.go", `"(obligation_\w+|approval|requestable|reason_\w+)"`},
		{"route of the admin listener", "../pdp/admin.go", `"(/(?:livez|readyz|metrics|admin/v1/[\w/]+))"`},
		{"metric", "../pdp/telemetry.go", `(?:Histogram|Counter|Gauge)\("([\w.]+)"`},
		{"route", "../schemas/authzen/metadata.go", `"(/[^"]+)"`},
		{"exit code", "../cmd/policy-service/main.go", `exit\w+\s+= (\d+)`},
	} {
		t.Run(test.what, func(t *testing.T) {
			names := submatches(test.pattern, read(t, test.file))
			if len(names) == 0 {
				t.Fatalf("%s declares no %s any more", test.file, test.what)
			}
			for _, name := range names {
				if !regexp.MustCompile(`[^\w]` + regexp.QuoteMeta(name) + `[^\w]`).MatchString(readme) {
					t.Errorf("the README does not name the %s %s", test.what, name)
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
