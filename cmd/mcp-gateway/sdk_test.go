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
	"regexp"
	"strings"
	"sync"
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

// sdkServer is a server of the Go SDK with the tools that add adds, with sessions or
// without.
func sdkServer(t *testing.T, sessions bool, add func(*mcp.Server)) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
	add(server)
	s := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: !sessions}))
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
	upstream := sdkServer(t, false, func(s *mcp.Server) {
		mcp.AddTool(s, &mcp.Tool{Name: "rm"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.New("it ran")
		})
	})
	serve := func(denial string) string {
		return gatewayOf(t, fmt.Sprintf("pdp: {url: %q, timeout: 10s}\ndenial: {%s}\nidentity: {local: {type: user, id: alice}}\nservers:\n  - {name: desk, url: %q}\n", pdp, denial, upstream)) + "/desk/mcp"
	}
	const want = `sdk: 4030 undefined denied MCP error 4030: access denied
client legacy: 4030 undefined denied access denied
client 2026-07-28: 4030 undefined denied access denied
`
	if got := typescript(t, "codes.mjs", serve("")); got != want {
		t.Errorf("TypeScript:\n%s", got)
	}
	for denial, code := range map[string]int64{"": 4030, "codes: coaz": -32001, "codes: mcpx": -32002, "codes: mcpx, code: 7": 7} {
		url := serve(denial)
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

// What is wrong with arguments, a model is told by a result that it can read, unless
// the operator wants an error or has the server judge them. Where they may be
// coerced, the server gets the arguments that were decided on.
func TestArgumentsOfModels(t *testing.T) {
	var asked, ran record
	pdp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for _, found := range regexp.MustCompile(`"limit":("?\w+"?)`).FindAllSubmatch(body, -1) {
			asked.add(string(found[1]))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"decision":true}`)
	}))
	t.Cleanup(pdp.Close)
	type count struct {
		Limit int  `json:"limit"`
		All   bool `json:"all,omitempty"`
	}
	upstream := sdkServer(t, false, func(s *mcp.Server) {
		mcp.AddTool(s, &mcp.Tool{Name: "count"}, func(_ context.Context, r *mcp.CallToolRequest, in count) (*mcp.CallToolResult, any, error) {
			ran.add(string(r.Params.Arguments))
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(in.Limit)}}}, nil, nil
		})
	})
	const (
		unknown = `told "the tool is not known\nList the tools, and call one of them."`
		more    = `arguments do not fit the input schema: additional properties 'more' not allowed`
		correct = `\nCorrect the arguments, and call the tool again."`
		three   = `told "` + more + `\nAll faults:\n- additional properties 'more' not allowed\n- /limit got string, want integer` + correct
	)
	for _, test := range []struct {
		server     string
		want       []string // of each call
		asked, ran string   // of the first two calls
	}{
		{"", []string{`ran "10"`, `told "arguments/all do not fit the input schema: got string, want boolean\nAll faults:\n- /all got string, want boolean\n- /limit got string, want integer` + correct,
			three, unknown, `told "` + more + correct}, `10`, `{"limit":10}`},
		{"arguments: tell, coerce_arguments: true", []string{`ran "10"`, `ran "10"`, three, unknown, `told "` + more + correct}, `10 10`, `{"limit":10} {"all":true,"limit":10}`},
		{"arguments: enforce", []string{`ran "10"`, `thrown -32602 invalid_arguments …arguments/all do not fit the input schema: got string, want boolean`,
			`thrown -32602 invalid_arguments …` + more, `thrown -32602 unknown_tool …the tool is not known`, `thrown -32602 invalid_arguments …` + more}, `10`, `{"limit":10}`},
		{"arguments: pass", []string{`ran "10"`, `thrown -32602 mapping_error …`, `thrown -32602 mapping_error …`, unknown, `told "validating…`}, `10 10`, `{"limit":10}`},
		{"arguments: pass, coerce_arguments: true", []string{`ran "10"`, `ran "10"`, `thrown -32602 mapping_error …`, unknown, `told "validating…`}, `10 10 10`, `{"limit":10} {"all":true,"limit":10}`},
	} {
		asked.seen, ran.seen = nil, nil
		url := gatewayOf(t, fmt.Sprintf("pdp: {url: %q, timeout: 10s}\nidentity: {local: {type: user, id: alice}}\nservers:\n  - name: desk\n    url: %q\n    tools: {count: {mapping: %q}}\n%s", pdp.URL, upstream,
			`{"evaluation":{"action":{"name":"count"},"resource":{"type":"tool","id":"count","properties":{"limit":"$params.arguments.limit + 0"}}}}`, yamlLines(test.server)))
		got := strings.Split(strings.TrimSpace(typescript(t, "arguments.mjs", url+"/desk/mcp")), "\n")
		for i, want := range append(test.want, test.want...) {
			want := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*") + "$")
			if i >= len(got) || !want.MatchString(got[i]) {
				t.Errorf("%q, call %d: want %s, and all is\n%s", test.server, i, want, strings.Join(got, "\n"))
				break
			}
		}
		if want := test.asked + " " + test.asked; asked.String() != want {
			t.Errorf("%q: the policies decide on %s, want %s", test.server, &asked, want)
		}
		if want := test.ran + " " + test.ran; ran.String() != want {
			t.Errorf("%q: the server gets %s, want %s", test.server, &ran, want)
		}
	}
}

// yamlLines are settings of a server, a line each.
func yamlLines(settings string) (lines string) {
	for setting := range strings.SplitSeq(settings, ", ") {
		if setting != "" {
			lines += "    " + setting + "\n"
		}
	}
	return lines
}

// A record is what was seen, in order.
type record struct {
	mu   sync.Mutex
	seen []string
}

func (r *record) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, what)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.seen, " ")
}

// What is left of a result fits the output schema of its tool, as both TypeScript
// SDKs check it. Where it would not, they get an error in place of the result.
func TestResultsOfSDKs(t *testing.T) {
	upstream := sdkServer(t, false, func(s *mcp.Server) {
		for _, name := range []string{"replaced", "removed", "required"} {
			mcp.AddTool(s, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, profile, error) {
				return nil, profile{Name: "eve", SSN: "123", Card: "4111"}, nil
			})
		}
	})
	obligations := map[string]string{
		"desk:replaced": `{"action":"redact","paths":["/card"],"with":"hidden"}`, "desk:removed": `{"action":"redact","paths":["/ssn"]}`, "desk:required": `{"action":"redact","paths":["/card"]}`,
	}
	pdp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), `"evaluations"`) {
			fmt.Fprint(w, `{"evaluations":[{"decision":true},{"decision":true},{"decision":true}]}`)
			return
		}
		for tool, properties := range obligations {
			if strings.Contains(string(body), tool) {
				fmt.Fprintf(w, `{"decision":true,"context":{"obligations":[{"id":"1","type":"custom","properties":%s}]}}`, properties)
				return
			}
		}
		fmt.Fprint(w, `{"decision":true}`)
	}))
	t.Cleanup(pdp.Close)
	url := gatewayOf(t, fmt.Sprintf("pdp: {url: %q, timeout: 10s}\nidentity: {local: {type: user, id: alice}}\nservers:\n  - {name: desk, url: %q}\n", pdp.URL, upstream)) + "/desk/mcp"
	const want = `KIND replaced: {"card":"hidden","name":"eve","ssn":"123"} {"card":"hidden","name":"eve","ssn":"123"}
KIND removed: {"card":"4111","name":"eve"} {"card":"4111","name":"eve"}
KIND required: -32603 answer_withheld
`
	all := ""
	for _, kind := range []string{"sdk", "client legacy", "client 2026-07-28"} {
		all += strings.ReplaceAll(want, "KIND", kind)
	}
	if got := typescript(t, "results.mjs", url, "replaced", "removed", "required"); got != all {
		t.Errorf("%s\nwant\n%s", got, all)
	}
}
