package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// TestGuide does what "Ten minutes" of docs/guides/mcp-gateway.md says, to the letter but
// for ports and the time that the PDP may take on a machine that is busy: its
// files are written, its commands typed, and what it shows must come, with … for
// anything. The same holds for the profile tool.invoke, and for the store that
// policy-service init makes.
func TestGuide(t *testing.T) {
	packages := guidePackages(t)
	for _, test := range []struct {
		name   string
		change *strings.Replacer // of what the guide says
	}{
		{"as it is", strings.NewReplacer()},
		{"tool.invoke", strings.NewReplacer(
			`:3001/mcp"}`, `:3001/mcp", mapping_profile: tool.invoke}`,
			`tools/call tool::"files:write_file"`, `tool.invoke tool::"files:write_file"`,
		)},
		{"2026-07-28", strings.NewReplacer(
			`@modelcontextprotocol/sdk/client/index.js`, `@modelcontextprotocol/client`,
			`@modelcontextprotocol/sdk/client/streamableHttp.js`, `@modelcontextprotocol/client`,
			`version: "1.0.0" }`, `version: "1.0.0" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } }`,
			`move_file: MCP error -32001: `, `move_file: `,
		)},
		{"a store of init", strings.NewReplacer("$ make run &", "$ policy-service init store\n…\n$ policy-service serve --policies store &")},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGuide(t, packages)
			section := test.change.Replace(tenMinutes(t))
			for _, file := range regexp.MustCompile("(?s)```(?:yaml|js)\n(?:#|//) (\\S+)\n(.*?)```").FindAllStringSubmatch(section, -1) {
				write(t, filepath.Join(g.dir, file[1]), g.ports.Replace(file[2]))
			}
			for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(section, -1) {
				g.follow(g.ports.Replace(block[1]))
			}
			t.Logf("%s", g.screen())
		})
	}
}

// tenMinutes returns that section of the guide.
func tenMinutes(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/guides/mcp-gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Ten minutes\n")
	section, _, ended := strings.Cut(section, "\nA desktop client is configured")
	if !found || !ended {
		t.Fatal("the guide has no section Ten minutes")
	}
	return section
}

// guidePackages installs what the guide has npm fetch, of the versions that it
// names, and returns the directory of it. Where there is no npm the test is
// skipped, but not where nobody would notice.
func guidePackages(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("testdata/guide")
	if err != nil {
		t.Fatal(err)
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
		t.Skipf("npm ci: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var known struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if err := json.Unmarshal(text, &known); err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`((?:@[\w-]+/)?[\w-]+)@(\d+\.\d+\.\d+)`).FindAllStringSubmatch(tenMinutes(t), -1)
	if len(named) < 3 {
		t.Fatalf("the guide names %q", named)
	}
	for _, found := range named {
		if known.Dependencies[found[1]] != found[2] {
			t.Errorf("the guide names %s %s, and testdata/guide/package.json %q", found[1], found[2], known.Dependencies[found[1]])
		}
	}
	return dir
}

// programsBuilt builds what make build does, once, and returns the directory that
// it is in.
var programsBuilt = sync.OnceValues(func() (string, error) {
	beside, err := policyService()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(beside, "bin")
	out, err := exec.Command("go", "build", "-o", dir+string(os.PathSeparator), "../policy-service", ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return dir, nil
})

// A guide is a shell in which somebody follows one.
type guide struct {
	*testing.T
	dir   string
	ports *strings.Replacer // the guide's for those of this run
	in    io.WriteCloser
	typed int
	ids   map[string]string // the guide's for those of this run

	mu  sync.Mutex
	out bytes.Buffer
}

func newGuide(t *testing.T, packages string) *guide {
	t.Helper()
	built, err := programsBuilt()
	if err != nil {
		t.Fatal(err)
	}
	g := &guide{T: t, dir: t.TempDir(), ids: make(map[string]string)}
	pdp, server, gateway := free(t), free(t), free(t)
	g.ports = strings.NewReplacer(
		`{url: "http://127.0.0.1:8080"}`, `{url: "http://`+pdp+`", timeout: 10s}`, "127.0.0.1:8080 (admin http://127.0.0.1:8081)", pdp+" (admin http://…)",
		"127.0.0.1:8080", pdp, "127.0.0.1:3001", server, "127.0.0.1:8090", gateway, "port 3001", "port "+server[strings.LastIndex(server, ":")+1:],
	)
	for _, name := range []string{"package.json", "node_modules"} {
		if err := os.Symlink(filepath.Join(packages, name), filepath.Join(g.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(built, filepath.Join(g.dir, "bin")); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("bash", "--norc", "-s")
	shell.Dir = g.dir
	shell.Env = append(os.Environ(), "PATH="+built+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+t.TempDir(),
		"POLICY_SERVICE_LISTEN="+pdp, "POLICY_SERVICE_ADMIN_LISTEN=127.0.0.1:0", "MCP_GATEWAY_LISTEN="+gateway, "npm_config_offline=true", "npm_config_update_notifier=false")
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Stdout, shell.Stderr = g, g
	shell.WaitDelay = 5 * time.Second
	if g.in, err = shell.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) // and all that it has started
		_ = shell.Wait()
	})
	return g
}

// Write takes in what the shell and its programs write.
func (g *guide) Write(text []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out.Write(text)
}

func (g *guide) screen() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out.String()
}

// follow types the commands of a block, each once what the guide shows of the one
// before has come.
func (g *guide) follow(block string) {
	g.Helper()
	var command string
	var shown []string
	lines := bufio.NewScanner(strings.NewReader(block + "$ :\n"))
	for lines.Scan() {
		next, is := strings.CutPrefix(lines.Text(), "$ ")
		if !is {
			shown = append(shown, lines.Text())
			continue
		}
		if command != "" {
			g.command(command, shown)
		}
		command, shown = next, nil
	}
}

// task is the id of an access request.
var task = regexp.MustCompile(`arq_[A-Z2-7]{26}`)

func (g *guide) command(line string, shown []string) {
	g.Helper()
	for here, there := range g.ids {
		line = strings.ReplaceAll(line, here, there)
	}
	switch {
	case line == "make build", strings.HasPrefix(line, "npm install "):
		return // it is
	case line == "make run &":
		line = "policy-service serve &"
	}
	g.typed++
	begun := len(g.screen())
	done := fmt.Sprintf("exit code %d of command %d", 0, g.typed)
	fmt.Fprintf(g.in, "%s\necho exit code $? of command %d\n", line, g.typed)
	wanted := []*regexp.Regexp{regexp.MustCompile(regexp.QuoteMeta(done))}
	for _, text := range shown {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(text), "…", ".*")
		pattern = task.ReplaceAllStringFunc(pattern, func(id string) string {
			if there, known := g.ids[id]; known {
				return there
			}
			return "(?P<" + id + ">" + task.String() + ")"
		})
		wanted = append(wanted, regexp.MustCompile("(?m)^"+pattern+"$"))
	}
	ctx, cancel := context.WithTimeout(g.Context(), time.Minute) // on a machine that is busy
	defer cancel()
	for _, want := range wanted {
		for !g.seen(want, begun) {
			select {
			case <-ctx.Done():
				g.Fatalf("after %q there is no line %s:\n%s", line, want, g.screen())
			case <-time.After(20 * time.Millisecond): // other programs have to go on
			}
		}
	}
}

// seen reports whether a line has come since then, and keeps the ids in it.
func (g *guide) seen(want *regexp.Regexp, since int) bool {
	found := want.FindStringSubmatch(g.screen()[since:])
	for i, name := range want.SubexpNames() {
		if found != nil && name != "" {
			g.ids[name] = found[i]
		}
	}
	return found != nil
}

// TestActor has an agent whose token says its roles call tools by the profile
// tool.invoke, with the policies that make run serves: it reads, its write waits
// for a person who sees what it is for, and a destructive call is denied. A token
// without roles is let do nothing.
func TestActor(t *testing.T) {
	packages := guidePackages(t)
	issuer := jwkstest.New(t)
	token := func(claims map[string]any) string {
		claims["iss"], claims["aud"], claims["exp"] = issuer.URL, "https://gateway.example.com/mcp", time.Now().Add(time.Hour).Unix()
		return jwkstest.Sign(t, jose.RS256, issuer.Key, jwkstest.KeyID, claims, nil)
	}
	g := newGuide(t, packages)
	for _, script := range []string{"jira.mjs", "workflow.mjs"} {
		text, err := os.ReadFile(filepath.Join(packages, script))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(g.dir, script), string(text))
	}
	write(t, filepath.Join(g.dir, "mcp-gateway.yaml"), g.ports.Replace(`
pdp: {url: "http://127.0.0.1:8080"}
identity:
  resource: https://gateway.example.com/mcp
  issuers: [{issuer: "`+issuer.URL+`", jwks_url: "`+issuer.URL+`"}]
servers:
  - name: jira-server-1
    url: http://127.0.0.1:3001/mcp
    mapping_profile: tool.invoke
    actor: {type: agent}
    tools:
      get_ticket: {labels: {category: internal, integration: jira, impact: read}}
      create_ticket: {labels: {category: sensitive, integration: jira, impact: write}}
      delete_ticket: {labels: {category: sensitive, integration: jira, impact: destructive}}
`))
	server := g.ports.Replace("127.0.0.1:3001")
	g.follow(g.ports.Replace(`$ policy-service serve &
listening on http://127.0.0.1:8080 (admin http://127.0.0.1:8081)
$ node jira.mjs ` + server[strings.LastIndex(server, ":")+1:] + ` &
$ until (exec 3<>/dev/tcp/127.0.0.1/` + server[strings.LastIndex(server, ":")+1:] + `) 2>/dev/null; do sleep 0.1; done
$ mcp-gateway serve &
listening on http://127.0.0.1:8090
$ node workflow.mjs http://127.0.0.1:8090/jira-server-1/mcp ` + token(map[string]any{"sub": "agent-workflow-123", "roles": []string{"workflow_orchestrator"}, "department_id": "dept-eng"}) + ` &
time=… level=INFO msg="list filtered" server=jira-server-1 method=tools/list subject=identity::agent-workflow-123 request_id=… hidden=1 of=3 reason="Destructive tools are not run through an agent." decision_id=…
tools: get_ticket create_ticket
get_ticket: get_ticket has run: Server outage
time=… level=INFO msg="call refused" server=jira-server-1 method=tools/call tool=delete_ticket subject=identity::agent-workflow-123 request_id=… reason_code=denied reason="Destructive tools are not run through an agent." decision_id=…
delete_ticket: -32001 {"reason_code":"denied","evaluation_id":"…"} MCP error -32001: Destructive tools are not run through an agent.
time=… level=INFO msg="call waits for a person" server=jira-server-1 method=tools/call tool=create_ticket subject=identity::agent-workflow-123 decision_id=… task=arq_MEIOS5VLV4TYXNP53LYEA677KK
$ policy-service approvals show arq_MEIOS5VLV4TYXNP53LYEA677KK
subject    agent::"agent-workflow-123"
context    {…"param_summary":"title: \"Server outage\"","purpose":"Resolve user issue #555",…"workflow_id":"wf-abc"}
  resource tool::"jira-server-1:create_ticket"
$ policy-service approvals approve arq_MEIOS5VLV4TYXNP53LYEA677KK --as user:carol
create_ticket: create_ticket has run: Server outage
$ ! node workflow.mjs http://127.0.0.1:8090/jira-server-1/mcp ` + token(map[string]any{"sub": "agent-workflow-124"}) + ` 2>&1
time=… level=INFO msg="call refused" server=jira-server-1 method=initialize subject=identity::agent-workflow-124 request_id=… reason_code=denied reason="access denied" decision_id=…
`))
	t.Logf("%s", g.screen())
}
