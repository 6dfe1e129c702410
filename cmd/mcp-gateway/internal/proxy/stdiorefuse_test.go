package proxy_test

import (
	"bufio"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
)

// A message that cannot be taken is answered at once, with its id and with what
// became of the call.
func TestUnreadableOnStdio(t *testing.T) {
	huge, nested := strings.Repeat("x", 100_000), strings.Repeat("[", 100)+strings.Repeat("]", 100)
	for _, test := range []struct {
		name, call, reply string // the reply of the server
		want              []string
		outcome           string
	}{
		{"a large reply", legacy, `{"result":{"content":["` + huge + `"]},"jsonrpc":"2.0","id":7}`, []string{`"id":7`, "the server carried out the call, but its answer is larger than max_reply: 65536 bytes", "answer_withheld"}, enforce.Succeeded},
		{"a large error", legacy, `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"` + huge + `"}}`, []string{`"id":7`, "the server answered with an error, but", "answer_withheld"}, enforce.Failed},
		{"a deep reply", legacy, `{"jsonrpc":"2.0","id":7,"result":{"content":` + nested + `}}`, []string{`"id":7`, "the server carried out the call, but its answer nests deeper than 64 levels", "answer_withheld"}, enforce.Succeeded},
		{"a large request", `{"method":"tools/call","params":{"name":"greet","arguments":{"a":"` + huge + `"}},"jsonrpc":"2.0","id":"a"}`, "", []string{`"id":"a"`, "more than 65536 bytes", "the gateway has not forwarded it", "invalid_message"}, ""},
		{"a deep request", `{"method":"tools/call","params":{"name":"greet","arguments":{"a":` + nested + `}},"jsonrpc":"2.0","id":8}`, "", []string{`"id":8`, "the gateway has not forwarded it", "invalid_message"}, ""},
		{"a large batch", `[{"method":"tools/call","id":8,"params":{"a":"` + huge + `"}}]`, "", []string{`"id":null`, "invalid_message"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "reply")
			if err := os.WriteFile(file, []byte(test.reply+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			kept := &outcomes{ended: make(chan string, 10)}
			log := slog.New(slog.DiscardHandler)
			fromClient, client := io.Pipe()
			toClient, gateway := io.Pipe()
			pipe := proxy.NewPipe(proxy.PipeConfig{
				Server: "desk", In: fromClient, Out: gateway, Log: log, Identify: alice, MaxBody: 64 << 10, MaxReply: 64 << 10,
				Command: exec.Command("sh", "-c", `while read -r call; do cat "$0"; done`, file),
				Gate:    enforce.New(enforce.Config{PDP: enforce.NewPDP(enforce.PDPConfig{URL: newUpstream(t, &pdp{}).URL}), Map: plain, Log: log, Trail: kept}),
			})
			ended := make(chan error, 1)
			go func() { ended <- pipe.Run(t.Context()) }()
			stuck := time.AfterFunc(20*time.Second, func() { gateway.CloseWithError(os.ErrDeadlineExceeded) })
			defer stuck.Stop()
			if _, err := io.WriteString(client, test.call+"\n"); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(toClient).ReadString('\n')
			for _, want := range test.want {
				if err != nil || !strings.Contains(line, want) {
					t.Errorf("no %s: %.300s, %v", want, line, err)
				}
			}
			if got := kept.take(); got != test.outcome {
				t.Errorf("the trail says %q, want %q", got, test.outcome)
			}
			client.Close()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// Who waits for a response of the client that is too large is told so.
func TestLargeResponseOnStdio(t *testing.T) {
	file := filepath.Join(t.TempDir(), "got")
	fromClient, client := io.Pipe()
	log := slog.New(slog.DiscardHandler)
	pipe := proxy.NewPipe(proxy.PipeConfig{
		Server: "desk", In: fromClient, Out: io.Discard, Log: log, Identify: alice, MaxBody: 64 << 10,
		Command: exec.Command("sh", "-c", `cat > "$0"`, file),
		Gate:    enforce.New(enforce.Config{PDP: enforce.NewPDP(enforce.PDPConfig{URL: newUpstream(t, &pdp{}).URL}), Map: plain, Log: log}),
	})
	ended := make(chan error, 1)
	go func() { ended <- pipe.Run(t.Context()) }()
	if _, err := io.WriteString(client, `{"result":{"text":"`+strings.Repeat("x", 100_000)+`"},"jsonrpc":"2.0","id":"ask"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	client.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	got, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(got), `"id":"ask","error"`) {
		t.Errorf("the server gets %q, %v", got, err)
	}
}
