package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// connectStateless connects an official client of MCP 2026-07-28, which has no sessions.
func (g *cellGateway) connectStateless(subject, tenant string, told func(*mcp.ProgressNotificationParams)) *mcp.ClientSession {
	g.Helper()
	options := &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
		if told != nil {
			told(r.Params)
		}
	}}
	token := g.e.sign(tokenHolder{Subject: subject, Tenant: tenant, Aud: "https://gateway.example.com/cell/mcp"})
	s := connectVersion(g.T, mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options), g.endpoint, token, "2026-07-28")
	if id, version := s.ID(), s.InitializeResult().ProtocolVersion; id != "" || version != "2026-07-28" {
		g.Fatalf("the client has the session %q of %s", id, version)
	}
	return s
}

// Without sessions, too, callers and tenants do not share a process, and all calls of a
// caller go to one. With per: shared there is one process for all.
func TestProcessPerCallerStateless(t *testing.T) {
	for processes, isolated := range map[string]bool{"": true, "per: shared": false} {
		g := newCellGateway(t, processes)
		alice, again := g.connectStateless("alice", "acme", nil), g.connectStateless("alice", "acme", nil)
		bob, other := g.connectStateless("bob", "acme", nil), g.connectStateless("alice", "other", nil)
		if got := use(t, alice, "remember", "of alice"); got != "remembered" {
			t.Fatal(got)
		}
		process := use(t, alice, "pids", "")
		for name, test := range map[string]struct {
			session *mcp.ClientSession
			own     bool
		}{"alice": {alice, true}, "another client of alice": {again, true}, "bob": {bob, !isolated}, "alice of another tenant": {other, !isolated}} {
			if got := use(t, test.session, "recall", ""); (got == "of alice") != test.own || strings.HasPrefix(got, "error") {
				t.Errorf("%q: %s recalls %q", processes, name, got)
			}
			if got := use(t, test.session, "pids", ""); (got == process) != test.own {
				t.Errorf("%q: %s is at %q, alice at %q", processes, name, got, process)
			}
		}
	}
}

// Calls of several callers and clients at once get their own answers and their own
// progress, whatever tokens for it they choose.
func TestProcessConcurrentCallsStateless(t *testing.T) {
	for _, processes := range []string{"", "per: shared"} {
		g := newCellGateway(t, processes)
		var all sync.WaitGroup
		for i := range 4 {
			var mu sync.Mutex
			told := map[string]int{}
			session := g.connectStateless([]string{"alice", "bob"}[i%2], "acme", func(p *mcp.ProgressNotificationParams) {
				mu.Lock()
				defer mu.Unlock()
				told[p.Message]++
			})
			all.Go(func() {
				var calls sync.WaitGroup
				for n := range 10 {
					calls.Go(func() {
						text := fmt.Sprint("client ", i, " call ", n)
						params := &mcp.CallToolParams{Name: "count", Arguments: cellNote{text}}
						params.SetProgressToken(n)
						result, err := session.CallTool(t.Context(), params)
						if err != nil || result.Content[0].(*mcp.TextContent).Text != text {
							t.Errorf("%q: %s: %+v, %v", processes, text, result, err)
						}
					})
				}
				calls.Wait()
				for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
					mu.Lock()
					got, whole := fmt.Sprint(told), len(told) == 10
					for text, n := range told {
						whole = whole && n == 3 && strings.HasPrefix(text, fmt.Sprint("client ", i, " "))
					}
					mu.Unlock()
					if whole {
						return
					}
					if time.Now().After(deadline) {
						t.Errorf("%q: client %d is told %s", processes, i, got)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

// A process that ends in a call answers it. The next call needs no new session: it has
// another process, after the pause.
func TestProcessDiesStateless(t *testing.T) {
	g := newCellGateway(t, "")
	alice, bob := g.connectStateless("alice", "acme", nil), g.connectStateless("bob", "acme", nil)
	for _, s := range []*mcp.ClientSession{alice, bob} {
		if got := use(t, s, "remember", "a note"); got != "remembered" {
			t.Fatal(got)
		}
	}
	if got := use(t, alice, "die", ""); !strings.HasPrefix(got, "error: ") {
		t.Errorf("a call of a process that dies: %s", got)
	}
	if got := use(t, bob, "recall", ""); got != "a note" {
		t.Errorf("another caller's process: %s", got)
	}
	got := "error: "
	for deadline := time.Now().Add(20 * time.Second); strings.HasPrefix(got, "error: ") && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		got = use(t, alice, "recall", "")
	}
	if got != "" {
		t.Errorf("the new process of the same client recalls %q", got)
	}
}
