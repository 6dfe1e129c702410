package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// named is a server of the Go SDK whose tools say its name.
func named(t *testing.T, name string, sessions bool) string {
	t.Helper()
	return sdkServer(t, sessions, func(s *mcp.Server) {
		for _, tool := range []string{"hello", "rm"} {
			mcp.AddTool(s, &mcp.Tool{Name: tool}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: tool + " of " + name}}}, nil, nil
			})
		}
	})
}

// deniesAll is a PDP that denies each question that has one of the texts in it.
func deniesAll(t *testing.T, denied ...string) string {
	t.Helper()
	s := httptest.NewServer(deciding(t, denied...))
	t.Cleanup(s.Close)
	return s.URL
}

// deciding denies each question that has one of the texts in it.
func deciding(t *testing.T, denied ...string) http.Handler {
	decide := func(question jsontext.Value) map[string]bool {
		return map[string]bool{"decision": !slices.ContainsFunc(denied, func(text string) bool { return strings.Contains(string(question), text) })}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // it knows no capabilities
			http.NotFound(w, r)
			return
		}
		var body struct {
			Evaluations []jsontext.Value `json:"evaluations"`
		}
		text, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(text, &body); err != nil {
			t.Error(err)
		}
		var answer any = decide(text)
		if body.Evaluations != nil {
			all := []any{}
			for _, question := range body.Evaluations {
				all = append(all, decide(question))
			}
			answer = map[string]any{"evaluations": all}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, answer)
	})
}

// united serves a union at /mcp over servers of these URLs, called a, b and so on.
func united(t *testing.T, pdp, settings string, urls ...string) string {
	t.Helper()
	var names, servers strings.Builder
	for i, url := range urls {
		fmt.Fprintf(&names, "%c, ", 'a'+i)
		fmt.Fprintf(&servers, "  - {name: %c, url: %q}\n", 'a'+i, url)
	}
	return gatewayOf(t, fmt.Sprintf("pdp: {url: %q, timeout: 10s}\nidentity: {local: {type: user, id: alice}}\n%sendpoints: [{path: /mcp, servers: [%s], wait: 2s}]\nservers:\n%s", pdp, settings, strings.TrimSuffix(names.String(), ", "), &servers)) + "/mcp"
}

// connected is a client of the Go SDK.
func connected(t *testing.T, url string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, options).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// toolNames lists the tools that a client sees.
func toolNames(t *testing.T, session *mcp.ClientSession) string {
	t.Helper()
	var names []string
	for tool, err := range session.Tools(t.Context(), nil) {
		if err != nil {
			return err.Error()
		}
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}

// said is what a client gets of a call.
func said(t *testing.T, session *mcp.ClientSession, tool string) string {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
	if err != nil {
		return "error: " + err.Error()
	}
	return result.Content[0].(*mcp.TextContent).Text
}

// A client of each era has the tools of two servers that it may use, and calls
// each at its server.
func TestUnion(t *testing.T) {
	for _, sessions := range []bool{true, false} {
		url := united(t, deniesAll(t, `a:rm`), "", named(t, "a", sessions), named(t, "b", sessions))
		session := connected(t, url, nil)
		if got, want := toolNames(t, session), "a__hello b__hello b__rm"; got != want {
			t.Errorf("sessions %v: the tools are %s", sessions, got)
		}
		for tool, want := range map[string]string{
			"a__hello": "hello of a", "b__hello": "hello of b", "b__rm": "rm of b", "a__rm": "error: calling \"tools/call\": access denied",
			"c__hello": "the tool is not known\nList the tools, and call one of them.", "hello": "the tool is not known\nList the tools, and call one of them.",
			"a__gone": "the tool is not known\nList the tools, and call one of them.",
		} {
			if got := said(t, session, tool); got != want {
				t.Errorf("sessions %v: %s: %s", sessions, tool, got)
			}
		}
		if got := session.InitializeResult().ProtocolVersion; (got == "2026-07-28") == sessions {
			t.Errorf("sessions %v: the version is %s", sessions, got)
		}
	}
}

// Names that two servers could share, and endpoints that cannot be told apart, are
// refused.
func TestUnionFaults(t *testing.T) {
	_, err := configured(t, `pdp: {url: "http://127.0.0.1:1"}
identity: {resource: "https://x.example.com", process: {id: a}}
endpoints:
  - {path: /a/mcp, servers: [a, b, c, c, d_, e__f, f23456789012345678901234567890123456789012345678901234]}
  - {servers: [a]}
  - {path: /p}
  - {path: /q, servers: []}
  - {path: /mcp, servers: [a], public_url: "https://x.example.com/a/mcp"}
servers:
  - {name: a, url: "http://127.0.0.1:1"}
  - {name: c}
  - {name: d_, url: "http://127.0.0.1:1"}
  - {name: e__f, url: "http://127.0.0.1:1"}
  - {name: f23456789012345678901234567890123456789012345678901234, url: "http://127.0.0.1:1"}
`)
	want := `4:6: endpoints.0.path: must be another: servers.0 has /a/mcp, too
4:33: endpoints.0.servers.1: must be the name of one of the servers, not "b"
4:36: endpoints.0.servers.2: must be a server with a url or a command, which "c" does not have
4:39: endpoints.0.servers.3: must be another: "c" is in the list before
4:42: endpoints.0.servers.4: must not contain __ or end with _: the tools of the server are called SERVER__NAME
4:46: endpoints.0.servers.5: must not contain __ or end with _: the tools of the server are called SERVER__NAME
4:52: endpoints.0.servers.6: is too long for names of tools, SERVER__NAME
5:6: endpoints.1.path: is required: it must be a path, such as /mcp
6:6: endpoints.2.servers: is required: a list of names of servers
7:16: endpoints.3.servers: is an empty list (leave the key out, or name some)
8:32: endpoints.4.public_url: must have another path than that of endpoints.0`
	if err == nil {
		t.Fatal("it is read")
	}
	if diff := cmp.Diff(want, regexp.MustCompile(`\S*gateway.yaml:`).ReplaceAllString(err.Error(), "")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
