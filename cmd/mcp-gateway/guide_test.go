package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

const guidePage = "../../docs/guides/mcp-gateway.md"

// TestGuide pastes the ten minutes of the guide, but for ports and for the time
// that the PDP may take on a busy machine. The same holds for the profile
// tool.invoke, for the stateless protocol, and for the store of policy-service
// init.
func TestGuide(t *testing.T) {
	packages := guidePackages(t)
	for _, test := range []struct {
		name   string
		change *strings.Replacer // of the guide
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
			`move_file: MCP error 4030: `, `move_file: `,
		)},
		{"a store of init", strings.NewReplacer("policy-service serve &", "policy-service init store\npolicy-service serve --policies store &")},
	} {
		t.Run(test.name, func(t *testing.T) {
			shell := newTerminal(t, packages)
			shell.Follow(patient.Replace(test.change.Replace(docpage.TenMinutes(t, guidePage))))
			t.Logf("%s", shell.Screen())
		})
	}
}

// TestStart pastes how the guide starts with the servers of a client: the official
// client and the official server go on working, and are then held to the policies.
func TestStart(t *testing.T) {
	guide, err := os.ReadFile(guidePage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(guide), "\n## Start with what you have\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("the guide has not the part that is pasted")
	}
	shell := newTerminal(t, guidePackages(t))
	const written = "--write .mcp.json\n"
	section = strings.NewReplacer(
		"mcp-gateway init --dir gateway", "mcp-gateway init --pdp http://127.0.0.1:8080 --dir gateway",
		written, written+`sed -i 's/^pdp: {url: \(.*\)}/pdp: {url: \1, timeout: 10s}/' gateway/mcp-gateway.yaml`+"\n",
	).Replace(section)
	shell.Follow(section)
	t.Logf("%s", shell.Screen())
}

// patient gives the PDP time on a busy machine.
var patient = strings.NewReplacer(`{url: "http://127.0.0.1:8080"}`, `{url: "http://127.0.0.1:8080", timeout: 10s}`)

// newTerminal starts a shell that has what npm installs for the guide.
func newTerminal(t *testing.T, packages string) *docpage.Terminal {
	t.Helper()
	built, err := programsBuilt()
	if err != nil {
		t.Fatal(err)
	}
	// Node looks for packages in the directories above that of a script.
	tmp := t.TempDir()
	for _, name := range []string{"package.json", "node_modules"} {
		if err := os.Symlink(filepath.Join(packages, name), filepath.Join(tmp, name)); err != nil {
			t.Fatal(err)
		}
	}
	gateway := docpage.FreeAddress(t)
	shell := docpage.NewTerminal(t, "../..", built, "TMPDIR="+tmp, "MCP_GATEWAY_LISTEN="+gateway, "npm_config_offline=true", "npm_config_update_notifier=false")
	shell.Move("127.0.0.1:8090", gateway)
	shell.Move("127.0.0.1:3001", docpage.FreeAddress(t))
	return shell
}

// guidePackages installs what the guide has npm fetch, of the versions that it
// names, and returns the directory of it.
func guidePackages(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("testdata/guide")
	if err != nil {
		t.Fatal(err)
	}
	external.Packages(t, dir)
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
	named := regexp.MustCompile(`((?:@[\w-]+/)?[\w-]+)@(\d+\.\d+\.\d+)`).FindAllStringSubmatch(docpage.TenMinutes(t, guidePage), -1)
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

// TestActor has an agent whose token says its roles call tools by the profile
// tool.invoke, with the policies that make run serves: it reads, its write waits
// for a person who sees what it is for, and a destructive call is denied. A token
// without roles is let do nothing.
func TestActor(t *testing.T) {
	packages := guidePackages(t)
	issuer := jwkstest.New(t)
	token := func(claims map[string]any) string {
		claims["iss"], claims["aud"], claims["exp"] = issuer.URL, "https://gateway.example.com/jira-server-1/mcp", time.Now().Add(time.Hour).Unix()
		return jwkstest.Sign(t, jose.RS256, issuer.Key, jwkstest.KeyID, claims, nil)
	}
	shell := newTerminal(t, packages)
	for _, script := range []string{"jira.mjs", "workflow.mjs"} {
		text, err := os.ReadFile(filepath.Join(packages, script))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(shell.Dir, script), string(text))
	}
	for _, name := range []string{"package.json", "node_modules"} {
		if err := os.Symlink(filepath.Join(packages, name), filepath.Join(shell.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	shell.Follow(patient.Replace("```sh\n" + `
export PATH=$PWD/bin:$PATH
cat > mcp-gateway.yaml <<'END'
pdp: {url: "http://127.0.0.1:8080"}
identity:
  resource: https://gateway.example.com
  issuers: [{issuer: "` + issuer.URL + `", jwks_url: "` + issuer.URL + `"}]
servers:
  - name: jira-server-1
    url: http://127.0.0.1:3001/mcp
    mapping_profile: tool.invoke
    actor: {type: agent}
    tools:
      get_ticket: {labels: {category: internal, integration: jira, impact: read}}
      create_ticket: {labels: {category: sensitive, integration: jira, impact: write}}
      delete_ticket: {labels: {category: sensitive, integration: jira, impact: destructive}}
END
policy-service serve &
` + "```\n```text\n" + `listening on http://127.0.0.1:8080 (admin http://127.0.0.1:8081)
console on http://127.0.0.1:8082 (policy-service console prints a link to sign in)
` + "```\n```sh\n" + `
port=$(echo http://127.0.0.1:3001 | cut -d : -f 3)
node jira.mjs $port &
until (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null; do sleep 0.1; done
mcp-gateway serve &
` + "```\n```text\n" + `listening on http://127.0.0.1:8090
` + "```\n```sh\n" + `
node workflow.mjs http://127.0.0.1:8090/jira-server-1/mcp ` + token(map[string]any{"sub": "agent-workflow-123", "roles": []string{"workflow_orchestrator"}, "department_id": "dept-eng"}) + ` &
` + "```\n```text\n" + `time=… level=INFO msg="list filtered" server=jira-server-1 method=tools/list subject=identity::agent-workflow-123 request_id=… hidden=1 of=3 reason="Destructive tools are not run through an agent." decision_id=…
tools: get_ticket create_ticket
get_ticket: get_ticket has run: Server outage
time=… level=INFO msg="call refused" server=jira-server-1 method=tools/call tool=delete_ticket subject=identity::agent-workflow-123 request_id=… reason_code=denied reason="Destructive tools are not run through an agent." decision_id=…
delete_ticket: 4030 {"reason_code":"denied","evaluation_id":"…"} MCP error 4030: Destructive tools are not run through an agent.
time=… level=INFO msg="call waits for a person" server=jira-server-1 method=tools/call tool=create_ticket subject=identity::agent-workflow-123 decision_id=… task=arq_…
` + "```\n```sh\n" + `
task=$(policy-service approvals list | cut -d ' ' -f 1)
policy-service approvals show $task
` + "```\n```text\n" + `subject    agent::"agent-workflow-123"
context    {…"param_summary":"title: \"Server outage\"","purpose":"Resolve user issue #555",…"workflow_id":"wf-abc"}
  resource tool::"jira-server-1:create_ticket"
` + "```\n```sh\n" + `
policy-service approvals approve $task --as user:carol
` + "```\n```text\n" + `create_ticket: create_ticket has run: Server outage
` + "```\n```sh\n" + `
! node workflow.mjs http://127.0.0.1:8090/jira-server-1/mcp ` + token(map[string]any{"sub": "agent-workflow-124"}) + ` 2>&1
` + "```\n```text\n" + `time=… level=INFO msg="call refused" server=jira-server-1 method=initialize subject=identity::agent-workflow-124 request_id=… reason_code=denied reason="access denied" decision_id=…
` + "```\n"))
	t.Logf("%s", shell.Screen())
}
