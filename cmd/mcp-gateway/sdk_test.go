package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/conformance/external"
)

// typescript runs a script of testdata/guide, which uses the official TypeScript
// SDKs, and returns what it prints.
func typescript(t *testing.T, script string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), external.Program(t, "node"), append([]string{filepath.Join(guidePackages(t), script)}, args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// denies is a PDP that denies what has the text in it, and permits the rest.
func denies(t *testing.T, denied string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"decision":%v}`, !strings.Contains(string(body), denied))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// sdkServer is a server of the Go SDK with the tools that add adds.
func sdkServer(t *testing.T, add func(*mcp.Server)) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
	add(server)
	s := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(s.Close)
	return s.URL
}

// gatewayOf serves a configuration, to which it adds where to listen and what to
// keep, and returns its URL.
func gatewayOf(t *testing.T, config string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, file, fmt.Sprintf("listen: 127.0.0.1:0\nstate: %s\n%s", filepath.Join(t.TempDir(), "state"), config))
	return serving(t, exec.Command("mcp-gateway", "serve", "--config", file))
}

// A denial has a code that no official SDK has another meaning for, unless the
// operator wants the code of a draft.
func TestCodesOfDenials(t *testing.T) {
	pdp := denies(t, `desk:rm`)
	upstream := sdkServer(t, func(s *mcp.Server) {
		mcp.AddTool(s, &mcp.Tool{Name: "rm"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.New("it ran")
		})
	})
	serve := func(denial string) string {
		return gatewayOf(t, fmt.Sprintf("pdp: {url: %q, timeout: 10s}\ndenial: {%s}\nidentity: {local: {type: user, id: alice}}\nservers:\n  - {name: desk, url: %q}\n", pdp, denial, upstream)) + "/desk/mcp"
	}
	url := serve("")
	const want = `sdk: 4030 undefined denied MCP error 4030: access denied
client legacy: 4030 undefined denied access denied
client 2026-07-28: 4030 undefined denied access denied
`
	if got := typescript(t, "codes.mjs", url); got != want {
		t.Errorf("TypeScript:\n%s", got)
	}
	for denial, code := range map[string]int64{"": 4030, "codes: coaz": -32001, "codes: mcpx": -32002, "codes: mcpx, code: 7": 7} {
		if denial != "" {
			url = serve(denial)
		}
		session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "rm"})
		var refused *jsonrpc.Error
		if !errors.As(err, &refused) || refused.Code != code || errors.Is(err, mcp.ErrConnectionClosed) {
			t.Errorf("Go, %q: %v", denial, err)
		}
		if strings.Contains(denial, "mcpx") && (refused.Message != "Authorization denied" || !strings.Contains(string(refused.Data), `"reason":"access denied"`)) {
			t.Errorf("Go, %q: %s %s", denial, refused.Message, refused.Data)
		}
		session.Close()
	}
}
