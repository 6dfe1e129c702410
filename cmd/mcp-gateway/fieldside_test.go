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

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/policy-service/policy-service/conformance/docpage"
)

// A side is a client and a server, with the gateway between them or without it:
//
//	client - near - gateway - far - server
//
// Without a gateway, near and far are the same.
type side struct {
	t         *testing.T
	near, far *relay
	server    func(changed ...string) (*exec.Cmd, string) // and its address
	gateway   func(...string) (*exec.Cmd, string)
	running   map[string]*exec.Cmd
	trail     string    // the gateway's
	prefix    string    // of the names of tools
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

// Paths of MCP, by what is between a client and a server: nothing, the server's
// endpoint, and one over that server and a dead one.
const (
	direct   = "/mcp"
	endpoint = "/field/mcp"
	union    = "/union"
)

// newSide starts a client of the endpoint at a path, and what it needs.
func newSide(t *testing.T, client, server program, path string) *side {
	t.Helper()
	address := docpage.FreeAddress(t)
	s := &side{t: t, running: make(map[string]*exec.Cmd)}
	s.server = func(changed ...string) (*exec.Cmd, string) { return server.command(address, changed...), address }
	s.far = newRelay(t, address)
	s.near = s.far
	if path != direct {
		gateway := set(t, "", fmt.Sprintf("  - {name: field, url: %q}\n  - {name: dead, url: %q}", "http://"+s.far.address+"/mcp", "http://"+docpage.FreeAddress(t)))
		s.near, s.trail = newRelay(t, gateway.gateway), filepath.Join(filepath.Dir(gateway.config), "state", "trail")
		content, err := os.ReadFile(gateway.config)
		if err != nil {
			t.Fatal(err)
		}
		write(t, gateway.config, fmt.Sprintf("max_reply: 1048576\ncatalog: {refresh: 1s}\nendpoints: [{path: %s, servers: [dead, field]}]\nhosts: [%q]\n", union, s.near.address)+string(content))
		s.gateway = func(...string) (*exec.Cmd, string) {
			return exec.Command("mcp-gateway", "serve", "--config", gateway.config), gateway.gateway
		}
		s.start("gateway")
	}
	if path == union {
		s.prefix = "field__"
	}
	s.start("server")
	c := client.command("http://" + s.near.address + path)
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

func (s *side) start(name string, changed ...string) {
	start := s.server
	if name == "gateway" {
		start = s.gateway
	}
	c, address := start(changed...)
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
	return s.say(command{Do: "call", Name: s.prefix + tool, N: n, Timeout: 10_000})
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
	return strings.Join(strings.Fields(said), " ")
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
