package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/gateway"
	"github.com/policy-service/policy-service/conformance/docpage"
)

// The key for an Access Request Service of another origin can be replaced while the
// gateway runs. The PDP never gets it.
func TestServiceKeyFollowsItsFile(t *testing.T) {
	keys := make(chan string, 100)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusForbidden)
	}))
	defer service.Close()
	decides := httptest.NewServer(nil)
	defer decides.Close()
	decides.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("the PDP gets %q", r.Header.Get("Authorization"))
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
		if r.Method == http.MethodGet {
			fmt.Fprintf(w, `{"policy_decision_point":%q,"access_evaluation_endpoint":"%[1]s/access/v1/evaluation","access_request_endpoint":"%s/requests"}`, decides.URL, service.URL)
			return
		}
		fmt.Fprintf(w, `{"decision":false,"context":{"access_request":{"template":"desk","expires_at":"2099-01-01T00:00:00Z","endpoint":"%s/requests"}}}`, service.URL)
	})

	dir, address := t.TempDir(), docpage.FreeAddress(t)
	file := filepath.Join(dir, "service.key")
	write := func(key string) {
		if err := errors.Join(os.WriteFile(file+".new", []byte(key+"\n"), 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	cfg, err := gateway.Parse("gateway.yaml", fmt.Appendf(nil, `
listen: %s
state: %s
pdp: {url: %q, service_key_file: %s, timeout: 10s}
identity: {local: {type: user, id: alice}}
servers: [{name: desk, url: "http://127.0.0.1:9/"}]
`, address, dir, decides.URL, file), "", true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Run(ctx, cfg) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	if got := keyOfService(t, address, keys, "Bearer first"); got != "Bearer first" {
		t.Errorf("the service gets %q", got)
	}
	write("the second")
	if got := keyOfService(t, address, keys, "Bearer the second"); got != "Bearer the second" {
		t.Errorf("the service gets %q after the rotation", got)
	}
}

// keyOfService makes calls that wait for a person, until the service gets the wanted
// key or too much time has passed. It returns the last key.
func keyOfService(t *testing.T, address string, keys <-chan string, want string) (got string) {
	t.Helper()
	const call = `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	for deadline := time.Now().Add(30 * time.Second); got != want && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/desk/mcp", strings.NewReader(call))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "resources/read", "Mcp-Name": "file:///a"} {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			continue // it starts
		}
		response.Body.Close()
		select {
		case got = <-keys:
		default:
			t.Errorf("the service is not asked: %s", response.Status)
			return ""
		}
	}
	return got
}
