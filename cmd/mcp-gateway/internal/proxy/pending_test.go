package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
)

// suspending is a gate whose every denial is one that suspend decides about.
func suspending(t *testing.T, suspend func(context.Context, *enforce.DeniedCall) (*enforce.Disposition, error)) func(*proxy.Config) {
	t.Helper()
	decides := newUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"decision":false,"context":{"access_request":{"expires_at":"2099-01-01T00:00:00Z"}}}`)
	}))
	return func(c *proxy.Config) {
		c.Gate = enforce.New(enforce.Config{
			PDP: enforce.NewPDP(enforce.PDPConfig{URL: decides.URL, Client: client.Config{}}), Log: c.Log, Approvals: approver(suspend),
			Map: func(call *enforce.Call) (*enforce.Question, error) {
				if call.Message.Method != wire.MethodToolsCall {
					return &enforce.Question{Pass: true}, nil
				}
				return plain(call)
			},
		})
	}
}

// A client of the Go SDK is asked on the stream of its call, hears of progress,
// and has the result there.
func TestAskOnPendingCall(t *testing.T) {
	var answered atomic.Value
	gate := suspending(t, func(ctx context.Context, d *enforce.DeniedCall) (*enforce.Disposition, error) {
		if !d.Capabilities.Form() {
			t.Error("the client's capabilities are forgotten")
		}
		err := d.Client.Notify(ctx, &wire.Message{Method: wire.MethodProgress, Params: []byte(`{"progressToken":"p","progress":1,"message":"waiting"}`)})
		if err != nil {
			return nil, err
		}
		response, err := d.Client.Ask(ctx, wire.MethodElicitation, map[string]any{
			"message": "wait?", "requestedSchema": map[string]any{"type": "object", "properties": map[string]any{"wait": map[string]any{"type": "boolean"}}},
		})
		if err != nil {
			return nil, err
		}
		answered.Store(string(response.Result))
		return &enforce.Disposition{Forward: d.Message, Finish: func(_ context.Context, m *wire.Message) *wire.Message { return m }}, nil
	})
	for _, json := range []bool{false, true} { // what the server answers with
		g := newGateway(t, sdkServer(t, &mcp.StreamableHTTPOptions{JSONResponse: json}), gate)
		progress := make(chan string, 10)
		session := g.connect(t, "2025-11-25", &mcp.ClientOptions{
			ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"wait": true}}, nil
			},
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Message },
		})
		params := &mcp.CallToolParams{Name: "greet", Arguments: greeting{"bob"}}
		params.SetProgressToken("p")
		result, err := session.CallTool(t.Context(), params)
		if err != nil || text(t, result) != "hello bob" {
			t.Fatalf("%+v, %v", result, err)
		}
		if got, _ := answered.Load().(string); !strings.Contains(got, `"action":"accept"`) {
			t.Errorf("answered %s", got)
		}
		if got := <-progress; got != "waiting" {
			t.Errorf("progress %q", got)
		}
	}
}

// A call that waits is over when its client cancels it, or nobody else than its
// client answers.
func TestCancelPendingCall(t *testing.T) {
	waits, over := make(chan struct{}, 1), make(chan error, 1)
	gate := suspending(t, func(ctx context.Context, d *enforce.DeniedCall) (*enforce.Disposition, error) {
		waits <- struct{}{}
		_, err := d.Client.Ask(ctx, wire.MethodElicitation, map[string]any{})
		over <- err
		return nil, err
	})
	g := newGateway(t, sdkServer(t, nil), gate)
	_, header, _ := g.send(t, post{body: begin})
	_, others, _ := g.send(t, post{as: "mallory", body: begin})
	in := map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id")}
	call, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL, strings.NewReader(legacy))
	if err != nil {
		t.Fatal(err)
	}
	call.Header = http.Header{"Authorization": {"Bearer alice"}, "Content-Type": {"application/json"}, "Accept": {"*/*"}, "Mcp-Session-Id": {in["Mcp-Session-Id"]}}
	go func() {
		if response, err := http.DefaultClient.Do(call); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
	}()
	<-waits
	for id := range 3 {
		g.send(t, post{as: "mallory", body: fmt.Sprintf(`{"jsonrpc":"2.0","id":"gw-%d","result":{"action":"accept"}}`, id), header: map[string]string{"Mcp-Session-Id": others.Get("Mcp-Session-Id")}})
		g.send(t, post{body: fmt.Sprintf(`{"jsonrpc":"2.0","id":"gw-%d","result":{"action":"accept"}}`, id), header: in})
	}
	g.send(t, post{as: "mallory", body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, header: map[string]string{"Mcp-Session-Id": others.Get("Mcp-Session-Id")}})
	select {
	case err := <-over:
		t.Fatalf("another ends it: %v", err)
	default:
	}
	g.send(t, post{body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, header: in})
	if err := <-over; err == nil {
		t.Error("a call that was cancelled is answered")
	}
}

// approver is an [enforce.Approver].
type approver func(context.Context, *enforce.DeniedCall) (*enforce.Disposition, error)

func (a approver) Suspend(ctx context.Context, d *enforce.DeniedCall) (*enforce.Disposition, error) {
	return a(ctx, d)
}
