package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// The official client with proofs of an OAuth library reaches the endpoint of a server
// and one over several, in both eras, by POST, GET and DELETE. It is told the nonce to
// use. Its token alone, and a proof that was seen, are worth nothing, and no server
// gets a token or a proof.
func TestDPoPOfClients(t *testing.T) {
	dir, err := filepath.Abs("testdata/field")
	if err != nil {
		t.Fatal(err)
	}
	external.Packages(t, dir)
	keys := jwkstest.New(t)
	var leaked atomic.Int32
	serve := func(sessions bool) string {
		desk := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
		mcp.AddTool(desk, &mcp.Tool{Name: "greet"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}, nil, nil
		})
		handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return desk }, &mcp.StreamableHTTPOptions{Stateless: !sessions})
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("DPoP")+r.Header.Get("Authorization") != "" {
				leaked.Add(1)
			}
			handler.ServeHTTP(w, r)
		}))
		t.Cleanup(upstream.Close)
		return upstream.URL
	}
	address := docpage.FreeAddress(t)
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, file, fmt.Sprintf(`
listen: %s
state: %s
pdp: {url: %q, timeout: 10s}
identity:
  resource: "http://%[1]s"
  issuers: [{issuer: "https://auth.example.com", jwks_url: %[4]q, audience: all}]
  dpop: required
  dpop_nonce: true
servers: [{name: old, url: %[5]q}, {name: new, url: %[6]q}]
endpoints: [{path: /oldest, servers: [old]}, {path: /newest, servers: [new]}]
`, address, filepath.Join(t.TempDir(), "state"), deniesAll(t), keys.URL, serve(true), serve(false)))
	base := serving(t, exec.Command("mcp-gateway", "serve", "--config", file))
	for _, algorithm := range []string{"ES256", "Ed25519"} {
		c := exec.CommandContext(t.Context(), external.Program(t, "node"), filepath.Join(dir, "dpop.mjs"), algorithm)
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Scan()
		token := jwkstest.Sign(t, jose.RS256, keys.Key, jwkstest.KeyID, map[string]any{
			"iss": "https://auth.example.com", "aud": "all", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "cnf": map[string]any{"jkt": lines.Text()},
		}, nil)
		if err := json.MarshalWrite(in, map[string]any{"token": token, "legacy": []string{base + "/old/mcp", base + "/oldest"}, "stateless": []string{base + "/new/mcp", base + "/newest"}}); err != nil {
			t.Fatal(err)
		}
		in.Close()
		var said []string
		for lines.Scan() {
			said = append(said, lines.Text())
		}
		_ = c.Wait()
		want := []string{
			"legacy: greet hello, the same proof again 401", "Bearer: 401", "legacy: old__greet hello, the same proof again 401", "Bearer: 401",
			"2026-07-28: greet hello, the same proof again 401", "Bearer: 401", "2026-07-28: new__greet hello, the same proof again 401", "Bearer: 401",
			"DELETE GET POST, nonces asked for: 1",
		}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("%s (-want +got):\n%s", algorithm, diff)
		}
	}
	if leaked := leaked.Load(); leaked > 0 {
		t.Errorf("%d requests with a token or a proof reached the server", leaked)
	}
}
