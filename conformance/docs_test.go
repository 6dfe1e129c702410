package conformance_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/conformance/docpage"
)

// pages are those for people: the guides, the reference and what stands at the
// root.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"../docs/*.md", "../docs/*/*.md", "../*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no pages %s: %v", pattern, err)
		}
		all = append(all, files...)
	}
	return all
}

// Every command line on a page has a command and flags that the program has.
func TestDocumentedCommands(t *testing.T) {
	known := make(commands)
	for _, wrong := range []string{"log exprot", "log export --bundel x", "serve --polices x"} {
		if known.fault(t, wrong) == "" {
			t.Fatalf("what is wrong with %q is not noticed", wrong)
		}
	}
	lines := 0
	for _, page := range pages(t) {
		for _, line := range submatches("(?m)(?:^\\$ |`)policy-service ([a-z][^`\n|>&]*)", read(t, page)) {
			if line == "decision log bundle 1" {
				continue // what a manifest begins with
			}
			lines++
			if fault := known.fault(t, line); fault != "" {
				t.Errorf("%s: policy-service %s: %s", page, line, fault)
			}
		}
	}
	if lines == 0 {
		t.Fatal("there are no command lines")
	}
}

// commands are the helps of the program's commands that were asked for.
type commands map[string]string

var (
	verbs = regexp.MustCompile(`^[a-z-]+(?: [a-z][a-z-]*)?`)
	flags = regexp.MustCompile(`(?:^| )(--[a-z][a-z.-]*)`)
)

// fault says what is wrong with a command line, or "".
func (c commands) fault(t *testing.T, line string) string {
	t.Helper()
	command := verbs.FindString(line)
	if group, _, found := strings.Cut(command, " "); found && !slices.Contains([]string{"log", "approvals", "capabilities", "keys", "config"}, group) {
		command = group // the rest is an argument
	}
	help, asked := c[command]
	if !asked {
		out, err := policyService(t, append(strings.Fields(command), "--help")...)
		if err != nil {
			return out
		}
		help, c[command] = out, out
	}
	for _, m := range flags.FindAllStringSubmatch(line, -1) {
		if !regexp.MustCompile(regexp.QuoteMeta(m[1]) + `[\s=,]`).MatchString(help) {
			return "there is no flag " + m[1]
		}
	}
	return ""
}

var relative = regexp.MustCompile(`\]\(([^):]+)\)`)

// Every link on a page that leads to a file of the repository leads to one, and
// to a section of it.
func TestLinks(t *testing.T) {
	known := make(sections)
	if len(known.faults("../docs/security.md", "[a](nowhere.md) [b](guides/operator.md#nothing) [c](guides/operator.md)")) != 2 {
		t.Fatal("a link that leads nowhere is not noticed")
	}
	for _, page := range pages(t) {
		for _, fault := range known.faults(page, read(t, page)) {
			t.Errorf("%s: %s", page, fault)
		}
	}
}

// sections are the anchors of each page that a link has led to.
type sections map[string]map[string]bool

// faults says what is wrong with the links in the text of a page.
func (known sections) faults(page, text string) (all []string) {
	for _, target := range relative.FindAllStringSubmatch(text, -1) {
		if fault := known.fault(page, target[1]); fault != "" {
			all = append(all, target[1]+": "+fault)
		}
	}
	return all
}

// fault says what is wrong with a link, or "".
func (known sections) fault(page, target string) string {
	path, section, _ := strings.Cut(target, "#")
	if path == "" {
		path = filepath.Base(page)
	}
	path = filepath.Join(filepath.Dir(page), path)
	if _, err := os.Stat(path); err != nil {
		return err.Error()
	}
	if section == "" {
		return ""
	}
	if known[path] == nil {
		text, err := os.ReadFile(path)
		if err != nil {
			return err.Error()
		}
		known[path] = anchors(string(text))
	}
	if !known[path][section] {
		return "there is no such section"
	}
	return ""
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notOfAnchor = regexp.MustCompile(`[^\p{L}\p{N}_-]`)
)

// anchors are the sections of a page, by the names that links have for them.
func anchors(page string) map[string]bool {
	names := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		name := strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")
		names[notOfAnchor.ReplaceAllString(name, "")] = true
	}
	return names
}

var proof = regexp.MustCompile(`\[((?:Test|Fuzz)\w+)\]\(([^)]+)\)`)

// Every test that a page names is where it says.
func TestNamedTests(t *testing.T) {
	named := proof.FindAllStringSubmatch(read(t, "../docs/security.md"), -1)
	if len(named) == 0 {
		t.Fatal("no tests are named")
	}
	for _, m := range named {
		if !strings.Contains(read(t, filepath.Join("../docs", m[2])), "\nfunc "+m[1]+"(") {
			t.Errorf("there is no %s in %s", m[1], m[2])
		}
	}
}

// foreign are names on the pages that look like keys and are Envoy's, or what a
// secret may be called.
var foreign = []string{"ext_authz", "with_request_body", "api_key", "secret_list"}

var hostPath = regexp.MustCompile(`^/(etc|var|mnt|usr)/`)

// isRoute reports whether a path, or one that it is below, is quoted.
func isRoute(name string, quoted func(string) bool) bool {
	for ; len(name) > 1; name = path.Dir(name) {
		if quoted(name) || quoted(name+"/:") {
			return true
		}
	}
	return false
}

// programText is the source of the program, without its tests.
func programText(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"../pdp", "../schemas/authzen", "../evaluation", "../obligations", "../cmd/mcp-gateway"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				all.WriteString(read(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// Every endpoint, metric, key of the settings and flag that a page names is one
// of the program.
func TestDocumentedNames(t *testing.T) {
	known := flagsAndVariables(t)
	isSetting := func(name string) bool { return known["--"+strings.ReplaceAll(name, "_", "-")] }
	sources := programText(t)
	quoted := func(name string) bool {
		return strings.Contains(sources, `"`+name+`"`) || strings.Contains(sources, `"`+name+`,`)
	}
	for _, kind := range []struct {
		what, pattern string
		is            func(name string) bool
	}{
		{"endpoint", "`(?:GET |POST )?(/[a-z.][\\w./-]*)", func(name string) bool { return hostPath.MatchString(name) || isRoute(name, quoted) }},
		{"metric", "`((?:policy_service|mcp_gateway|http\\.server)[._][\\w.]+)", func(name string) bool { return quoted(name) }},
		{"key of log", "`(log\\.[a-z_]+)`", isSetting},
		{"key", "`([a-z]+(?:_[a-z]+)+)`", func(name string) bool {
			return isSetting(name) || isSetting("log."+name) || isSetting("console."+name) || quoted(name) || slices.Contains(foreign, name)
		}},
		{"variable", "(POLICY_SERVICE_[A-Z_]+)", func(name string) bool { return known[name] || name == "POLICY_SERVICE_API_KEY" }},
	} {
		t.Run(kind.what, func(t *testing.T) {
			found := 0
			for _, page := range pages(t) {
				written := docpage.Generated.ReplaceAllString(read(t, page), "")
				for _, name := range submatches(kind.pattern, written) {
					found++
					if !kind.is(name) {
						t.Errorf("%s: there is no %s %s", page, kind.what, name)
					}
				}
			}
			if found == 0 || kind.is("no_such_thing") {
				t.Error("nothing is found, or anything would do")
			}
		})
	}
}

// Every rule leads to a section of the runbooks.
func TestRunbooks(t *testing.T) {
	sections := anchors(read(t, "../docs/guides/operator.md"))
	for _, rule := range rules(t) {
		section, ok := strings.CutPrefix(rule.Annotations["runbook"], "docs/guides/operator.md#")
		if !ok || !sections[section] {
			t.Errorf("%s: there is no runbook %s", rule.Alert, rule.Annotations["runbook"])
		}
	}
}
