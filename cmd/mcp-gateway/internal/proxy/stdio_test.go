package proxy_test

import (
	"bufio"
	"io"
	"log/slog"
	"net/http/httptest"
	"os/exec"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// What a server says of its own accord is heard before its client hears it, with
// the client's last call, by which the server can be asked.
func TestHeardOnStdio(t *testing.T) {
	const says = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	decides := httptest.NewServer(&pdp{})
	defer decides.Close()
	log := slog.New(slog.DiscardHandler)
	heard := make(chan *enforce.Call, 1)
	fromClient, client := io.Pipe()
	toClient, gateway := io.Pipe()
	pipe := proxy.NewPipe(proxy.PipeConfig{
		Server: "desk", In: fromClient, Out: gateway, Log: log, Caller: &enforce.Caller{Subject: authzen.Subject{Type: "user", ID: "alice"}},
		Command: exec.Command("sh", "-c", `read -r call; echo '`+says+`'; read -r end; exit 0`),
		Gate:    enforce.New(enforce.Config{PDP: enforce.NewPDP(enforce.PDPConfig{URL: decides.URL}), Map: plain, Log: log}),
		Heard: func(c *enforce.Call, m *wire.Message) {
			if m.Method == wire.MethodToolsChanged {
				heard <- c
			}
		},
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
	if c := <-heard; c.Params.Name != "greet" || c.Reach == nil {
		t.Errorf("%+v", c)
	}
	go func() { _, _ = io.Copy(io.Discard, toClient) }()
	client.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
