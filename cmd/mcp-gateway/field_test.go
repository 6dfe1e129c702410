package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/conformance/external"
)

// A failure is a column of the matrix: what a person does and what goes wrong
// meanwhile. Do returns what the person sees.
type failure struct {
	name string
	do   func(*side) string
}

var (
	fieldClients = []string{"client1", "client2"}
	fieldServers = []string{"server1", "server2"}
)

// failures are the columns, and clients and servers, programs of testdata/field,
// make the rows. More of them need no other change but go test -run TestField
// -update.
var failures = []failure{
	{"nothing", calling("echo", 0)},
	{"slow", calling("slow", 4)},
	{"restarted server", func(s *side) string {
		s.stop("server")
		s.start("server")
		first := s.call("echo", 0)
		s.say(command{Do: "connect"})
		return first + "; in a new session: " + s.call("echo", 0)
	}},
	{"restarted server, due list", func(s *side) string {
		s.stop("server")
		s.start("server")
		time.Sleep(1500 * time.Millisecond) // longer than catalog.refresh
		first := s.call("echo", 0)
		s.say(command{Do: "connect"})
		return first + "; in a new session: " + s.call("echo", 0)
	}},
	{"killed server", during(func(s *side) { s.stop("server") })},
	{"cut at the client", during(func(s *side) { s.near.cut() })},
	{"cut at the server", during(func(s *side) { s.far.cut() })},
	{"restarted gateway", during(func(s *side) {
		if s.gateway == nil {
			s.near.cut()
			return
		}
		s.stop("gateway")
		s.start("gateway")
	})},
	{"404", calling("lost", 0)},
	{"406", calling("unacceptable", 0)},
	{"503, a page", calling("page", 0)},
	{"malformed", calling("malformed", 0)},
	{"huge", calling("huge", 2<<20)},
	{"deep", calling("deep", 100)},
	{"unknown method", func(s *side) string { return s.say(command{Do: "probe"}) }},
}

func calling(tool string, n int) func(*side) string {
	return func(s *side) string { return s.call(tool, n) }
}

// during has something happen in the middle of a slow call.
func during(happen func(*side)) func(*side) string {
	return func(s *side) string {
		happened := make(chan bool)
		go func() {
			defer close(happened)
			time.Sleep(time.Second)
			happen(s)
		}()
		said := s.call("slow", 6)
		<-happened
		return said
	}
}

// matrix is what the test writes with -update.
const matrix = "testdata/field/matrix.txt"

// TestField compares what people see of failures at official clients of official
// servers, without the gateway and through it, with the matrix.
func TestField(t *testing.T) {
	dir, err := filepath.Abs("testdata/field")
	if err != nil {
		t.Fatal(err)
	}
	external.Packages(t, dir)
	node := external.Program(t, "node")
	var mu sync.Mutex
	seen := make(map[string]string)
	t.Run("rows", func(t *testing.T) {
		for _, client := range fieldClients {
			for _, server := range fieldServers {
				t.Run(client+" "+server, func(t *testing.T) {
					t.Parallel()
					for _, through := range []bool{false, true} {
						s := newSide(t, node, dir, client, server, through)
						for _, f := range failures {
							cell := s.try(f)
							mu.Lock()
							seen[fmt.Sprint(f.name, client, server, through)] = cell
							mu.Unlock()
						}
						if through && server == "server1" {
							s.checkTrail()
						}
					}
				})
			}
		}
	})
	got := printed(seen)
	t.Logf("\n%s", got)
	if *update {
		write(t, matrix, got)
		return
	}
	want, err := os.ReadFile(matrix)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", matrix, diff)
	}
}

// printed prints the matrix: two lines for each failure of each row.
func printed(seen map[string]string) string {
	var text strings.Builder
	for _, f := range failures {
		fmt.Fprintf(&text, "%s\n", f.name)
		for _, client := range fieldClients {
			for _, server := range fieldServers {
				direct, through := seen[fmt.Sprint(f.name, client, server, false)], seen[fmt.Sprint(f.name, client, server, true)]
				fmt.Fprintf(&text, "  %s, %s\n    direct   %s\n", client, server, direct)
				if through == direct {
					through = "the same"
				}
				fmt.Fprintf(&text, "    gateway  %s\n", through)
			}
		}
	}
	return text.String()
}

// A side is a client and a server, with the gateway between them or without it:
//
//	client - near - gateway - far - server
//
// Without a gateway, near and far are the same.
type side struct {
	t         *testing.T
	near, far *relay
	server    func() (*exec.Cmd, string) // and its address
	gateway   func() (*exec.Cmd, string)
	running   map[string]*exec.Cmd
	trail     string    // the gateway's
	in        io.Writer // of the client
	out       *bufio.Scanner
}

// A command is one for converse.mjs.
type command struct {
	Do      string `json:"do"`
	Name    string `json:"name,omitzero"`
	N       int    `json:"n"`
	Timeout int    `json:"timeout,omitzero"` // milliseconds
}

func newSide(t *testing.T, node, dir, client, server string, through bool) *side {
	t.Helper()
	address := docpage.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	s := &side{t: t, running: make(map[string]*exec.Cmd)}
	s.server = func() (*exec.Cmd, string) {
		return exec.Command(node, filepath.Join(dir, server+".mjs"), port), address
	}
	s.far = newRelay(t, address)
	s.near = s.far
	path := "/mcp"
	if through {
		gateway := set(t, "", fmt.Sprintf("  - {name: field, url: %q}", "http://"+s.far.address+"/mcp"))
		s.near, s.trail = newRelay(t, gateway.gateway), filepath.Join(filepath.Dir(gateway.config), "state", "trail")
		content, err := os.ReadFile(gateway.config)
		if err != nil {
			t.Fatal(err)
		}
		write(t, gateway.config, fmt.Sprintf("max_reply: 1048576\ncatalog: {refresh: 1s}\nhosts: [%q]\n", s.near.address)+string(content))
		s.gateway = func() (*exec.Cmd, string) {
			return exec.Command("mcp-gateway", "serve", "--config", gateway.config), gateway.gateway
		}
		s.start("gateway")
		path = "/field/mcp"
	}
	s.start("server")
	c := exec.Command(node, filepath.Join(dir, client+".mjs"), "http://"+s.near.address+path)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = c.Wait()
	})
	s.in, s.out = in, bufio.NewScanner(out)
	return s
}

func (s *side) start(name string) {
	start := s.server
	if name == "gateway" {
		start = s.gateway
	}
	c, address := start()
	s.running[name] = c
	background(s.t, c, address)
}

func (s *side) stop(name string) {
	_ = s.running[name].Process.Kill()
	_ = s.running[name].Wait()
}

// try has the client begin a session, and returns what it sees of a failure.
func (s *side) try(f failure) string {
	if connected := s.say(command{Do: "connect"}); connected != "connected" {
		s.stop("server")
		s.start("server")
		if connected = s.say(command{Do: "connect"}); connected != "connected" {
			return "not connected: " + connected
		}
	}
	return f.do(s)
}

func (s *side) call(tool string, n int) string {
	return s.say(command{Do: "call", Name: tool, N: n, Timeout: 10_000})
}

func (s *side) say(c command) (said string) {
	text, err := json.Marshal(c)
	if err == nil {
		_, err = s.in.Write(append(text, '\n'))
	}
	if err == nil && s.out.Scan() {
		err = json.Unmarshal(s.out.Bytes(), &said)
	}
	if err != nil {
		return "no client: " + err.Error()
	}
	return said
}

// checkTrail compares the outcomes of the slow calls at a server whose streams can
// be resumed, in the order of the failures.
func (s *side) checkTrail() {
	s.t.Helper()
	s.stop("gateway")
	lines, err := policyServiceCommand(s.t, "log", "query", "--state", s.trail, "--kind", "gateway.outcome", "--limit", "0", "--json")
	if err != nil {
		s.t.Fatalf("%v\n%s", err, lines)
	}
	var outcomes []string
	for line := range strings.Lines(lines) {
		var entry struct {
			Request struct {
				Tool   string `json:"tool"`
				Event  string `json:"event"`
				Reason string `json:"reason"`
			} `json:"request"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			s.t.Fatalf("%v\n%s", err, line)
		}
		if entry.Request.Tool == "slow" {
			outcomes = append(outcomes, strings.TrimSpace(entry.Request.Event+" "+entry.Request.Reason))
		}
	}
	want := []string{"succeeded", "unknown", "succeeded", "succeeded", "unknown restart", "succeeded resumed"} // slow, killed, cut twice, restarted
	if diff := cmp.Diff(want, outcomes); diff != "" {
		s.t.Errorf("the trail (-want +got):\n%s", diff)
	}
}

// A relay passes on connections to an address until they are cut.
type relay struct {
	address string
	mu      sync.Mutex
	open    map[net.Conn]bool
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: listener.Addr().String(), open: make(map[net.Conn]bool)}
	t.Cleanup(func() {
		listener.Close()
		r.cut()
	})
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go r.pass(from, to)
		}
	}()
	return r
}

func (r *relay) pass(from net.Conn, to string) {
	defer from.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	r.mu.Lock()
	r.open[from], r.open[server] = true, true
	r.mu.Unlock()
	ended := make(chan bool, 2)
	for _, way := range [][2]net.Conn{{from, server}, {server, from}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- true
		}()
	}
	<-ended
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, from)
	delete(r.open, server)
}

// cut breaks all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for connection := range r.open {
		connection.Close()
	}
}
