package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/conformance/docpage"
)

// The official conformance suite finds no difference between a server and a union of
// it alone, in either era, but for onlyThrough, and that lists are no streams: the
// union sends them whole. The suite knows the server's names,
// so a relay between it and the union adds and removes those of the union.
func TestConformanceOfUnion(t *testing.T) {
	run := programs(t)
	binary := filepath.Join(t.TempDir(), "everything-server")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for version, sessions := range map[string]string{"2026-07-28": "true", "2025-11-25": "false"} {
		address := docpage.FreeAddress(t)
		background(t, exec.Command(binary, "-http="+address, "-stateless="+sessions), address)
		s := set(t, "", server("everything", "http://"+address))
		s.change(t, "servers:", "endpoints: [{path: /mcp, servers: [everything]}]\nservers:")
		s.serve(t)
		direct := conform(t, run, version, "http://"+address)
		through := conform(t, run, version, renaming(t, s.gateway)+"/mcp")
		for i := range direct {
			if slices.Contains(onlyThrough, direct[i].ID) {
				direct[i].Status = "SUCCESS"
			}
			if direct[i].ID == "server-sse-streams-functional" {
				direct[i].Status = "INFO"
			}
		}
		if diff := cmp.Diff(direct, through); diff != "" {
			t.Errorf("%s, %d checks (-direct +through the union):\n%s", version, len(direct), diff)
		}
	}
}

// renaming is a relay to a gateway that gives the names of the server everything
// those of a union, and takes them away.
func renaming(t *testing.T, gateway string) string {
	t.Helper()
	var relay *httptest.Server
	relay = httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			own := strings.TrimPrefix(relay.URL, "http://")
			r.SetURL(&url.URL{Scheme: "http", Host: gateway})
			if r.Out.Host = r.In.Host; strings.EqualFold(r.In.Host, own) {
				r.Out.Host = gateway
			}
			if origin := r.In.Header.Get("Origin"); origin != "" {
				r.Out.Header.Set("Origin", strings.ReplaceAll(origin, own, gateway))
			}
			method := r.In.Header.Get("Mcp-Method")
			if name := r.In.Header.Get("Mcp-Name"); name != "" && !strings.HasPrefix(name, "=?") {
				r.Out.Header.Set("Mcp-Name", outerOf(method, name))
			}
			body, _ := io.ReadAll(r.In.Body)
			body = renamed(body)
			r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Content-Length")
			r.ContentLength = -1
			r.Body = &innerNames{r.Body, bufio.NewReader(r.Body), nil}
			return nil
		},
	})
	t.Cleanup(relay.Close)
	return relay.URL
}

// outerOf is the name of what a method is about at the union.
func outerOf(method, name string) string {
	if strings.HasPrefix(method, "resources/") {
		return "mcp-server://everything/" + name
	}
	return "everything__" + name
}

// renamed is a message with the names of the union, if it is one.
func renamed(body []byte) []byte {
	var m map[string]any
	if json.Unmarshal(body, &m) != nil {
		return body
	}
	method, _ := m["method"].(string)
	params, _ := m["params"].(map[string]any)
	change := func(of map[string]any, name, method string) {
		if text, ok := of[name].(string); ok {
			of[name] = outerOf(method, text)
		}
	}
	switch {
	case method == "tools/call", method == "prompts/get":
		change(params, "name", method)
	case strings.HasPrefix(method, "resources/"):
		change(params, "uri", method)
	case strings.HasPrefix(method, "tasks/"):
		change(params, "taskId", method)
	case method == "completion/complete":
		ref, _ := params["ref"].(map[string]any)
		change(ref, "name", method)
		change(ref, "uri", "resources/")
	case method == "subscriptions/listen":
		wanted, _ := params["notifications"].(map[string]any)
		uris, _ := wanted["resourceSubscriptions"].([]any)
		for i, uri := range uris {
			if text, ok := uri.(string); ok {
				uris[i] = outerOf("resources/", text)
			}
		}
	default:
		return body
	}
	text, err := json.Marshal(m)
	if err != nil {
		return body
	}
	return text
}

// innerNames reads a body without the names of the union.
type innerNames struct {
	io.Closer
	lines *bufio.Reader
	rest  []byte
}

func (n *innerNames) Read(p []byte) (int, error) {
	if len(n.rest) == 0 {
		line, err := n.lines.ReadBytes('\n')
		for _, own := range []string{"everything__", "mcp-server://everything/", "[everything] "} {
			line = bytes.ReplaceAll(line, []byte(own), nil)
		}
		if n.rest = line; len(line) == 0 {
			return 0, err
		}
	}
	took := copy(p, n.rest)
	n.rest = n.rest[took:]
	return took, nil
}
