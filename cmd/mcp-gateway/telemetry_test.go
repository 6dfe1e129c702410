package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// get returns what is answered at a URL to who addresses a host, "" for its own.
func get(t *testing.T, url, host string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// What becomes of calls is on the page of the admin listener, and nothing there
// is what a client or a server has said.
func TestMetrics(t *testing.T) {
	var answer atomic.Value
	decides := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if answer.Load() == "" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, answer.Load())
	}))
	defer decides.Close()
	title := new(atomic.Int64)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(string(body), "tools/list"):
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":"gw-list","result":{"tools":[{"name":"said-by-server","description":"%d"},{"name":"fails"},{"name":"dies"}]}}`, title.Load())
		case strings.Contains(string(body), "fails"):
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}`)
		case strings.Contains(string(body), "dies"):
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		}
	}))
	defer upstream.Close()
	config := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, config, fmt.Sprintf("listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\nstate: %s\npdp: {url: %q, timeout: 10s, failures: 2, pause: 1h}\ncatalog: {refresh: 0s}\nidentity: {local: {type: user, id: alice}}\nservers:\n  - {name: desk, url: %q}\n",
		filepath.Join(t.TempDir(), "state"), decides.URL, upstream.URL))
	gateway, admin := listeners(t, exec.Command("mcp-gateway", "serve", "--config", config))
	call := func(method, tool string) {
		send(t, gateway+"/desk/mcp", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":{"name":%q}}`, method, tool))
	}
	answer.Store(`{"decision":true}`)
	call("tools/call", "said-by-server")
	call("tools/call", "said-by-server")
	call("tools/call", "fails")
	call("tools/call", "dies")
	call("tools/call", "said-by-client")
	call("said/by-client", "x")
	call("prompts/get", "x")
	answer.Store(`{"decision":false}`)
	call("tools/call", "said-by-server")
	title.Add(1)
	call("tools/call", "said-by-server")
	answer.Store(``)
	call("prompts/get", "x")
	call("prompts/get", "x")
	call("prompts/get", "x")
	_, page := get(t, admin+"/metrics", "")
	for _, want := range []string{
		`mcp_gateway_calls_total{method="tools/call",outcome="succeeded",server="desk"} 2`,
		`mcp_gateway_calls_total{method="tools/call",outcome="failed",server="desk"} 1`,
		`mcp_gateway_calls_total{method="tools/call",outcome="unknown",server="desk"} 1`,
		`mcp_gateway_calls_total{method="tools/call",outcome="refused",reason="unknown_tool",server="desk"} 1`,
		`mcp_gateway_calls_total{method="tools/call",outcome="refused",reason="denied",server="desk"} 1`,
		`mcp_gateway_calls_total{method="tools/call",outcome="refused",reason="tool_quarantined",server="desk"} 1`,
		`mcp_gateway_calls_total{method="other",outcome="refused",reason="unknown_method",server="desk"} 1`,
		`mcp_gateway_calls_total{method="prompts/get",outcome="refused",reason="pdp_unavailable",server="desk"} 3`,
		`mcp_gateway_pdp_duration_seconds_count{result="decided"} 6`,
		`mcp_gateway_pdp_duration_seconds_count{result="failed"} 2`,
		`mcp_gateway_pdp_duration_seconds_count{result="paused"} 1`,
		`mcp_gateway_pdp_breaker 2`,
		`mcp_gateway_calls_waiting 0`,
		`mcp_gateway_tools_quarantined{server="desk"} 1`,
		`process_open_fds`, `go_goroutines`,
	} {
		if !strings.Contains(page, "\n"+want) {
			t.Errorf("there is no %s", want)
		}
	}
	for said := range strings.Lines(page) {
		if strings.Contains(said, "said") {
			t.Errorf("somebody said %s", said)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "mcp_gateway") && !strings.Contains(line, "_bucket") {
				t.Log(line)
			}
		}
	}
	if status, _ := get(t, admin+"/livez", ""); status != http.StatusOK {
		t.Errorf("livez: %d", status)
	}
	if status, body := get(t, admin+"/metrics", "attacker.example"); status != http.StatusForbidden || strings.Contains(body, "mcp_gateway") {
		t.Errorf("under another name: %d", status)
	}
	if status, _ := get(t, gateway+"/metrics", ""); status != http.StatusNotFound {
		t.Errorf("clients: %d", status)
	}
}

// Calls that wait for a person are counted as such, and while they wait.
func TestMetricsOfWaiting(t *testing.T) {
	desk := exec.Command("desk")
	desk.Env = append(os.Environ(), "DESK="+filepath.Join(t.TempDir(), "desk"))
	s := set(t, "write", server("desk", serving(t, desk)))
	content, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.config, strings.Replace(string(content), "{hold: 30s}", "{hold: 0s}\nadmin_listen: 127.0.0.1:0", 1))
	gateway, admin := listeners(t, exec.Command("mcp-gateway", "serve", "--config", s.config))
	call := func() string {
		return send(t, gateway+"/desk/mcp", []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{"text":"x"}}}`))
	}
	metrics := func() string {
		_, page := get(t, admin+"/metrics", "")
		return page
	}
	if answer := call(); !strings.Contains(answer, "approval_pending") {
		t.Fatal(answer)
	}
	page := metrics()
	for _, want := range []string{`mcp_gateway_calls_total{method="tools/call",outcome="waiting",server="desk"} 1`, "mcp_gateway_calls_waiting 1"} {
		if !strings.Contains(page, "\n"+want) {
			t.Errorf("there is no %s", want)
		}
	}
	s.approve(t)
	if answer := call(); !strings.Contains(answer, "written: x") {
		t.Fatal(answer)
	}
	page = metrics()
	for _, want := range []string{`mcp_gateway_calls_total{method="tools/call",outcome="succeeded",server="desk"} 1`, "mcp_gateway_calls_waiting 0"} {
		if !strings.Contains(page, "\n"+want) {
			t.Errorf("there is no %s", want)
		}
	}
}
