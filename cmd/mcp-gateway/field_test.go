package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/external"
)

// A failure is a column of the matrix: what a person does and what goes wrong
// meanwhile. Do returns what the person sees.
type failure struct {
	name string
	do   func(*side) string
}

// A program is a client or a server of the matrix: a client takes the URL, a server
// the address where it listens and, to have other tools, "changed".
type program struct {
	name    string
	command func(at string, changed ...string) *exec.Cmd
}

// fieldClients and fieldServers make the rows. More of them need no other change
// but make mcp with -update.
func fieldClients(t *testing.T) []program {
	return []program{
		{"TypeScript 1", typescriptField(t, "client1.mjs")},
		{"TypeScript 2", typescriptField(t, "client2.mjs")},
		{"Go", goField("field-client", "go")},
		{"mcp-go", goField("field-client", "mcp-go")},
	}
}

func fieldServers(t *testing.T) []program {
	return []program{
		{"TypeScript 1", typescriptField(t, "server1.mjs")},
		{"TypeScript 2", typescriptField(t, "server2.mjs")},
		{"Go", goField("field-server", "go")},
		{"mcp-go", goField("field-server", "mcp-go")},
		{"Python", goField("field-server", "python")},
		{"Python with JSON", goField("field-server", "python-json")},
	}
}

// always are the rows of a run without -mcp: each client and each server of another
// maker once, and all of the TypeScript SDKs.
var always = []string{
	"TypeScript 1 to TypeScript 1", "TypeScript 1 to TypeScript 2", "TypeScript 2 to TypeScript 1", "TypeScript 2 to TypeScript 2",
	"Go to Go", "mcp-go to mcp-go", "TypeScript 1 to Python", "Go to Python",
}

func typescriptField(t *testing.T, script string) func(string, ...string) *exec.Cmd {
	node := external.Program(t, "node")
	return func(at string, changed ...string) *exec.Cmd {
		return exec.Command(node, append([]string{filepath.Join("testdata", "field", script), at}, changed...)...)
	}
}

func goField(name, sdk string) func(string, ...string) *exec.Cmd {
	return func(at string, changed ...string) *exec.Cmd {
		return exec.Command(name, append([]string{sdk, at}, changed...)...)
	}
}

// failures are the columns.
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
	{"changed tool", changed("note", "note")},
	{"renamed tool", changed("old", "old", "new")},
	{"unknown method", func(s *side) string { return s.say(command{Do: "probe"}) }},
}

func calling(tool string, n int) func(*side) string {
	return func(s *side) string { return s.call(tool, n) }
}

// changed calls a tool, and the tools again, in a new session, once the server has come
// back with others: which of them it has then, and what calls of them give.
func changed(tool string, later ...string) func(*side) string {
	return func(s *side) string {
		said := s.call(tool, 0)
		s.stop("server")
		s.start("server", "changed")
		time.Sleep(1500 * time.Millisecond) // longer than catalog.refresh
		s.say(command{Do: "connect"})
		listed := strings.Fields(s.say(command{Do: "list"}))
		for _, tool := range later {
			said += "; "
			if !slices.Contains(listed, s.prefix+tool) {
				said += "not listed, "
			}
			said += s.call(tool, 0)
		}
		s.stop("server")
		s.start("server")
		return said
	}
}

// progressed matches the signs of progress that a client has seen.
var progressed = regexp.MustCompile(`, progress \d+`)

// during has something happen in the middle of a slow call. How many signs of progress
// get through meanwhile is a matter of time.
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
		return progressed.ReplaceAllString(said, "")
	}
}

// TestField compares what people see of failures at clients of servers, without the
// gateway and through it, with the matrix. With -mcp it tries all rows.
func TestField(t *testing.T) {
	dir, err := filepath.Abs("testdata/field")
	if err != nil {
		t.Fatal(err)
	}
	external.Packages(t, dir)
	got := make(matrix)
	var sides sync.WaitGroup
	var mu sync.Mutex
	places := make(chan bool, 8) // most of a side's time is waiting
	for _, client := range fieldClients(t) {
		for _, server := range fieldServers(t) {
			row := client.name + " to " + server.name
			if !*others && !slices.Contains(always, row) {
				continue
			}
			for _, through := range []bool{false, true} {
				sides.Go(func() {
					places <- true
					defer func() { <-places }()
					t.Run(fmt.Sprintf("%s, gateway %v", row, through), func(t *testing.T) {
						path := direct
						if through {
							path = endpoint
						}
						s := newSide(t, client, server, path)
						for _, f := range failures {
							cell := s.try(f)
							mu.Lock()
							got.set(f.name, row, through, cell)
							mu.Unlock()
						}
						if through && server.name == "TypeScript 1" && client.name != "mcp-go" { // which resumes no stream
							s.checkTrail()
						}
					})
				})
			}
		}
	}
	sides.Wait()
	got.check(t)
}
