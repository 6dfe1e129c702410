package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/setup"
)

// A home is a user's directory with configurations of clients.
type home struct {
	*testing.T
	dir string
}

func newHome(t *testing.T) home {
	h := home{t, t.TempDir()}
	t.Setenv("HOME", h.dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("CLAUDE_CONFIG_DIR", "")
	t.Chdir(h.dir)
	return h
}

func (h home) write(name, text string) {
	h.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(h.dir, name)), 0o700); err != nil {
		h.Fatal(err)
	}
	write(h.T, filepath.Join(h.dir, name), text)
}

func (h home) read(name string) string {
	h.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, name))
	if err != nil {
		h.Fatal(err)
	}
	return strings.ReplaceAll(string(text), h.dir, "~")
}

// init sets up the home and returns what it prints.
func (h home) init(include ...string) (string, error) {
	h.Helper()
	plan, err := setup.New(setup.Config{
		Dir: filepath.Join(h.dir, "gw"), Program: "/bin/mcp-gateway", PDP: "http://127.0.0.1:8080", Listen: "127.0.0.1:8090", User: `AD\älice`, Include: include, Read: readGateway,
	})
	if err != nil {
		return "", err
	}
	if err := plan.Guard(); err != nil {
		return "", err
	}
	var out strings.Builder
	if err := plan.Show(&out); err != nil {
		return "", err
	}
	err = plan.Write(&out)
	return strings.ReplaceAll(out.String(), h.dir, "~"), err
}

// Servers keep their names as far as the gateway permits them. Entries that are the
// same share one, and others do not.
func TestInitNames(t *testing.T) {
	h := newHome(t)
	long := strings.Repeat("x", 70)
	h.write(".claude.json", `{"mcpServers": {"GitHub (work)": {"command": "gh"}, "__é__": {"command": "é"}, "`+long+`": {"command": "1"}},
		"projects": {"/p/q": {"mcpServers": {"github-work": {"command": "gh", "args": []}, "github work": {"command": "gh", "env": {"A": "b"}}, "`+long+`y": {"command": "2"}}}}}`)
	got, err := h.init()
	if err != nil {
		t.Fatal(err)
	}
	want := `~/.claude.json (Claude Code)
  GitHub (work)                                                           guarded as github-work
  __é__                                                                   guarded as server
  ` + long + `                                                                  guarded as ` + long[:63] + `
  github-work of /p/q                                                     guarded as github-work
  github work of /p/q                                                     guarded as github-work-2
  ` + long + "y of /p/q" + `  guarded as ` + long[:61] + `-2
`
	table, _, _ := strings.Cut(got, "wrote")
	if diff := cmp.Diff(strings.Join(strings.Fields(want), " "), strings.Join(strings.Fields(table), " ")); diff != "" {
		t.Error(diff)
	}
	if _, err := readConfig(filepath.Join(h.dir, "gw", "mcp-gateway.yaml"), "", true); err != nil {
		t.Error(err)
	}
}

// A server is added to the list of a configuration that exists, and all else in it
// stays. A list of another form is not touched.
func TestInitExtends(t *testing.T) {
	const before, after = "# mine\npdp: {url: \"http://127.0.0.1:8080\"}\nidentity: {local: {type: user, id: a}}\nservers:\n", "\n# more\ncatalog: {ttl: 5s}\n"
	for name, test := range map[string]struct{ list, want string }{
		"block":          {"  # one\n  - name: a\n    url: http://127.0.0.1:1/mcp\n\n  # last\n", "  # one\n  - name: a\n    url: http://127.0.0.1:1/mcp\n  - name: new\n    mode: observe\n\n  # last\n"},
		"not indented":   {"- name: a\n  tools:\n    t: {labels: {impact: read}}\n- {name: b}\n", "- name: a\n  tools:\n    t: {labels: {impact: read}}\n- {name: b}\n- name: new\n  mode: observe\n"},
		"without an end": {"    - name: a", "    - name: a\n    - name: new\n      mode: observe\n"},
		"flow":           {"  [{name: a}]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			end := after
			if name == "without an end" {
				end = ""
			}
			h.write("gw/mcp-gateway.yaml", before+test.list+end)
			h.write(".cursor/mcp.json", `{"mcpServers": {"new": {"command": "srv"}}}`)
			_, err := h.init()
			got := h.read("gw/mcp-gateway.yaml")
			if test.want == "" {
				if err == nil || !strings.Contains(err.Error(), "by hand") || got != before+test.list+end || h.read(".cursor/mcp.json") != `{"mcpServers": {"new": {"command": "srv"}}}` {
					t.Errorf("%v: %s", err, got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before+test.want+end, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An HTTP server that a client may log in to is guarded if it is named. A link to a
// file stays one.
func TestInitInclude(t *testing.T) {
	h := newHome(t)
	h.write("dotfiles/mcp.json", `{"mcpServers": {"a": {"url": "https://a.example.com/mcp"}, "b": {"url": "http://localhost:1/mcp", "oauth": {}}, "c": {"url": "https://u:p@c.example.com/mcp", "headers": {"k": "v"}}, "d": {"url": "http://127.0.0.1:8090/x"}}}`)
	if err := os.Mkdir(filepath.Join(h.dir, ".cursor"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../dotfiles/mcp.json", filepath.Join(h.dir, ".cursor", "mcp.json")); err != nil {
		t.Fatal(err)
	}
	got, err := h.init("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  a  guarded at http://127.0.0.1:8090/a/mcp\n", "  b  left as it is: the client may log in", "  c  left as it is: its URL is not one", "  d  left as it is: its URL is at the address of the gateway",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if info, err := os.Lstat(filepath.Join(h.dir, ".cursor", "mcp.json")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	if got := h.read("dotfiles/mcp.json"); !strings.HasPrefix(got, `{"mcpServers": {"a": {"url": "http://127.0.0.1:8090/a/mcp"}, "b"`) {
		t.Error(got)
	}
}

// Headers whose names are alike keep their values apart.
func TestInitHeaders(t *testing.T) {
	h := newHome(t)
	h.write(".cursor/mcp.json", `{"mcpServers": {"a": {"url": "http://127.0.0.1:1/mcp", "headers": {"X.K": "1", "X-K": "2", "authorization": "Basic 3", "b": "bearer 4"}}}}`)
	if _, err := h.init(); err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, name := range []string{"a.x-k", "a.x-k-2", "a.authorization", "a.b"} {
		got += h.read("gw/secrets/" + name)
	}
	if got != "1\n2\nBasic 3\nbearer 4\n" {
		t.Errorf("%q", got)
	}
	if _, err := readConfig(filepath.Join(h.dir, "gw", "mcp-gateway.yaml"), "", true); err != nil {
		t.Error(err)
	}
}

// Links of a repository lead no file elsewhere.
func TestInitFollowsNoLinks(t *testing.T) {
	h := newHome(t)
	h.write(".mcp.json", `{"mcpServers": {"a": {"command": "srv"}}}`)
	h.write("precious", "precious")
	for _, name := range []string{".mcp.json.tmp", ".mcp.json.before-mcp-gateway.tmp"} {
		if err := os.Symlink("precious", filepath.Join(h.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.init(); err != nil {
		t.Fatal(err)
	}
	if got := h.read("precious"); got != "precious" {
		t.Errorf("it is %q", got)
	}
}

// A name of --include that no client has is a mistake.
func TestInitIncludesNothing(t *testing.T) {
	h := newHome(t)
	h.write(".cursor/mcp.json", `{"mcpServers": {"github": {"url": "https://a.example.com/mcp"}}}`)
	if _, err := h.init("gihub"); err == nil || err.Error() != `no client has the server "gihub" of --include (did you mean "github"?)` {
		t.Error(err)
	}
}

// A configuration that was lost is written again for the servers that use it.
func TestInitLostConfiguration(t *testing.T) {
	h := newHome(t)
	h.write(".mcp.json", `{"mcpServers": {"My": {"command": "srv"}}}`)
	if _, err := h.init(); err != nil {
		t.Fatal(err)
	}
	guarded, config := h.read(".mcp.json"), h.read("gw/mcp-gateway.yaml")
	if err := os.RemoveAll(filepath.Join(h.dir, "gw")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.init(); err != nil {
		t.Fatal(err)
	}
	if h.read(".mcp.json") != guarded || h.read("gw/mcp-gateway.yaml") != config {
		t.Errorf("%s\n%s", h.read(".mcp.json"), h.read("gw/mcp-gateway.yaml"))
	}
}
