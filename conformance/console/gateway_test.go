package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/conformance/process"
)

// gatewayStore lets everybody do everything, but a person approves pushes. Requesters read the comments of
// denials.
var gatewayStore = fstest.MapFS{
	"policies.cedar": {Data: []byte(`
@id("all") permit (principal, action, resource);
@id("person") @requestable("push") forbid (principal, action == Action::"tools/call", resource is tool)
unless { context has approval && context.approval.template == "push" };
`)},
	"config.yaml": {Data: []byte("approval_templates: {push: {tell_comment: true}}\n")},
}

// A host is a program with the official SDK that calls a tool through the gateway, for alice.
type host struct {
	*mcp.ClientSession
	pages chan string // that the host is to show to alice
	ran   chan string // arguments with which the tool ran
}

// newHost starts the gateway before a server with one tool, and connects to it.
func (c *campus) newHost() *host {
	c.test.Helper()
	h := &host{pages: make(chan string, 1), ran: make(chan string, 1)}
	server := mcp.NewServer(&mcp.Implementation{Name: "git", Version: "1"}, nil)
	type push struct {
		Branch string `json:"branch"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "push"}, func(_ context.Context, _ *mcp.CallToolRequest, in push) (*mcp.CallToolResult, any, error) {
		h.ran <- in.Branch
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "pushed to " + in.Branch}}}, nil, nil
	})
	upstream := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	c.test.Cleanup(upstream.Close)
	client := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			h.pages <- r.Params.URL
			return &mcp.ElicitResult{Action: "accept"}, nil
		},
	})
	session, err := client.Connect(c.test.Context(), &mcp.StreamableClientTransport{Endpoint: c.gateway(upstream.URL) + "/git/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		c.test.Fatal(err)
	}
	c.test.Cleanup(func() { session.Close() })
	h.ClientSession = session
	return h
}

// gateway starts the gateway before a server, and returns its URL.
func (c *campus) gateway(upstream string) string {
	c.test.Helper()
	program, err := process.Gateway()
	if err != nil {
		c.test.Fatal(err)
	}
	dir := c.test.TempDir()
	config := filepath.Join(dir, "gateway.yaml")
	text := fmt.Sprintf(`listen: 127.0.0.1:0
state: %s
pdp: {url: %q, timeout: 10s}
approval: {hold: 1m, page: "%s/requests/{task}"}
identity: {local: {type: user, id: alice}}
servers:
  - {name: git, url: %q}
`, filepath.Join(dir, "state"), c.URL, c.console, upstream)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		c.test.Fatal(err)
	}
	return process.Launch(c.test, exec.Command(program, "serve", "--config", config)).URL
}

// push calls the tool, and returns what the call answers when it does.
func (h *host) push(ctx context.Context, branch string) <-chan called {
	answer := make(chan called, 1)
	go func() {
		result, err := h.CallTool(ctx, &mcp.CallToolParams{Name: "push", Arguments: map[string]any{"branch": branch}})
		answer <- called{result, err}
	}()
	return answer
}

// A called is the answer to a call.
type called struct {
	result *mcp.CallToolResult
	err    error
}

// soon returns what comes from a channel.
func soon[T any](t testing.TB, what string, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(process.Patience):
		t.Fatalf("not after %v: %s", process.Patience, what)
	}
	return value
}

// A call through the gateway waits for a person. The page that its host gets leads carol to sign in on her phone,
// and then to the call. After her approval the call goes on, and the log has what she saw and how she proved
// who she is.
func TestAcceptance03TheCallGoesOn(t *testing.T) {
	c := newCampusOn(t, gatewayStore)
	h := c.newHost()
	answer := h.push(t.Context(), "release")
	page := soon(t, "the host gets a page", h.pages)
	b := open(t, c.console, look{})
	b.visit(page)
	b.sees("Sign in at the provider")
	b.click("u-carol")
	b.sees("alice wants to run git:push", "release")
	b.narrow()
	b.one("Deny", "button")
	task := page[strings.LastIndex(page, "/")+1:]
	digest := c.read(task).Sheet
	digits := digest[len("sha256:"):][:8]
	b.sees(digits[:4] + " " + digits[4:])
	if len(answer) > 0 || len(h.ran) > 0 {
		t.Error("the call does not wait")
	}
	b.fill("Comment, for the requester and the log", "for the release")
	b.approve("u-carol")
	b.sees("You approved this", "for the release")
	if got := soon(t, "the call goes on", answer); got.err != nil || got.result.IsError || got.result.Content[0].(*mcp.TextContent).Text != "pushed to release" {
		t.Errorf("the call answers %+v", got)
	}
	vote := c.vote(task)
	if vote.Event != "approve" || vote.Sheet != digest || vote.Comment != "for the release" || vote.Authn.Method != "oidc" || vote.Authn.Subject != "u-carol" || !vote.Authn.Bound {
		t.Errorf("the log has %+v", vote)
	}
	if shown := c.command("approvals", "show", task); !strings.Contains(shown, digits[:4]+" "+digits[4:]) {
		t.Errorf("approvals show does not have %s:\n%s", digits, shown)
	}
}

// A denial needs no new sign-in. The call ends, and its host reads the comment.
func TestAcceptance04TheClientReadsWhy(t *testing.T) {
	c := newCampusOn(t, gatewayStore)
	h := c.newHost()
	answer := h.push(t.Context(), "release")
	page := soon(t, "the host gets a page", h.pages)
	b := open(t, c.console, look{})
	b.visit(page)
	b.click("u-carol")
	b.fill("Comment, for the requester and the log", "not on a Friday")
	b.decide("Deny")
	b.sees("You denied this", "not on a Friday")
	if asked := c.provider.Asked(); len(asked) != 1 {
		t.Errorf("the provider was asked %d times", len(asked))
	}
	var refused *jsonrpc.Error
	var data struct {
		Reason  string `json:"reason_code"`
		Comment string `json:"comment"`
	}
	got := soon(t, "the call ends", answer)
	if !errors.As(got.err, &refused) || json.Unmarshal(refused.Data, &data) != nil || data.Reason != "approval_refused" || data.Comment != "not on a Friday" || len(h.ran) > 0 {
		t.Errorf("the call answers %+v, %+v; it ran %d times", got, data, len(h.ran))
	}
	if vote := c.vote(page[strings.LastIndex(page, "/")+1:]); vote.Event != "deny" || vote.Comment != "not on a Friday" || vote.Authn.Bound {
		t.Errorf("the log has %+v", vote)
	}
}

// A votedEntry is what the log has of a vote.
type votedEntry struct {
	Event   string `json:"event"`
	Task    string `json:"task"`
	Sheet   string `json:"sheet"`
	Comment string `json:"comment"`
	Authn   struct {
		Method  string `json:"method"`
		Subject string `json:"sub"`
		Bound   bool   `json:"bound"`
	} `json:"authn"`
}

// vote returns the only vote on a request, as the command line finds it in the log.
func (o *office) vote(task string) (vote votedEntry) {
	o.test.Helper()
	for line := range strings.Lines(o.command("log", "query", "--kind", "approval", "--json")) {
		var entry struct {
			Request votedEntry `json:"request"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			o.test.Fatalf("%s: %v", line, err)
		}
		if entry.Request.Task != task || entry.Request.Sheet == "" {
			continue
		}
		if vote.Task != "" {
			o.test.Errorf("a second vote: %s", line)
		}
		vote = entry.Request
	}
	return vote
}
