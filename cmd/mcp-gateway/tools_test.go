package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A client of either era hears from its server that tools, prompts or resources
// have changed. For tools the gateway has asked by then or does so at once: what
// has changed under its name is not called (CZ-65).
func TestListChanged(t *testing.T) {
	decides := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"decision":true}`)
	}))
	defer decides.Close()
	for _, era := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(era, func(t *testing.T) {
			desk := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
			add := func(title string) {
				mcp.AddTool(desk, &mcp.Tool{Name: "write", Description: title}, func(context.Context, *mcp.CallToolRequest, note) (*mcp.CallToolResult, any, error) {
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: title}}}, nil, nil
				})
			}
			add("writes a note")
			more := func(name string) {
				desk.AddPrompt(&mcp.Prompt{Name: name}, nil)
				desk.AddResource(&mcp.Resource{Name: name, URI: "file:///" + name}, nil)
			}
			more("1")
			var mu sync.Mutex
			lists := 0
			listed := func() int {
				mu.Lock()
				defer mu.Unlock()
				return lists
			}
			desk.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
					if method == wire.MethodToolsList {
						mu.Lock()
						lists++
						mu.Unlock()
					}
					return next(ctx, method, r)
				}
			})
			upstream := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return desk }, &mcp.StreamableHTTPOptions{Stateless: era >= wire.Stateless}))
			defer upstream.Close()
			config := filepath.Join(t.TempDir(), "gateway.yaml")
			write(t, config, fmt.Sprintf("listen: 127.0.0.1:0\nstate: %s\npdp: {url: %q, timeout: 10s}\nidentity: {local: {type: user, id: alice}}\nservers:\n%s\n",
				filepath.Join(t.TempDir(), "state"), decides.URL, server("desk", upstream.URL)))
			gateway := serving(t, exec.Command("mcp-gateway", "serve", "--config", config))
			heard := map[string]chan bool{"tools": make(chan bool, 10), "prompts": make(chan bool, 10), "resources": make(chan bool, 10)}
			client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
				ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { heard["tools"] <- true },
				PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { heard["prompts"] <- true },
				ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { heard["resources"] <- true },
			})
			hears := func(what string) {
				t.Helper()
				select {
				case <-heard[what]:
				case <-time.After(30 * time.Second):
					t.Fatalf("the client does not hear of its %s", what)
				}
			}
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: gateway + "/desk/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: era})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			call := func() error {
				_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "write", Arguments: note{"x"}})
				return err
			}
			if err := call(); err != nil {
				t.Fatal(err)
			}
			before := listed()
			add("writes a note, and sends it on")
			hears("tools")
			for range 300 { // the gateway asks of itself
				if listed() > before {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			if listed() == before {
				t.Fatal("the gateway does not ask")
			}
			var refused *jsonrpc.Error
			if err := call(); !errors.As(err, &refused) || !strings.Contains(string(refused.Data), enforce.ReasonQuarantined) {
				t.Errorf("the tool that has changed: %v", err)
			}
			more("2")
			hears("prompts")
			hears("resources")
		})
	}
}
