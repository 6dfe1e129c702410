package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/tailscale/hujson"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/schemas/prooftest"
)

var update = flag.Bool("update", false, "write the wanted output of testdata/script/*.txtar")

func TestMain(m *testing.M) {
	os.Setenv("GORACE", hurry)
	testscript.Main(built{m}, map[string]func(){
		"mcp-gateway": main,
		"measured":    measured,
		"desk":        func() { desk() },
		"people":      func() { desk(addLookup) },
		"cell":        notebook,
		"call":        call,
		"declaring":   declaring,
		"issuer":      issuer,
		"visit":       visit,
		"post":        postFile,
		"converse":    converse,
		"launch":      launch,
		"configure":   configure,
		"prove":       prove,

		"field-client": fieldClient,
		"field-server": fieldServer,
	})
}

// built are tests that may build programs, which are removed after them.
type built struct{ *testing.M }

func (b built) Run() int {
	defer func() { os.RemoveAll(builds) }()
	return b.M.Run()
}

// builds is the directory of what the tests have built, if they have.
var builds string

// hurry keeps programs with a race detector from waiting a second at their end.
const hurry = "atexit_sleep_ms=0"

// policyService builds the PDP once, and returns the directory that it is in.
var policyService = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mcp-gateway-")
	if err != nil {
		return "", err
	}
	builds = dir
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "policy-service"), "../policy-service").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build policy-service: %w\n%s", err, out)
	}
	return dir, nil
})

// TestScripts runs the scripts of testdata/script, which drive the gateway, the
// PDP and a server of the Go SDK as a shell would. They have these commands
// beside those of testscript:
//
//	start NAME program …  run a program in the background until it says where it
//	                      listens; sets NAME to its URL, NAME_HOST to HOST:PORT and,
//	                      where it has an admin listener, ADMIN
//	hangup NAME           send it SIGHUP
//	end NAME [kill]       end it; what it wrote to standard error is stderr
//	poll N TEXT exec …    run a program, up to N times, until it prints the text
//	capture NAME REGEXP   set NAME to the submatch in stdout
//	exec call URL FILE    send the message in FILE, with $NAME filled in, as a client
//	                      of its version does, and print status and messages; CALLER
//	                      is whose token of issuer it has
//	exec visit URL        get a page, and print status and body
//	exec post URL FILE    post JSON, and print status and body
//	exec configure FILE   fill in $NAME in FILE
//	exec prove KEY        print the public key of that name, a JWK
//	exec prove KEY TOOL FILE PROVED
//	                      fill in $NAME in FILE, and add the proof of its call
//	exec converse FILE program …
//	                      play the client in FILE to the program
//
//	exec launch FILE SERVER LINES
//	                      play the client in LINES to a server of a client's
//	                      configuration, as that client starts it
//
// FREE is an address that nobody listens at. Desk is an MCP server with the tools read, write, send and lookup. It notes in the
// file DESK what it writes and sends, and all messages in DESK.seen if that exists. Send declares what it asks. Lookup returns a
// profile, as structured content and as text.
func TestScripts(t *testing.T) {
	dir, err := policyService()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(10 * time.Minute),
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", hurry)
			env.Setenv("PATH", dir+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("FREE", docpage.FreeAddress(t))
			env.Setenv("DESK", filepath.Join(env.WorkDir, "desk"))
			env.Values[processesKey{}] = processes{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start": start, "end": end, "hangup": hangup, "capture": capture, "poll": poll,
		},
	})
}

// A process is one that a script has started.
type process struct {
	command *exec.Cmd
	stderr  bytes.Buffer  // whole when ended is closed
	ended   chan struct{} // closed when it has closed its standard error
}

type (
	processesKey struct{}
	processes    map[string]*process
)

var listening = regexp.MustCompile(`^listening on (\S+)(?: \(admin (\S+)\))?(?: \(mode observe: .+\))?\n$`)

func start(ts *testscript.TestScript, _ bool, args []string) {
	name := args[0]
	program := args[1]
	if !filepath.IsAbs(program) {
		for dir := range strings.SplitSeq(ts.Getenv("PATH"), string(os.PathListSeparator)) {
			if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
				program = filepath.Join(dir, program)
				break
			}
		}
	}
	p := &process{command: exec.Command(program, args[2:]...), ended: make(chan struct{})}
	p.command.Dir = ts.MkAbs(".")
	for _, variable := range []string{"PATH", "HOME", "TMPDIR", "GORACE", "DESK", "MCP_GATEWAY_SUBJECT", "TESTSCRIPT_COMMAND", "GOCOVERDIR"} {
		p.command.Env = append(p.command.Env, variable+"="+ts.Getenv(variable))
	}
	stderr, err := p.command.StderrPipe()
	ts.Check(err)
	ts.Check(p.command.Start())
	ts.Defer(func() { _ = p.command.Process.Kill() }) // it has ended, but where the script fails
	ready := make(chan []string, 1)
	go p.read(stderr, ready)
	ts.Value(processesKey{}).(processes)[name] = p
	select {
	case urls := <-ready:
		ts.Setenv(name, urls[1])
		ts.Setenv(name+"_HOST", strings.TrimPrefix(urls[1], "http://"))
		if urls[2] != "" {
			ts.Setenv("ADMIN", urls[2])
		}
	case <-p.ended:
		ts.Fatalf("%s has ended:\n%s", args[1], &p.stderr)
	case <-time.After(time.Minute):
		ts.Fatalf("%s does not say that it listens", args[1])
	}
}

// read keeps what the process writes, and tells its URLs once it has them.
func (p *process) read(stderr io.Reader, ready chan<- []string) {
	defer close(p.ended)
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		p.stderr.WriteString(line)
		if urls := listening.FindStringSubmatch(line); urls != nil {
			ready <- urls
		}
		if err != nil {
			return
		}
	}
}

func hangup(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Value(processesKey{}).(processes)[args[0]].command.Process.Signal(syscall.SIGHUP))
}

func end(ts *testscript.TestScript, _ bool, args []string) {
	p := ts.Value(processesKey{}).(processes)[args[0]]
	signal := os.Signal(syscall.SIGTERM)
	if len(args) > 1 {
		signal = os.Kill
	}
	ts.Check(p.command.Process.Signal(signal))
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		ts.Fatalf("%s does not end", args[0])
	}
	_ = p.command.Wait() // the exit code says it
	ts.Logf("[%s]\n%s", args[0], &p.stderr)
	fmt.Fprint(ts.Stderr(), &p.stderr)
	if len(args) == 1 && !p.command.ProcessState.Success() {
		ts.Fatalf("%s has ended with %v", args[0], p.command.ProcessState)
	}
}

func capture(ts *testscript.TestScript, _ bool, args []string) {
	found := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("no match for %s in stdout", args[1])
	}
	ts.Setenv(args[0], found[1])
}

func poll(ts *testscript.TestScript, _ bool, args []string) {
	tries, err := strconv.Atoi(args[0])
	ts.Check(err)
	for range tries {
		ts.Check(ts.Exec(args[3], args[4:]...))
		if strings.Contains(ts.ReadFile("stdout"), args[1]) {
			return
		}
		time.Sleep(100 * time.Millisecond) // another process has to go on
	}
	ts.Fatalf("it does not print %s", args[1])
}

type note struct {
	Text string `json:"text"`
}

// A profile is what lookup returns. Its output schema requires the name and the card.
type profile struct {
	Name string `json:"name"`
	SSN  string `json:"ssn,omitempty"`
	Card string `json:"card"`
}

// sendSchema declares that a note is posted to a channel, and on what paper.
const sendSchema = `{
	"type": "object",
	"properties": {"text": {"type": "string"}, "to": {"type": "string"}, "on": {"type": "string"}},
	"x-authzen-mapping": {"evaluations": {"action": {"name": "post"}, "evaluations": [
		{"resource": {"type": "channel", "id": "$params.arguments.to"}},
		{"resource": {"type": "paper", "id": "$params.arguments.on"}}
	]}}
}`

// desk is a program that is an MCP server, on HTTP or, with the argument stdio,
// on standard input and output.
func desk(more ...func(*mcp.Server)) {
	title := "writes a note"
	if len(os.Args) > 2 {
		title = os.Args[2]
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, &mcp.ServerOptions{Instructions: "the desk " + title})
	server.AddPrompt(&mcp.Prompt{Name: "compose", Description: title}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "compose a note"}}}}, nil
	})
	server.AddResource(&mcp.Resource{Name: "paper", URI: "desk://paper", Description: title, Size: int64(len(title))}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "desk://paper", Text: "white"}}}, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "read", Description: "reads a note"}, func(context.Context, *mcp.CallToolRequest, note) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "nothing is written"}}}, nil, nil
	})
	put := func(_ context.Context, _ *mcp.CallToolRequest, in note) (*mcp.CallToolResult, any, error) {
		file, err := os.OpenFile(os.Getenv("DESK"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, err
		}
		defer file.Close()
		_, err = fmt.Fprintln(file, in.Text)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "written: " + in.Text}}}, nil, err
	}
	mcp.AddTool(server, &mcp.Tool{Name: "write", Description: title}, put)
	mcp.AddTool(server, &mcp.Tool{Name: "send", InputSchema: jsontext.Value(sendSchema)}, put)
	for _, add := range more {
		add(server)
	}
	seen, err := os.OpenFile(os.Getenv("DESK")+".seen", os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		seen, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		check(err)
	}
	if len(os.Args) > 1 && os.Args[1] == "stdio" {
		check(server.Run(context.Background(), &mcp.LoggingTransport{Transport: &mcp.StdioTransport{}, Writer: seen}))
		return
	}
	address := "127.0.0.1:0"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	listener, err := net.Listen("tcp", address)
	check(err)
	fmt.Fprintf(os.Stderr, "listening on http://%s\n", listener.Addr())
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	check(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(io.TeeReader(r.Body, seen))
		handler.ServeHTTP(w, r)
	})))
}

// visit is a program that gets a page, and prints status and body.
func visit() {
	response, err := http.Get(os.Args[1])
	check(err)
	show(response)
}

// postFile is a program that posts JSON, and prints status and body.
func postFile() {
	file, err := os.Open(os.Args[2])
	check(err)
	response, err := http.Post(os.Args[1], "application/json", file)
	check(err)
	show(response)
}

func show(response *http.Response) {
	defer response.Body.Close()
	fmt.Println(response.Status)
	_, err := io.Copy(os.Stdout, response.Body)
	check(err)
}

// addLookup adds the tool lookup.
func addLookup(server *mcp.Server) {
	mcp.AddTool(server, &mcp.Tool{Name: "lookup"}, func(_ context.Context, _ *mcp.CallToolRequest, in note) (*mcp.CallToolResult, profile, error) {
		return nil, profile{Name: in.Text, SSN: "123-45-6789", Card: "4111-1111"}, nil
	})
}

// call is a program that sends a message as a stateless client does, and prints
// the status and what comes back.
func call() {
	text, err := os.ReadFile(os.Args[2])
	check(err)
	body := strings.TrimSpace(os.ExpandEnv(string(text)))
	body = strings.Replace(body, `"params":{`, `"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"call","version":"1"},"io.modelcontextprotocol/clientCapabilities":`+capabilities()+`},`, 1)
	body = strings.Replace(body, `},}`, `}}`, 1) // there are no other params
	request, err := http.NewRequest(http.MethodPost, os.Args[1], strings.NewReader(body))
	check(err)
	request.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2026-07-28"},
		"Mcp-Method": {field(body, "method")},
	}
	authenticate(request)
	switch field(body, "method") {
	case "tools/call", "prompts/get":
		request.Header.Set("Mcp-Name", field(body, "name"))
	case "resources/read":
		request.Header.Set("Mcp-Name", field(body, "uri"))
	}
	response, err := http.DefaultClient.Do(request)
	check(err)
	fmt.Println(response.Status)
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := strings.TrimPrefix(lines.Text(), "data: "); strings.HasPrefix(line, "{") {
			fmt.Println(line)
		}
	}
	check(lines.Err())
}

// configure is a program that fills in the variables of a file.
func configure() {
	text, err := os.ReadFile(os.Args[1])
	check(err)
	check(os.WriteFile(os.Args[1], []byte(os.ExpandEnv(string(text))), 0o600))
}

// prove is a program that proves the call of a tool in a file with a key. The file has
// its arguments in canonical form.
func prove() {
	key := prooftest.Named(os.Args[1])
	if len(os.Args) == 2 {
		fmt.Println(string(key.JWK()))
		return
	}
	text, err := os.ReadFile(os.Args[3])
	check(err)
	body := os.ExpandEnv(string(text))
	arguments := regexp.MustCompile(`"arguments":({[^}]*})`).FindStringSubmatch(body)
	proof, err := json.Marshal(key.Proof(prooftest.Call{Arguments: arguments[1], Capability: os.Getenv("CAP"), Tool: os.Args[2]}))
	check(err)
	body = strings.Replace(body, `"capability"`, `"proof":`+string(proof)+`,"capability"`, 1)
	check(os.WriteFile(os.Args[4], []byte(body), 0o600))
}

// capabilities are what the client can do, of the third argument.
func capabilities() string {
	if len(os.Args) > 3 {
		return os.Args[3]
	}
	return "{}"
}

// field returns the last member of that name that is a string.
func field(body, name string) string {
	found := regexp.MustCompile(`"`+name+`":"([^"]*)"`).FindAllStringSubmatch(body, -1)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1][1]
}

// launch is a program that starts a server as a client with that configuration
// does, and plays the lines of a file to it.
func launch() {
	text, err := os.ReadFile(os.Args[1])
	check(err)
	text, err = hujson.Standardize(text)
	check(err)
	type server struct {
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
	}
	var config struct {
		Desktop map[string]server `json:"mcpServers"`
		Code    map[string]server `json:"servers"`
	}
	check(json.Unmarshal(text, &config))
	chosen := config.Desktop[os.Args[2]]
	if config.Code != nil {
		chosen = config.Code[os.Args[2]]
	}
	for name, value := range chosen.Env {
		check(os.Setenv(name, value))
	}
	os.Args = append([]string{"converse", os.Args[3], chosen.Command}, chosen.Args...)
	converse()
}

// converse is a program that plays the lines of a file to another, each once the
// one before is answered, and prints the answers.
func converse() {
	text, err := os.ReadFile(os.Args[1])
	check(err)
	server := exec.Command(os.Args[2], os.Args[3:]...)
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	check(err)
	out, err := server.StdoutPipe()
	check(err)
	check(server.Start())
	answers := bufio.NewScanner(out)
	answers.Buffer(nil, 1<<20)
	for line := range strings.Lines(os.ExpandEnv(string(text))) {
		if _, err := io.WriteString(in, line); err != nil {
			break // it has ended, and its exit code says how
		}
		if !strings.Contains(line, `"id":`) {
			continue
		}
		if !answers.Scan() {
			break
		}
		fmt.Println(answers.Text())
	}
	_ = in.Close()
	for answers.Scan() {
		fmt.Println(answers.Text())
	}
	if err := server.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(server.ProcessState.ExitCode())
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
