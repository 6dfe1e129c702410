package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// alice is who calls.
func alice(context.Context) (*enforce.Caller, error) {
	return &enforce.Caller{Subject: authzen.Subject{Type: "user", ID: "alice"}}, nil
}

// Who calls is told before each message: from when on it is not known nothing
// reaches the server, which answers what it has got.
func TestCallerOnStdio(t *testing.T) {
	decides := httptest.NewServer(&pdp{})
	defer decides.Close()
	log := slog.New(slog.DiscardHandler)
	fromClient, client := io.Pipe()
	toClient, gateway := io.Pipe()
	asked, expired := 0, false
	pipe := proxy.NewPipe(proxy.PipeConfig{
		Server: "desk", In: fromClient, Out: gateway, Log: log,
		Command: exec.Command("sh", "-c", `while read -r call; do echo '{"jsonrpc":"2.0","id":7,"result":{}}'; done; exit 0`),
		Gate:    enforce.New(enforce.Config{PDP: enforce.NewPDP(enforce.PDPConfig{URL: decides.URL}), Map: plain, Log: log}),
		Identify: func(ctx context.Context) (*enforce.Caller, error) {
			if asked++; expired {
				return nil, errors.New("the token has expired")
			}
			return alice(ctx)
		},
	})
	ended := make(chan error, 1)
	go func() { ended <- pipe.Run(t.Context()) }()
	answers := bufio.NewReader(toClient)
	call := func() string {
		t.Helper()
		if _, err := io.WriteString(client, legacy+"\n"); err != nil {
			t.Fatal(err)
		}
		line, err := answers.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	for range 2 {
		if got := call(); !strings.Contains(got, `"result":{}`) {
			t.Fatal(got)
		}
	}
	expired = true
	for range 2 {
		if got := call(); !strings.Contains(got, `"id":7,"error":{"code":4030`) || !strings.Contains(got, enforce.ReasonCaller) {
			t.Errorf("the client gets %s", got)
		}
	}
	if asked != 4 {
		t.Errorf("who calls is asked %d times", asked)
	}
	client.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What a server says of its own accord is filtered before its client hears it, with
// the client's last call, by which the server can be asked.
func TestServerMessagesReachTheFilterFirst(t *testing.T) {
	const says = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	decides := httptest.NewServer(&pdp{})
	defer decides.Close()
	log := slog.New(slog.DiscardHandler)
	filtered := make(chan *enforce.Call, 1)
	fromClient, client := io.Pipe()
	toClient, gateway := io.Pipe()
	pipe := proxy.NewPipe(proxy.PipeConfig{
		Server: "desk", In: fromClient, Out: gateway, Log: log, Identify: alice,
		Command: exec.Command("sh", "-c", `read -r call; echo '{"jsonrpc":"2.0","method":"notifications/tasks"}'; echo '`+says+`'; read -r end; exit 0`),
		Gate:    enforce.New(enforce.Config{PDP: enforce.NewPDP(enforce.PDPConfig{URL: decides.URL}), Map: plain, Log: log}),
		FromServer: fromServer{notification: func(c *enforce.Call, m *wire.Message) bool {
			if m.Method == wire.MethodToolsChanged {
				filtered <- c
			}
			return m.Method != "notifications/tasks"
		}},
	})
	ended := make(chan error, 1)
	go func() { ended <- pipe.Run(t.Context()) }()
	if _, err := io.WriteString(client, legacy+"\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(toClient).ReadString('\n')
	if err != nil || line != says+"\n" {
		t.Errorf("the client gets %q, %v", line, err)
	}
	if c := <-filtered; c.Params.Name != "greet" || c.Upstream == nil {
		t.Errorf("%+v", c)
	}
	go func() { _, _ = io.Copy(io.Discard, toClient) }()
	client.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A request of a server on standard output comes in the course of the only call that
// the server has not answered. Of several, nobody knows which it is.
func TestCourseOfRequestOnStdio(t *testing.T) {
	const asks = `echo '{"jsonrpc":"2.0","id":"q","method":"roots/list"}'; `
	decides := httptest.NewServer(&pdp{})
	defer decides.Close()
	log := slog.New(slog.DiscardHandler)
	courses := make(chan string, 3)
	fromClient, client := io.Pipe()
	toClient, gateway := io.Pipe()
	pipe := proxy.NewPipe(proxy.PipeConfig{
		Server: "desk", In: fromClient, Out: gateway, Log: log, Identify: alice,
		Command: exec.Command("sh", "-c", `read -r first; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; read -r call; `+asks+`read -r call; `+asks+
			`echo '{"jsonrpc":"2.0","id":7,"result":{}}'; echo '{"jsonrpc":"2.0","id":8,"result":{}}'; `+asks+`read -r end; exit 0`),
		Gate: enforce.New(enforce.Config{PDP: enforce.NewPDP(enforce.PDPConfig{URL: decides.URL}), Map: plain, Log: log}),
		FromServer: fromServer{request: func(of *enforce.Call, _ *wire.Message) bool {
			course := of.Caller.Subject.ID
			if of.Message != nil {
				course += " " + of.Params.Name
			}
			courses <- course
			return true
		}},
	})
	ended := make(chan error, 1)
	go func() { ended <- pipe.Run(t.Context()) }()
	answers := bufio.NewReader(toClient)
	for _, step := range []struct{ sends, course string }{
		{begin, ""}, {legacy, "alice greet"}, {strings.Replace(legacy, `"id":7`, `"id":8`, 1), "alice"},
	} {
		if _, err := io.WriteString(client, step.sends+"\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := answers.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if step.course == "" {
			continue
		}
		if got := <-courses; got != step.course {
			t.Errorf("%s: in the course of %q", step.sends, got)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, answers) }()
	if got := <-courses; got != "alice" {
		t.Errorf("after the calls: in the course of %q", got)
	}
	client.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
