package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A server that says that its tools have changed is asked what they are, whoever
// calls or not, and a definition that has changed is not called from then on.
// However often it says so, it is asked once a second.
func TestHeard(t *testing.T) {
	changed := &wire.Message{Method: wire.MethodToolsChanged}
	for _, test := range []struct {
		name   string
		says   *wire.Message
		times  int // every millisecond
		fails  bool
		asked  func(n int64) bool
		stands error // of the tool after that
	}{
		{"once", changed, 1, false, func(n int64) bool { return n == 1 }, catalog.ErrQuarantined},
		{"ten thousand times in ten seconds", changed, 10_000, false, func(n int64) bool { return n >= 10 && n <= 12 }, catalog.ErrQuarantined},
		{"ten thousand times, and answers nothing", changed, 10_000, true, func(n int64) bool { return n >= 10 && n <= 12 }, nil},
		{"that its prompts have", &wire.Message{Method: "notifications/prompts/list_changed"}, 10, false, func(n int64) bool { return n == 0 }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), catalogFile)
			synctest.Test(t, func(t *testing.T) {
				all := listing(t, path)
				var asked atomic.Int64
				title := "one"
				call := &enforce.Call{Server: "desk", Params: &wire.Params{Name: "write"}}
				call.Reach = func(_ context.Context, m *wire.Message) (*wire.Message, error) {
					asked.Add(1)
					if test.fails && title != "one" {
						return nil, errors.New("the server is gone")
					}
					return &wire.Message{ID: m.ID, Result: fmt.Appendf(nil, `{"tools":[{"name":"write","description":%q}]}`, title)}, nil
				}
				if _, err := all.tool(t.Context(), call); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				before := asked.Load()
				title = "two"
				for range test.times {
					all.heard(call, test.says)
					time.Sleep(time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				if n := asked.Load() - before; !test.asked(n) {
					t.Errorf("it is asked %d times", n)
				}
				if _, err := all.Tool("desk", "write"); !errors.Is(err, test.stands) {
					t.Errorf("the tool: %v", err)
				}
			})
		})
	}
}

// listing returns tools that are asked again when that is said, and pinned in a
// file.
func listing(t *testing.T, path string) *tools {
	t.Helper()
	pins, err := catalog.Open(catalog.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	all := newTools(pins, &mapper{log: slog.New(slog.DiscardHandler)}, nil, &catalogConfig{Refresh: duration(time.Hour)})
	t.Cleanup(func() { all.Close() })
	return all
}

// A call that comes while a server is asked again waits for what that says.
func TestHeardBeforeACall(t *testing.T) {
	path := filepath.Join(t.TempDir(), catalogFile)
	synctest.Test(t, func(t *testing.T) {
		all := listing(t, path)
		title := "one"
		call := &enforce.Call{Server: "desk", Params: &wire.Params{Name: "write"}}
		call.Reach = func(_ context.Context, m *wire.Message) (*wire.Message, error) {
			answer := fmt.Appendf(nil, `{"tools":[{"name":"write","description":%q}]}`, title)
			time.Sleep(10 * time.Second)
			return &wire.Message{ID: m.ID, Result: answer}, nil
		}
		if _, err := all.tool(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := all.tool(t.Context(), call); err != nil {
			t.Fatalf("the control: %v", err)
		}
		title = "two"
		all.heard(call, &wire.Message{Method: wire.MethodToolsChanged})
		time.Sleep(time.Millisecond)
		var refused *enforce.Refusal
		if _, err := all.tool(t.Context(), call); !errors.As(err, &refused) || refused.Data.Reason != enforce.ReasonQuarantined {
			t.Errorf("%v", err)
		}
	})
}

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
