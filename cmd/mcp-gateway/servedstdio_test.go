package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/conformance/external"
)

// A cellNote is what the tools of cell take.
type cellNote struct {
	Text string `json:"text,omitempty"`
}

// notebook is the program cell, which is an MCP server on standard input and output, and keeps
// what it is told in memory. It starts a process of its own, too.
func notebook() {
	server := mcp.NewServer(&mcp.Implementation{Name: "cell", Version: "1"}, nil)
	var mu sync.Mutex
	var notes []string
	var grown [][]byte
	add := func(name string, do func(context.Context, *mcp.CallToolRequest, string) string) {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(ctx context.Context, r *mcp.CallToolRequest, in cellNote) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: do(ctx, r, in.Text)}}}, nil, nil
		})
	}
	add("remember", func(_ context.Context, _ *mcp.CallToolRequest, text string) string {
		mu.Lock()
		defer mu.Unlock()
		notes = append(notes, text)
		return "remembered"
	})
	add("recall", func(context.Context, *mcp.CallToolRequest, string) string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(notes, ", ")
	})
	add("count", func(ctx context.Context, r *mcp.CallToolRequest, text string) string {
		for i := range 3 {
			check(r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Message: text}))
		}
		return text
	})
	add("die", func(context.Context, *mcp.CallToolRequest, string) string {
		fmt.Fprintln(os.Stderr, "killed in a call")
		os.Exit(3)
		return ""
	})
	add("ask", func(ctx context.Context, r *mcp.CallToolRequest, _ string) string {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "go on?", RequestedSchema: map[string]any{"type": "object"}})
		if err != nil {
			return err.Error()
		}
		return answer.Action
	})
	add("grow", func(_ context.Context, _ *mcp.CallToolRequest, mebibytes string) string {
		mu.Lock()
		defer mu.Unlock()
		n, err := strconv.Atoi(mebibytes)
		check(err)
		for range n {
			grown = append(grown, bytes.Repeat([]byte{1}, 1<<20))
		}
		time.Sleep(2 * time.Second) // while the gateway looks
		return "grown"
	})
	add("breed", func(_ context.Context, _ *mcp.CallToolRequest, mebibytes string) string {
		glutton := exec.Command("sh", "-c", "(head -c "+mebibytes+"M /dev/zero; sleep 2) | tail -n 1 | wc -c")
		out, err := glutton.CombinedOutput()
		check(err)
		return strings.TrimSpace(string(out))
	})
	add("env", func(_ context.Context, _ *mcp.CallToolRequest, name string) string { return os.Getenv(name) })
	child := exec.Command("sleep", "1000")
	check(child.Start())
	add("pids", func(context.Context, *mcp.CallToolRequest, string) string {
		return fmt.Sprint(os.Getpid(), " ", child.Process.Pid)
	})
	check(server.Run(context.Background(), &mcp.StdioTransport{}))
	select {} // it does not end by itself
}

// A cellGateway is a gateway that runs cell.
type cellGateway struct {
	*testing.T
	e        *exchanger
	dir      string
	command  *exec.Cmd
	endpoint string
}

func newCellGateway(t *testing.T, processes string) *cellGateway {
	g := &cellGateway{T: t, e: newExchanger(t), dir: t.TempDir()}
	write(t, filepath.Join(g.dir, "secret"), "sesame\n")
	write(t, filepath.Join(g.dir, "gateway.yaml"), `
listen: 127.0.0.1:0
state: `+g.dir+`/state
pdp: {url: "`+denies(t, "nothing is denied")+`", timeout: 10s}
identity:
  resource: https://gateway.example.com
  issuers: [{issuer: "https://auth.example.com", jwks_url: "`+g.e.keys.URL+`", tenant_claim: org}]
servers:
  - name: cell
    command: [cell]
    args: [stdio]
    env: [PASSED]
    env_files: {SECRET: `+g.dir+`/secret}
    processes: {`+processes+`}
`)
	g.command = exec.Command("mcp-gateway", "serve", "--config", filepath.Join(g.dir, "gateway.yaml"))
	g.command.Env = append(os.Environ(), "PASSED=passed", "KEPT=kept", "MCP_GATEWAY_STATE="+g.dir+"/state")
	g.endpoint = serving(t, g.command) + "/cell/mcp"
	return g
}

func (g *cellGateway) connect(subject, tenant string) *mcp.ClientSession {
	g.Helper()
	return connectAs(g.T, g.endpoint, g.e.sign(tokenHolder{Subject: subject, Tenant: tenant, Aud: "https://gateway.example.com/cell/mcp"}))
}

// use calls a tool of cell, and returns what it says or the error.
func use(t *testing.T, s *mcp.ClientSession, tool, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: cellNote{text}})
	if err != nil {
		return "error: " + err.Error()
	}
	return result.Content[0].(*mcp.TextContent).Text
}

// Callers and tenants do not share a process, and sessions of one caller do. A process
// gets the variables that the configuration names.
func TestProcessPerCaller(t *testing.T) {
	g := newCellGateway(t, "")
	alice, again := g.connect("alice", "acme"), g.connect("alice", "acme")
	bob, other := g.connect("bob", "acme"), g.connect("alice", "other")
	if got := use(t, alice, "remember", "of alice"); got != "remembered" {
		t.Fatal(got)
	}
	for _, test := range []struct {
		session    *mcp.ClientSession
		tool, text string
		want       string
	}{
		{alice, "recall", "", "of alice"}, {again, "recall", "", "of alice"}, {bob, "recall", "", ""}, {other, "recall", "", ""},
		{alice, "env", "PASSED", "passed"}, {alice, "env", "SECRET", "sesame"}, {alice, "env", "KEPT", ""}, {alice, "env", "MCP_GATEWAY_STATE", ""}, {alice, "env", "PATH", os.Getenv("PATH")},
	} {
		if got := use(t, test.session, test.tool, test.text); got != test.want {
			t.Errorf("%s %s: %q, want %q", test.tool, test.text, got, test.want)
		}
	}
	if err := alice.Close(); err != nil {
		t.Error(err)
	}
	if got := use(t, again, "recall", ""); got != "of alice" {
		t.Errorf("after the other session: %q", got)
	}
}

// Calls in one process at once get their own answers and their own progress.
func TestProcessConcurrentCalls(t *testing.T) {
	for _, processes := range []string{"", "per: shared"} {
		g := newCellGateway(t, processes)
		token := g.e.sign(tokenHolder{Subject: "alice", Tenant: "acme", Aud: "https://gateway.example.com/cell/mcp"})
		var all sync.WaitGroup
		var checks []func() []string
		for i := range 4 {
			var mu sync.Mutex
			told := map[string]int{}
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				mu.Lock()
				defer mu.Unlock()
				told[r.Params.Message]++
			}})
			session := connectClient(t, client, g.endpoint, token)
			for n := range 10 {
				all.Go(func() {
					text := fmt.Sprint("client ", i, " call ", n)
					params := &mcp.CallToolParams{Name: "count", Arguments: cellNote{text}}
					params.SetProgressToken(n)
					result, err := session.CallTool(t.Context(), params)
					if err != nil || result.Content[0].(*mcp.TextContent).Text != text {
						t.Errorf("%s: %+v, %v", text, result, err)
					}
				})
			}
			checks = append(checks, func() (faults []string) {
				mu.Lock()
				defer mu.Unlock()
				for text, n := range told {
					if n != 3 || !strings.HasPrefix(text, fmt.Sprint("client ", i, " ")) {
						faults = append(faults, fmt.Sprintf("client %d is told %d times of %s", i, n, text))
					}
				}
				if len(told) != 10 {
					faults = append(faults, fmt.Sprintf("client %d is told of %d calls", i, len(told)))
				}
				return faults
			})
		}
		all.Wait()
		for _, check := range checks {
			deadline := time.Now().Add(20 * time.Second) // the client handles notifications apart from responses
			for check() != nil && time.Now().Before(deadline) {
				time.Sleep(10 * time.Millisecond)
			}
			for _, fault := range check() {
				t.Error(fault)
			}
		}
	}
}

// A server may ask the client of a call, unless its process is shared.
func TestProcessAsks(t *testing.T) {
	for processes, want := range map[string]string{"": "decline", "per: shared": "does not support"} {
		g := newCellGateway(t, processes)
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		}})
		session := connectClient(t, client, g.endpoint, g.e.sign(tokenHolder{Subject: "alice", Tenant: "acme", Aud: "https://gateway.example.com/cell/mcp"}))
		if got := use(t, session, "ask", ""); !strings.Contains(got, want) {
			t.Errorf("%q: %s", processes, got)
		}
	}
}

// A process that ends in a call answers it, and the trail does not know its outcome.
// The next session has another process.
func TestProcessDies(t *testing.T) {
	g := newCellGateway(t, "")
	alice, bob := g.connect("alice", "acme"), g.connect("bob", "acme")
	if got := use(t, bob, "remember", "of bob"); got != "remembered" {
		t.Fatal(got)
	}
	begun := time.Now()
	if got := use(t, alice, "die", ""); !strings.HasPrefix(got, "error: ") {
		t.Errorf("a call of a process that dies: %s", got)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the call is answered after %s", took)
	}
	if got := use(t, alice, "recall", ""); !strings.HasPrefix(got, "error: ") {
		t.Errorf("a session without a process: %s", got)
	}
	if got := use(t, bob, "recall", ""); got != "of bob" {
		t.Errorf("another caller's process: %s", got)
	}
	time.Sleep(time.Second) // the pause after the first failure
	if got := use(t, g.connect("alice", "acme"), "recall", ""); got != "" {
		t.Errorf("a new process: %s", got)
	}
	g.end(syscall.SIGTERM)
	out, err := policyServiceCommand(t, "log", "export", "--state", filepath.Join(g.dir, "state", "trail"))
	if err != nil || strings.Count(out, `"event":"unknown"`) != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}

// A process that uses too much memory ends, also where a program that it has started
// does. The call is told so, and the trail does not know its outcome. Without a bound,
// and below it, the same calls have results.
func TestProcessMemory(t *testing.T) {
	for name, test := range map[string]struct{ processes, tool, mebibytes, want string }{
		"too much":                     {"memory: 200000000", "grow", "300", "used more than 200000000 bytes of memory"},
		"too much of another program":  {"memory: 200000000, per: shared", "breed", "300", "used more than 200000000 bytes of memory"},
		"little":                       {"memory: 200000000", "grow", "20", "grown"},
		"little of another program":    {"memory: 200000000", "breed", "20", fmt.Sprint(20 << 20)},
		"no bound":                     {"", "grow", "300", "grown"},
		"no bound for another program": {"", "breed", "300", fmt.Sprint(300 << 20)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newCellGateway(t, test.processes)
			alice := g.connect("alice", "acme")
			all := pids(t, alice)
			got, unknown := use(t, alice, test.tool, test.mebibytes), 0
			if !strings.Contains(got, test.want) {
				t.Error(got)
			}
			if strings.Contains(test.want, "memory") {
				awaitEnd(t, all)
				unknown = 1
			}
			g.end(syscall.SIGTERM)
			out, err := policyServiceCommand(t, "log", "export", "--state", filepath.Join(g.dir, "state", "trail"))
			if err != nil || strings.Count(out, `"event":"unknown"`) != unknown {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// end ends the gateway by a signal.
func (g *cellGateway) end(signal os.Signal) {
	g.Helper()
	if err := g.command.Process.Signal(signal); err != nil {
		g.Fatal(err)
	}
	_, _ = g.command.Process.Wait()
}

// pids returns the ids of the process of a session and of its child.
func pids(t *testing.T, s *mcp.ClientSession) (all []int) {
	t.Helper()
	for _, text := range strings.Fields(use(t, s, "pids", "")) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pid)
	}
	return all
}

// awaitEnd fails the test if a process does not end.
func awaitEnd(t *testing.T, all []int) {
	t.Helper()
	for _, pid := range all {
		deadline := time.Now().Add(20 * time.Second)
		for !hasEnded(pid) {
			if time.Now().After(deadline) {
				t.Fatalf("the process %d runs", pid)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// hasEnded reports whether a process has ended. One that nobody has waited for has.
func hasEnded(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// A process that nothing uses ends with all that it has started, and its client begins
// a new session.
func TestProcessIdle(t *testing.T) {
	g := newCellGateway(t, "idle: 1s")
	alice := g.connect("alice", "acme")
	awaitEnd(t, pids(t, alice))
	if got := use(t, alice, "recall", ""); !strings.Contains(got, "404") && !strings.Contains(got, "session") {
		t.Errorf("a session without a process: %s", got)
	}
	if got := use(t, g.connect("alice", "acme"), "recall", ""); got != "" {
		t.Errorf("a new session: %s", got)
	}
}

// No process outlives the gateway. When the gateway is killed, the kernel of Linux ends
// the processes that it has started itself.
func TestProcessesEndWithGateway(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		g := newCellGateway(t, "")
		all := append(pids(t, g.connect("alice", "acme")), pids(t, g.connect("bob", "acme"))...)
		g.end(signal)
		if signal == syscall.SIGKILL {
			if runtime.GOOS != "linux" {
				continue
			}
			for _, child := range []int{all[1], all[3]} {
				t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
			}
			all = []int{all[0], all[2]}
		}
		awaitEnd(t, all)
	}
}

// Callers over the bound are told so, and others go on.
func TestProcessMax(t *testing.T) {
	g := newCellGateway(t, "max: 1, idle: 1s")
	alice := g.connect("alice", "acme")
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	_, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: g.endpoint, HTTPClient: httpClientOf(g.e.sign(tokenHolder{Subject: "bob", Tenant: "acme", Aud: "https://gateway.example.com/cell/mcp"}))}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err == nil || !strings.Contains(err.Error(), "all 1 processes of the server are in use") {
		t.Errorf("%v", err)
	}
	awaitEnd(t, pids(t, alice))
	if got := use(t, g.connect("bob", "acme"), "recall", ""); got != "" {
		t.Errorf("%s", got)
	}
}

// Official servers are served to official clients.
func TestOfficialStdioServers(t *testing.T) {
	packages := guidePackages(t)
	everything, err := filepath.Abs("testdata/mcp")
	if err != nil {
		t.Fatal(err)
	}
	external.Packages(t, everything)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "note.txt"), "a note")
	node := external.Program(t, "node")
	endpoint := gatewayOf(t, fmt.Sprintf(`
pdp: {url: %q, timeout: 10s}
identity: {local: {type: user, id: alice}}
servers:
  - {name: files, command: [%s, %s/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js], args: [%s], processes: {memory: 268435456}}
  - {name: everything, command: [%s, %s/node_modules/@modelcontextprotocol/server-everything/dist/index.js, stdio], processes: {per: shared}}
`, denies(t, "nothing is denied"), node, packages, dir, node, everything))
	files := connectAs(t, endpoint+"/files/mcp", "")
	result, err := files.CallTool(t.Context(), &mcp.CallToolParams{Name: "read_text_file", Arguments: map[string]string{"path": filepath.Join(dir, "note.txt")}})
	if err != nil || result.IsError || !strings.Contains(result.Content[0].(*mcp.TextContent).Text, "a note") {
		t.Errorf("%+v, %v", result, err)
	}
	echo := connectAs(t, endpoint+"/everything/mcp", "")
	result, err = echo.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]string{"message": "hello"}})
	if err != nil || !strings.Contains(result.Content[0].(*mcp.TextContent).Text, "hello") {
		t.Errorf("%+v, %v", result, err)
	}
	got := typescript(t, "served.mjs", endpoint+"/files/mcp", filepath.Join(dir, "note.txt"))
	if want := "sdk: a note\nclient: a note\n"; got != want {
		t.Errorf("TypeScript:\n%s", got)
	}
}

// Faults of commands are reported by their keys.
func TestCommandFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, file, `
pdp: {url: "http://127.0.0.1:1"}
identity: {local: {type: user, id: alice}}
servers:
  - {name: a, command: [no-such-program]}
  - {name: b, url: "http://127.0.0.1:1", command: [cat]}
  - {name: c, command: [cat], env: [MCP_GATEWAY_TOKEN, "A=b"], env_files: {KEY: none}, dir: none, processes: {per: tenant, idle: 1ms, max: -1, memory: 1000}}
  - {name: d, args: [x]}
  - {name: e, command: [./none], header: {X-Key: x}}
`)
	_, err := readConfig(file, "", true)
	for _, want := range []string{
		`5:15: servers.0.command: cannot be run: exec: "no-such-program": executable file not found in $PATH`,
		"servers.1.command: must not stand beside url: a server is run, or reached",
		"servers.2.env: MCP_GATEWAY_TOKEN is for the gateway alone", `servers.2.env: must be the name of a variable, not "A=b"`,
		"servers.2.env_files.KEY: cannot be used: open none", `servers.2.dir: must be a directory, not "none"`,
		`servers.2.processes.per: must be caller or shared, not "tenant"`, "servers.2.processes.idle: must be at least 1s, not 1ms", "servers.2.processes.max: ",
		"servers.2.processes.memory: must be at least 16777216 bytes, not 1000",
		"servers.3.command: is required ", "servers.4.command: cannot be run: ", "servers.4.command: takes no headers: give the program its secrets by env_files",
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q is not reported: %v", want, err)
		}
	}
}
