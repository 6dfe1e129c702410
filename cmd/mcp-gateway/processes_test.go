package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A desktop is the configuration of several servers on stdio, as desktop clients
// use it: each window starts a gateway of its own for each server.
type desktop struct {
	*setting
	dir string // of the setting
}

func newDesktop(t *testing.T) *desktop {
	t.Helper()
	s := set(t, "write", server("web", sdkServer(t, false, func(*mcp.Server) {})), "  - {name: a}\n  - {name: b}\n  - {name: c}\n  - {name: d}")
	s.change(t, "hold: 30s", "hold: 0s, wait: 0s")
	s.change(t, "state: "+filepath.Join(filepath.Dir(s.config), "state"), "state: state")
	d := &desktop{s, filepath.Dir(s.config)}
	t.Setenv("DESK", filepath.Join(d.dir, "desk"))
	return d
}

func (d *desktop) command(server string, title ...string) *exec.Cmd {
	c := exec.Command("mcp-gateway", append([]string{"stdio", "--config", d.config, "--server", server, "--", "desk", "stdio"}, title...)...)
	c.Dir = "/" // desktop clients choose any
	return c
}

// open opens a window on a server, which calls the write tool by that title.
func (d *desktop) open(t *testing.T, server string, title ...string) *mcp.ClientSession {
	t.Helper()
	c := d.command(server, title...)
	said := new(strings.Builder)
	c.Stderr = said
	session, err := mcp.NewClient(&mcp.Implementation{Name: "window", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: c}, nil)
	if err != nil {
		t.Fatalf("%s: %v", server, err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

func tell(t *testing.T, s *mcp.ClientSession, tool, text string) string {
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": text}})
	if err != nil {
		return err.Error()
	}
	return result.Content[0].(*mcp.TextContent).Text
}

// trails verifies the audit trail of each process that has ended, and returns
// what they say.
func (d *desktop) trails(t *testing.T) (all []string) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(d.dir, "state", "stdio", "*", "*", "trail"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if out, err := policyServiceCommand(t, "log", "verify", "--state", dir); err != nil {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
		out, err := policyServiceCommand(t, "log", "export", "--state", dir)
		if err != nil {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
		all = append(all, out)
	}
	return all
}

// Two windows, four servers each, and serve run beside one another with one
// configuration.
func TestWindows(t *testing.T) {
	d := newDesktop(t)
	d.serve(t)
	windows := make([]*mcp.ClientSession, 8)
	var starting sync.WaitGroup
	for i := range windows {
		starting.Go(func() { windows[i] = d.open(t, string("abcd"[i%4])) })
	}
	starting.Wait()
	for i, w := range windows {
		if w == nil {
			t.Fatalf("window %d is not open", i)
		}
		if got := tell(t, w, "read", ""); got != "nothing is written" {
			t.Errorf("window %d: %s", i, got)
		}
	}
	if response, err := http.Get("http://" + d.gateway + "/livez"); err != nil {
		t.Error(err)
	} else if response.Body.Close(); response.StatusCode != http.StatusOK {
		t.Errorf("serve: %s", response.Status)
	}
	d.approveOnce(t, windows[0], windows[4])
	d.quarantine(t, windows[0], windows[4])
	for _, w := range windows {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := len(d.trails(t)); n < 8 {
		t.Errorf("8 processes and more have %d trails", n)
	}
}

// approveOnce has two windows resume an approved call. It is carried out once.
func (d *desktop) approveOnce(t *testing.T, windows ...*mcp.ClientSession) {
	t.Helper()
	for _, w := range windows {
		if got := tell(t, w, "write", "once"); !strings.Contains(got, "waits") && !strings.Contains(got, "approv") {
			t.Errorf("before the approval: %s", got)
		}
	}
	d.approve(t)
	var calling sync.WaitGroup
	for range 5 {
		for _, w := range windows {
			calling.Go(func() { tell(t, w, "write", "once") })
		}
	}
	calling.Wait()
	if ran, err := os.ReadFile(os.Getenv("DESK")); err != nil || string(ran) != "once\n" {
		t.Errorf("after the approval ran %q, %v", ran, err)
	}
}

// quarantine opens a window on a changed server. The tool is in quarantine in
// those that are open, too.
func (d *desktop) quarantine(t *testing.T, windows ...*mcp.ClientSession) {
	t.Helper()
	changed := d.open(t, "a", "writes another note")
	defer changed.Close()
	for _, w := range append(windows, changed) {
		for until := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			_ = tell(t, changed, "read", "")
			if got := tell(t, w, "write", "more"); strings.Contains(got, "definition") {
				break
			} else if time.Now().After(until) {
				t.Fatalf("after the change: %s", got)
			}
		}
	}
	if got, err := exec.Command("mcp-gateway", "pins", "list", "--config", d.config).CombinedOutput(); err != nil || !strings.Contains(string(got), "has changed") {
		t.Errorf("pins beside gateways: %v\n%s", err, got)
	}
}

// Gateways that are killed, one after the other and two at a time, leave neither
// a lock nor a call without an outcome.
func TestKilledWindows(t *testing.T) {
	d := newDesktop(t)
	for i := range 25 {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { d.kill(t, i) })
		}
		both.Wait()
	}
	if err := d.open(t, "a").Close(); err != nil {
		t.Error(err)
	}
	all := d.trails(t)
	if len(all) == 0 || len(all) > 4 {
		t.Errorf("50 starts, two at a time, have made %d trails", len(all))
	}
	for _, trail := range all {
		if calls, ends := strings.Count(trail, `"gateway.call"`), strings.Count(trail, `"gateway.outcome"`); calls != ends {
			t.Errorf("%d calls have %d outcomes", calls, ends)
		}
	}
}

// kill kills a gateway at some time after its start.
func (d *desktop) kill(t *testing.T, i int) {
	c := d.command("a")
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Error(err)
		return
	}
	fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read","arguments":{"text":""}}}`)
	time.Sleep(time.Duration(i*7%120) * time.Millisecond) // anywhere in its life
	_ = c.Process.Kill()
	_ = c.Wait()
}
