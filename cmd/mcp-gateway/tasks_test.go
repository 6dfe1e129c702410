package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A task of a server is that of the caller who began it, also after the gateway
// has been killed; another caller is told what is told of a task that there never
// was, and the server is not asked (CZ-77).
func TestServersTasks(t *testing.T) {
	decides := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"decision":true}`)
	}))
	defer decides.Close()
	var polled atomic.Int32
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(string(body), "tools/list"):
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":"gw-list","result":{"tools":[{"name":"slow"}]}}`)
		case strings.Contains(string(body), "tools/call"):
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"t1","status":"working","ttl":null}}}`)
		default:
			polled.Add(1)
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"taskId":"t1","status":"completed"}}`)
		}
	}))
	defer upstream.Close()
	state := filepath.Join(t.TempDir(), "state")
	serve := func(as string) (url string, kill func()) {
		t.Helper()
		config := filepath.Join(t.TempDir(), "gateway.yaml")
		write(t, config, fmt.Sprintf("listen: 127.0.0.1:0\nstate: %s\npdp: {url: %q, timeout: 10s}\nidentity: {local: {type: user, id: %s}}\nservers:\n  - {name: desk, url: %q}\n", state, decides.URL, as, upstream.URL))
		c := exec.Command("mcp-gateway", "serve", "--config", config)
		url = serving(t, c) + "/desk/mcp"
		return url, func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	ask := func(url, method, params string) string {
		return send(t, url, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	}
	url, kill := serve("alice")
	if got := ask(url, "tools/call", `{"name":"slow","task":{}}`); !strings.Contains(got, "t1") {
		t.Fatal(got)
	}
	kill()
	url, kill = serve("bob")
	unknown := ask(url, "tasks/get", `{"taskId":"t0"}`)
	if got := ask(url, "tasks/get", `{"taskId":"t1"}`); got != unknown || !strings.Contains(got, "the task does not exist") || polled.Load() != 0 {
		t.Errorf("another caller gets %s, and of what there never was %s", got, unknown)
	}
	kill()
	url, _ = serve("alice")
	if got := ask(url, "tasks/get", `{"taskId":"t1"}`); !strings.Contains(got, "completed") {
		t.Errorf("the caller gets %s", got)
	}
}
