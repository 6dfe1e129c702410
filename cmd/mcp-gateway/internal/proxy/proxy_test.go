package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A pdp permits every action but those on the resources that it denies.
type pdp struct {
	mu    sync.Mutex
	deny  map[string]bool
	asked []authzen.EvaluationRequest
}

func (p *pdp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var request authzen.EvaluationRequest
	if err := authzen.Unmarshal(body, &request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, request)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Decision-ID", fmt.Sprintf("entry-%d", len(p.asked)))
	fmt.Fprintf(w, `{"decision":%t}`, !p.deny[request.Resource.ID])
}

// An upstream is a real server, and what reached it.
type upstream struct {
	*httptest.Server
	mu      sync.Mutex
	headers []http.Header
	bodies  []string
}

func newUpstream(t *testing.T, handler http.Handler) *upstream {
	t.Helper()
	u := new(upstream)
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		u.mu.Lock()
		u.headers, u.bodies = append(u.headers, r.Header.Clone()), append(u.bodies, string(body))
		u.mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(u.Close)
	return u
}

type greeting struct {
	Name string `json:"name"`
}

// sdkServer is a server of the Go SDK with tools that greet, count and wait.
func sdkServer(t *testing.T, options *mcp.StreamableHTTPOptions) *upstream {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet"}, func(_ context.Context, _ *mcp.CallToolRequest, in greeting) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello " + in.Name}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "rm"}, func(context.Context, *mcp.CallToolRequest, greeting) (*mcp.CallToolResult, any, error) {
		t.Error("a call that was denied is carried out")
		return nil, nil, errors.New("denied")
	})
	mcp.AddTool(server, &mcp.Tool{Name: "count"}, func(ctx context.Context, r *mcp.CallToolRequest, _ greeting) (*mcp.CallToolResult, any, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)}); err != nil {
				return nil, nil, err
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "three"}}}, nil, nil
	})
	return newUpstream(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options))
}

// A gateway is what stands before an upstream in a test.
type gateway struct {
	*httptest.Server
	pdp *pdp
}

func newGateway(t *testing.T, u *upstream, change func(*proxy.Config)) *gateway {
	t.Helper()
	g := &gateway{pdp: &pdp{deny: map[string]bool{"rm": true}}}
	decides := httptest.NewServer(g.pdp)
	t.Cleanup(decides.Close)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	gate := enforce.New(enforce.Config{
		PDP: enforce.NewPDP(enforce.PDPConfig{URL: decides.URL, Client: client.Config{Timeout: 5 * time.Second}}),
		Map: plain, Log: log,
	})
	g.Server = httptest.NewUnstartedServer(nil)
	cfg := proxy.Config{
		Server: "greeter", URL: u.URL, Gate: gate, Seal: newKey(t), Log: log,
		Header:  map[string]string{"Authorization": "Bearer the-gateways-own"},
		Hosts:   []string{g.Listener.Addr().String()},
		Callers: bearers{},
	}
	if change != nil {
		change(&cfg)
	}
	g.Config.Handler = proxy.New(cfg)
	g.Start()
	t.Cleanup(g.Close)
	return g
}

// plain asks about the method and what it is about.
func plain(c *enforce.Call) (*enforce.Question, error) {
	if c.Message.Method == "ping" || strings.HasPrefix(c.Message.Method, "notifications/") {
		return &enforce.Question{Pass: true}, nil
	}
	if c.Message.Method == "no/such" {
		return nil, enforce.ErrUnknownMethod
	}
	target, _ := c.Params.Target(c.Message.Method)
	if target == "" {
		target = c.Server
	}
	return &enforce.Question{Evaluation: &authzen.EvaluationRequest{
		Subject: c.Caller.Subject, Action: authzen.Action{Name: c.Message.Method}, Resource: authzen.Resource{Type: "tool", ID: target},
	}}, nil
}

// A bearer sends a token, as a client that has one does.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	r.Header.Set("Cookie", "session=secret")
	r.Header.Set("X-User", "root")
	return http.DefaultTransport.RoundTrip(r)
}

func (g *gateway) connect(t *testing.T, version string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options)
	session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: g.URL, HTTPClient: &http.Client{Transport: bearer("alice")}}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

var eras = []struct {
	name    string
	version string
	options *mcp.StreamableHTTPOptions
}{
	{"stateless", "2026-07-28", &mcp.StreamableHTTPOptions{Stateless: true}},
	{"stateless, JSON", "2026-07-28", &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}},
	{"sessions", "2025-11-25", nil},
	{"sessions, JSON", "2025-11-25", &mcp.StreamableHTTPOptions{JSONResponse: true}},
	{"no sessions", "2025-11-25", &mcp.StreamableHTTPOptions{Stateless: true}},
	{"an old client", "2025-03-26", nil},
}

func text(t *testing.T, r *mcp.CallToolResult) string {
	t.Helper()
	if len(r.Content) != 1 {
		t.Fatalf("%+v", r)
	}
	return r.Content[0].(*mcp.TextContent).Text
}

// A client of the Go SDK gets through the gateway what it would get without it,
// and what is denied never reaches the server.
func TestCall(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			u := sdkServer(t, era.options)
			g := newGateway(t, u, nil)
			session := g.connect(t, era.version, nil)
			if got := session.InitializeResult().ProtocolVersion; got != era.version {
				t.Fatalf("the client speaks %s", got)
			}
			tools, err := session.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 3 {
				t.Fatalf("%+v, %v", tools, err)
			}
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "greet", Arguments: greeting{"bob"}})
			if err != nil || text(t, result) != "hello bob" {
				t.Fatalf("%+v, %v", result, err)
			}
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "rm"})
			var refused *jsonrpc.Error
			if !errors.As(err, &refused) || refused.Code != 4030 {
				t.Fatalf("denied: %v", err)
			}
			var data enforce.Data
			if err := json.Unmarshal(refused.Data, &data); err != nil || data.Reason != enforce.ReasonDenied || !strings.HasPrefix(data.EvaluationID, "entry-") {
				t.Errorf("%s, %v", refused.Data, err)
			}
			if last := g.pdp.asked[len(g.pdp.asked)-1]; last.Subject.ID != "alice" || last.Action.Name != "tools/call" || !strings.Contains(string(last.Context), "call_digest") {
				t.Errorf("asked %+v", last)
			}
			u.mu.Lock()
			defer u.mu.Unlock()
			for _, header := range u.headers {
				if header.Get("Authorization") != "Bearer the-gateways-own" || header.Get("Cookie") != "" || header.Get("X-User") != "" {
					t.Errorf("the server got %v", header)
				}
			}
		})
	}
}

// A stream is passed on event by event.
func TestProgress(t *testing.T) {
	for _, era := range eras {
		if era.options != nil && era.options.JSONResponse {
			continue // there is no stream
		}
		t.Run(era.name, func(t *testing.T) {
			g := newGateway(t, sdkServer(t, era.options), nil)
			progress := make(chan float64, 10)
			session := g.connect(t, era.version, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Progress }})
			params := &mcp.CallToolParams{Name: "count", Arguments: greeting{}}
			params.SetProgressToken("p")
			result, err := session.CallTool(t.Context(), params)
			if err != nil || text(t, result) != "three" {
				t.Fatalf("%+v, %v", result, err)
			}
			for want := range 3 {
				if got := <-progress; got != float64(want) {
					t.Errorf("progress %v, want %v", got, want)
				}
			}
		})
	}
}

// newKey returns a key.
func newKey(t *testing.T) *seal.Key {
	t.Helper()
	key, err := seal.New(make([]byte, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// bearers are callers that are named by their tokens.
type bearers struct{}

func (bearers) Identify(r *http.Request) (*enforce.Caller, error) {
	id, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, errors.New("there is no token")
	}
	return &enforce.Caller{Subject: authzen.Subject{Type: "user", ID: id}}, nil
}

func (bearers) Refuse(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusUnauthorized)
}

// fromServer is a [proxy.ServerMessages]. Nil functions allow all.
type fromServer struct {
	notification func(*enforce.Call, *wire.Message) bool
	request      func(of *enforce.Call, m *wire.Message) bool
}

func (f fromServer) AllowsNotification(c *enforce.Call, m *wire.Message) bool {
	return f.notification == nil || f.notification(c, m)
}

func (f fromServer) AllowsRequest(_ context.Context, of *enforce.Call, m *wire.Message) bool {
	return f.request == nil || f.request(of, m)
}
