package conformance_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReference holds the reference to the code: what a user can set, ask or read
// is named there. Each row is where such names are declared, and how.
func TestReference(t *testing.T) {
	const pages = "../docs/reference/"
	for _, test := range []struct {
		page, what, file, pattern string
	}{
		{pages + "policy-store.md", "key of config.yaml", "../evaluation/snapshot/settings.go", "`yaml:\"(\\w+)\"`"},
		{pages + "approvals.md", "key of an approval template", "../evaluation/snapshot/templates.go", "`yaml:\"(\\w+)\"`"},
		{pages + "decision-log.md", "field of the log", "../evaluation/decisionlog/entry.go", "`json:\"(\\w+)[,\"]"},
		{pages + "decision-log.md", "kind of an entry", "../evaluation/decisionlog/entry.go", `Kind = "(\w+)"`},
		{pages + "policy-store.md", "annotation", "../obligations/annotations.go", `"(obligation_\w+|approval|requestable|reason_\w+)"`},
		{pages + "http.md", "route of the admin listener", "../pdp/admin.go", `"(/(?:livez|readyz|metrics|admin/v1/[\w/]+))"`},
		{pages + "http.md", "header of a response", "../pdp/logquery.go", `HeaderTotal = "([\w-]+)"`},
		{pages + "http.md", "problem", "../schemas/authzen/accessrequest.go", `Problem\w+ += "(urn:[\w:-]+)"`},
		{pages + "metrics.md", "metric", "../pdp/telemetry.go", `(?:Histogram|Counter|Gauge)\("([\w.]+)"`},
		{pages + "http.md", "route", "../schemas/authzen/metadata.go", `"(/[^"]+)"`},
		{pages + "cli.md", "exit code", "../cmd/policy-service/main.go", `exit\w+\s+= (\d+)`},
		{pages + "configuration.md", "key of auth", "../deploy/config.schema.json", `(?m)^ {8,}"(aliases|api_keys|jwt|mtls|tenants|scopes|id|sha256|issuer|audience|jwks_url|algorithms|tenant_claim|id_claim|alias_claims|ca|callers|name)": \{`},
		{pages + "configuration.md", "scope", "../pdp/callers/callers.go", `Scope = "(\w+)"`},
		{pages + "mcp-gateway.md", "key", "../cmd/mcp-gateway/internal/gateway/config.go", "`yaml:\"(\\w+)\""},
		{pages + "mcp-gateway.md", "metric", "../cmd/mcp-gateway/internal/gateway/telemetry.go", `(?:Histogram|Counter|Gauge)\("([\w.]+)"`},
		{pages + "mcp-gateway.md", "reason", "../cmd/mcp-gateway/internal/enforce/refusal.go", `Reason\w+\s+= "(\w+)"`},
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
