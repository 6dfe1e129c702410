//lint:file-ignore SA1019 servers of earlier versions use sampling and roots.

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/conformance/docpage"
)

// asking is a server whose tools ask the client, in whatever way its version has.
func asking(server *mcp.Server) {
	type empty struct{}
	ask := func(name string, request mcp.InputRequest) {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(_ context.Context, r *mcp.CallToolRequest, _ empty) (*mcp.CallToolResult, any, error) {
			if len(r.Params.InputResponses) == 0 {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": request}, RequestState: "s"}, nil, nil
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "the client has answered"}}}, nil, nil
		})
	}
	ask("confirm", &mcp.ElicitParams{Message: "Is it you?"})
	ask("pay", &mcp.ElicitParams{Message: "Your card number?"})
	ask("think", &mcp.CreateMessageParams{MaxTokens: 10, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "hi"}}}})
	ask("look", &mcp.ListRootsParams{})
}

// What a server asks of its client, the policies decide on: by the method, by the
// tool in whose course it comes, and by what the caller has read. The server is told
// no, and the trail has it. Without the setting no policy is asked.
func TestRequestsOfServers(t *testing.T) {
	dir, err := policyService()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	write(t, filepath.Join(home, "store", "all.cedar"), `
		@id("all") permit (principal, action, resource);
		@id("no-sampling") forbid (principal, action == Action::"sampling/createMessage", resource == mcp_server::"desk");
		@id("no-cards") forbid (principal, action == Action::"elicitation/create", resource)
		when { context.during.name == "pay" && context.gateway.tool == "pay" && context.mode == "form" && context.session.labels.isEmpty() };
		@id("no-other-cards") forbid (principal, action == Action::"elicitation/create", resource)
		unless { context.during.method == "tools/call" && ["confirm", "pay"].contains(context.gateway.tool) };`)
	pdp, admin := docpage.FreeAddress(t), docpage.FreeAddress(t)
	background(t, exec.Command(filepath.Join(dir, "policy-service"), "serve", "--policies", filepath.Join(home, "store"),
		"--state", filepath.Join(home, "pdp"), "--listen", pdp, "--admin-listen", admin), admin)
	for _, asks := range []bool{true, false} {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			state := filepath.Join(t.TempDir(), "state")
			file := filepath.Join(t.TempDir(), "gateway.yaml")
			write(t, file, fmt.Sprintf("listen: 127.0.0.1:0\nstate: %s\npdp: {url: \"http://%s\", timeout: 10s}\nidentity: {local: {type: user, id: alice}}\nservers:\n  - {name: desk, url: %q, ask_requests: %v}\n",
				state, pdp, sdkServer(t, version == "2025-11-25", asking), asks))
			gateway := exec.Command("mcp-gateway", "serve", "--config", file)
			url := serving(t, gateway) + "/desk/mcp"
			for tool, allowed := range map[string]bool{"confirm": true, "look": true, "pay": !asks, "think": !asks} {
				asked, got := askedOf(t, url, version, tool)
				if asked != allowed || strings.Contains(got, "the client has answered") != allowed {
					t.Errorf("ask_requests %v, %s, %s: the client is asked: %v, and gets %s", asks, version, tool, asked, got)
				}
			}
			checkRefusedRequests(t, gateway, dir, state, asks)
		}
	}
}

// askedOf calls a tool, and returns whether the client was asked and what it got.
func askedOf(t *testing.T, url, version, tool string) (asked bool, got string) {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked = true
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			asked = true
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "hi"}}, nil
		},
	})
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			asked = asked || method == "roots/list"
			return next(ctx, method, r)
		}
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
	if err != nil {
		return asked, err.Error()
	}
	for _, block := range result.Content {
		if text, ok := block.(*mcp.TextContent); ok {
			got += text.Text
		}
	}
	asked = asked || tool == "look" && strings.Contains(got, "answered") // the SDK answers some itself
	return asked, got
}

// checkRefusedRequests ends a gateway and checks that its trail has the refused
// requests of its server, if there are any.
func checkRefusedRequests(t *testing.T, gateway *exec.Cmd, dir, state string, refused bool) {
	t.Helper()
	if err := gateway.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = gateway.Wait() // its exit code is of no concern
	trail, err := exec.Command(filepath.Join(dir, "policy-service"), "log", "export", "--state", filepath.Join(state, "trail")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, trail)
	}
	for _, method := range []string{"sampling/createMessage", "elicitation/create"} {
		entry := `"kind":"gateway.refused","request":{"subject":{"type":"user","id":"alice"},"action":{"name":"` + method + `"},"resource":{"type":"server","id":"desk"},"event":"refused","reason":"denied"`
		if strings.Contains(string(trail), entry) != refused {
			t.Errorf("refused %v, but the trail has of %s:\n%s", refused, method, trail)
		}
	}
}
