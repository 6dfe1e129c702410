package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a server of the Python SDK says by HTTP alone, a client is told through the
// gateway, too.
func TestErrorsOfPython(t *testing.T) {
	upstream := httptest.NewServer(newPythonServer(fieldTools(false), false))
	t.Cleanup(upstream.Close)
	gateway := gatewayOf(t, fmt.Sprintf("pdp: {url: %q, timeout: 10s}\nidentity: {local: {type: user, id: alice}}\nservers:\n  - {name: python, url: %q}\n", denies(t, "nothing"), upstream.URL+"/mcp"))
	want := []string{
		"no session: 400 Bad Request: Missing session ID",
		"initialize: 200",
		"initialized: 202",
		"a stream: 200",
		"another stream: 409",
		"an unknown version: 400 Bad Request: Unsupported protocol version: 1999-01-01. Supported versions: 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25",
		"JSON alone: 406 Not Acceptable: Client must accept both application/json and text/event-stream",
		"its end: 200",
		"after it: 404 Not Found: Session has been terminated",
	}
	for _, url := range []string{upstream.URL + "/mcp", gateway + "/python/mcp"} {
		if diff := cmp.Diff(want, pythonErrors(t, url)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", url, diff)
		}
	}
}

var pythonSays = regexp.MustCompile(`"message":"([^"]*)"`)

// pythonErrors begins a session, provokes the errors of one and ends it.
func pythonErrors(t *testing.T, url string) (said []string) {
	t.Helper()
	const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	session := ""
	send := func(what, method, body string, header ...string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"}}
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		line := fmt.Sprintf("%s: %d", what, response.StatusCode)
		if response.StatusCode >= 400 {
			text, _ := io.ReadAll(response.Body)
			if found := pythonSays.FindSubmatch(text); found != nil && method == http.MethodPost {
				line += " " + string(found[1])
			}
		}
		said = append(said, line)
		if what == "initialize" {
			session = response.Header.Get("Mcp-Session-Id")
		}
	}
	send("no session", "POST", call)
	send("initialize", "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	send("initialized", "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	send("a stream", "GET", "")
	send("another stream", "GET", "")
	send("an unknown version", "POST", call, "Mcp-Protocol-Version", "1999-01-01")
	send("JSON alone", "POST", call, "Accept", "application/json")
	send("its end", "DELETE", "")
	send("after it", "POST", call)
	return said
}
