package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/conformance/docpage"
)

// A mortal is a server that can be killed and started again, without what it had
// in memory.
type mortal struct {
	t        *testing.T
	address  string
	sessions bool
	add      func(*mcp.Server)
	mu       sync.Mutex
	server   *http.Server
}

func newMortal(t *testing.T, sessions bool, add func(*mcp.Server)) *mortal {
	t.Helper()
	m := &mortal{t: t, address: docpage.FreeAddress(t), sessions: sessions, add: add}
	t.Cleanup(m.kill)
	return m
}

func (m *mortal) start() {
	m.t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "mortal", Version: "1"}, nil)
	m.add(server)
	listener, err := net.Listen("tcp", m.address)
	if err != nil {
		m.t.Error(err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server = &http.Server{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: !m.sessions})}
	go m.server.Serve(listener)
}

func (m *mortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.server != nil {
		_ = m.server.Close()
	}
	m.server = nil
}

func hello(name string) func(*mcp.Server) {
	return func(s *mcp.Server) {
		mcp.AddTool(s, &mcp.Tool{Name: "hello"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello of " + name}}}, nil, nil
		})
	}
}

// A server that is dead at the beginning, dies or hangs, takes away its tools and
// nothing else. When it is back, clients are told, and use it in the same session.
func TestUnionWithoutServer(t *testing.T) {
	for _, sessions := range []bool{true, false} {
		t.Run(fmt.Sprintf("sessions %v", sessions), func(t *testing.T) {
			t.Parallel()
			dies := newMortal(t, sessions, hello("b"))
			hangs, err := net.Listen("tcp", "127.0.0.1:0") // and accepts nothing
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { hangs.Close() })
			url := united(t, deniesAll(t), "catalog: {refresh: 1s}\n", named(t, "a", sessions), "http://"+dies.address, "http://"+hangs.Addr().String())
			changed := make(chan bool, 1000)
			begun := time.Now()
			session := connected(t, url, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- true }})
			if took := time.Since(begun); took > 8*time.Second {
				t.Errorf("the client was connected after %s", took)
			}
			if got := toolNames(t, session); got != "a__hello a__rm" {
				t.Errorf("with a dead server, the tools are %s", got)
			}
			if got := said(t, session, "b__hello"); !strings.Contains(got, "the server did not answer") && !strings.Contains(got, "the tools of the server are not known") {
				t.Errorf("a call of a dead server: %s", got)
			}
			for round := range 2 {
				dies.start()
				waitFor(t, changed, func() bool { return toolNames(t, session) == "a__hello a__rm b__hello" })
				if got := said(t, session, "b__hello"); got != "hello of b" {
					t.Errorf("round %d: a call of a server that is back: %s", round, got)
				}
				dies.kill()
				dies.start()
				if got := said(t, session, "b__hello"); got != "hello of b" {
					t.Errorf("round %d: a call of a server that has lost its sessions: %s", round, got)
				}
				dies.kill()
				eventually(t, func() string { return toolNames(t, session) }, "a__hello a__rm")
				if got := said(t, session, "a__hello"); got != "hello of a" {
					t.Errorf("round %d: a call beside a dead server: %s", round, got)
				}
			}
			begun = time.Now()
			for range 5 {
				toolNames(t, session)
			}
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("five lists beside a server that hangs took %s", took)
			}
		})
	}
}

// waitFor waits until the client has been told of a change after which what it
// sees is as wanted.
func waitFor(t *testing.T, changed <-chan bool, is func() bool) {
	t.Helper()
	for timeout := time.After(40 * time.Second); ; {
		select {
		case <-changed:
			if is() {
				return
			}
		case <-timeout:
			t.Fatal("the client is not told of the change")
		}
	}
}
