package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce/enforcetest"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// HTTP errors as the SDKs write them: TypeScript 1.32.2, Go 1.8.0, and Python
// before it had the id null.
const (
	lostTypeScript = `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`
	lostPython     = `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`
	lostGo         = "session not found\n"
)

// HTTP errors of a server reach the client with their status and reason, and with
// the id of its request, whatever id the server wrote.
func TestStatusErrors(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":7,"error":`
	for _, test := range []struct {
		name, kind string
		status     int
		body       string
		want       string // exact
		outcome    string
	}{
		{"a lost session, TypeScript", "application/json", 404, lostTypeScript, call + `{"code":-32001,"message":"Session not found"}}`, enforce.Failed},
		{"a lost session, Python", "application/json", 404, lostPython, call + `{"code":-32600,"message":"Session not found"}}`, enforce.Failed},
		{"a lost session, Go", "text/plain; charset=utf-8", 404, lostGo, call + `{"code":-32603,"message":"session not found","data":{"reason_code":"upstream_unavailable"}}}`, enforce.Failed},
		{"another version", "application/json", 400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Unsupported protocol version: 1999-01-01 (supported versions: 2025-11-25)"},"id":null}`,
			call + `{"code":-32000,"message":"Bad Request: Unsupported protocol version: 1999-01-01 (supported versions: 2025-11-25)"}}`, enforce.Failed},
		{"another type", "application/json", 406, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Not Acceptable: Client must accept both application/json and text/event-stream"},"id":null}`,
			call + `{"code":-32000,"message":"Not Acceptable: Client must accept both application/json and text/event-stream"}}`, enforce.Failed},
		{"a conflict", "application/json", 409, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Conflict"},"id":8}`, call + `{"code":-32000,"message":"Conflict"}}`, enforce.Failed},
		{"a path of no endpoint", "application/json", 404, `{"detail":"Not Found"}`, call + `{"code":-32603,"message":"the server answered 404 Not Found","data":{"reason_code":"upstream_unavailable"}}}`, enforce.Failed},
		{"a page", "text/html", 404, "<html>secret", call + `{"code":-32603,"message":"the server answered 404 Not Found","data":{"reason_code":"upstream_unavailable"}}}`, enforce.Failed},
		{"lines of text", "text/plain", 400, "one\ntwo", call + `{"code":-32603,"message":"one","data":{"reason_code":"upstream_unavailable"}}}`, enforce.Failed},
		{"long text", "text/plain", 400, strings.Repeat("x", 1<<20), call + `{"code":-32603,"message":"` + strings.Repeat("x", 199) + `…","data":{"reason_code":"upstream_unavailable"}}}`, enforce.Failed},
		{"a proxy before the server", "text/html", 503, "<html>secret", call + `{"code":-32603,"message":"the server answered 503 Service Unavailable","data":{"reason_code":"upstream_unavailable"}}}`, enforce.Unknown},
		{"the gateway's credential", "application/json", 401, lostTypeScript, call + `{"code":-32603,"message":"the server did not answer","data":{"reason_code":"upstream_unavailable"}}}`, enforce.Unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			kept := new(outcomes)
			g := newGateway(t, newUpstream(t, answering(test.status, test.kind, test.body)), kept.keep(t))
			status, _, body := g.send(t, post{body: legacy})
			if want := test.status; test.status != 401 && status != want || test.status == 401 && status != 502 {
				t.Errorf("status %d", status)
			}
			if body != test.want {
				t.Errorf("the client gets %s", body)
			}
			if got := kept.take(); got != test.outcome {
				t.Errorf("the trail says %q, want %q", got, test.outcome)
			}
		})
	}
}

// A notification, and a response of the client, learn of a lost session, too. No
// id in the answer may be taken for that of a request of the client.
func TestStatusErrorOfNotification(t *testing.T) {
	g := newGateway(t, newUpstream(t, answering(404, "application/json", lostTypeScript)), nil)
	for _, body := range []string{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":7,"result":{}}`} {
		if status, _, got := g.send(t, post{body: body}); status != http.StatusNotFound || !strings.Contains(got, `"id":null`) {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
}

// A server accepts a notification, and a response of the client, with any body and
// type: the Python SDK with the type of JSON and nothing in it.
func TestAccepted(t *testing.T) {
	for _, test := range []struct{ kind, body string }{{"application/json", ""}, {"application/json", "null"}, {"text/plain", "ok"}, {"text/event-stream", ""}, {"", ""}} {
		g := newGateway(t, newUpstream(t, answering(202, test.kind, test.body)), nil)
		for _, body := range []string{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":7,"result":{}}`} {
			if status, _, got := g.send(t, post{body: body}); status != http.StatusAccepted || got != "" {
				t.Errorf("%s of %q %q: %d %s", body, test.kind, test.body, status, got)
			}
		}
	}
}

// A list that the gateway asks for in a lost session is refused as the call would
// be: with 404, and without the id of the call, which says to every SDK that the
// session is lost.
func TestListInLostSession(t *testing.T) {
	for _, test := range []struct{ kind, body string }{{"application/json", lostTypeScript}, {"application/json", lostPython}, {"text/plain", lostGo}} {
		u := newUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "initialize") {
				w.Header().Set("Mcp-Session-Id", "s")
				answering(200, "application/json", `{"jsonrpc":"2.0","id":1,"result":{}}`)(w, r)
				return
			}
			answering(404, test.kind, test.body)(w, r)
		}))
		g := newGateway(t, u, func(c *proxy.Config) {
			c.Gate = enforce.New(enforce.Config{
				PDP: enforce.NewPDP(enforce.PDPConfig{URL: newUpstream(t, &pdp{}).URL}), Map: plain, Log: c.Log,
				Tools: enforcetest.Tools{Find: func(ctx context.Context, c *enforce.Call) (*enforce.Tool, error) {
					_, err := c.Upstream(ctx, &wire.Message{ID: []byte(`"gw-list"`), Method: wire.MethodToolsList})
					return nil, fmt.Errorf("list: %w", err)
				}},
			})
		})
		_, header, _ := g.send(t, post{body: begin})
		status, _, body := g.send(t, post{body: legacy, header: map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id")}})
		if status != http.StatusNotFound || !strings.Contains(body, `"id":null`) || !strings.Contains(strings.ToLower(body), "session not found") {
			t.Errorf("%s: %d %s", test.body, status, body)
		}
	}
}

// A server that refuses the version of a list refuses that of the call: the client
// learns which versions there are.
func TestListInUnsupportedVersion(t *testing.T) {
	const refused = `{"code":-32022,"message":"unsupported","data":{"supported":["2025-11-25","2025-06-18"],"requested":"2026-07-28"}}`
	u := newUpstream(t, answering(400, "application/json", `{"jsonrpc":"2.0","id":"gw-list","error":`+refused+`}`))
	g := newGateway(t, u, func(c *proxy.Config) {
		c.Gate = enforce.New(enforce.Config{
			PDP: enforce.NewPDP(enforce.PDPConfig{URL: newUpstream(t, &pdp{}).URL}), Map: plain, Log: c.Log,
			Tools: enforcetest.Tools{Find: func(ctx context.Context, c *enforce.Call) (*enforce.Tool, error) {
				_, err := c.Upstream(ctx, &wire.Message{ID: []byte(`"gw-list"`), Method: wire.MethodToolsList})
				return nil, fmt.Errorf("list: %w", err)
			}},
		})
	})
	status, _, body := g.send(t, post{body: modern})
	const want = `{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"unsupported","data":{"reason_code":"upstream_unavailable","supported":["2025-11-25","2025-06-18"],"requested":"2026-07-28"}}}`
	if status != http.StatusBadRequest || body != want {
		t.Errorf("%d %s", status, body)
	}
}

// A call in a lost session is answered with 404 and without its id. A client of the
// Go SDK takes an error with an id for one of that call alone.
func TestCallInLostSession(t *testing.T) {
	for _, test := range []struct{ kind, body string }{
		{"application/json", lostTypeScript}, {"application/json", lostPython}, {"text/plain", lostGo}, {"text/html", "<html>"},
		{"application/json", `{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"Session not found"}}`},
	} {
		g := newGateway(t, newUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "initialize") {
				w.Header().Set("Mcp-Session-Id", "s")
				answering(200, "application/json", `{"jsonrpc":"2.0","id":1,"result":{}}`)(w, r)
				return
			}
			answering(404, test.kind, test.body)(w, r)
		})), nil)
		_, header, _ := g.send(t, post{body: begin})
		for _, session := range []string{header.Get("Mcp-Session-Id"), "nobody's"} {
			status, _, body := g.send(t, post{body: legacy, header: map[string]string{"Mcp-Session-Id": session}})
			if m, _ := jsonrpc.DecodeMessage([]byte(body)); status != http.StatusNotFound || m != nil || !strings.Contains(body, `"message":`) {
				t.Errorf("%s in session %q: %d %s", test.body, session, status, body)
			}
		}
	}
}

// A call that the gateway carries out itself has an HTTP error of the server as its
// answer: it is known not to have been carried out.
func TestExecuteStatusError(t *testing.T) {
	for _, status := range []int{400, 404} {
		u := newUpstream(t, answering(status, "application/json", lostTypeScript))
		var handler *proxy.Handler
		newGateway(t, u, func(c *proxy.Config) { handler = proxy.New(*c) })
		m, err := wire.Parse([]byte(modern))
		if err != nil {
			t.Fatal(err)
		}
		response, err := handler.Execute(t.Context(), m, &enforce.Caller{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(response.Encode()); got != `{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found","data":{"reason_code":"upstream_unavailable"}}}` {
			t.Errorf("%d: %s", status, got)
		}
	}
}

// answering is a server with one answer.
func answering(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// outcomes is a trail that knows how the last call of a tool ended.
type outcomes struct {
	enforce.NopTrail
	ended chan string
}

func (o *outcomes) Begin(e *enforce.Entry) (string, func(string), error) {
	if e.Call.Message.Method != wire.MethodToolsCall {
		return o.NopTrail.Begin(e)
	}
	return "entry", func(how string) { o.ended <- how }, nil
}

func (o *outcomes) EndLate(id string, _ *enforce.Call, how string) { o.ended <- id + " late " + how }

// keep makes it the trail of a gateway.
func (o *outcomes) keep(t *testing.T) func(*proxy.Config) {
	o.ended = make(chan string, 10)
	return func(c *proxy.Config) {
		c.Gate = enforce.New(enforce.Config{PDP: enforce.NewPDP(enforce.PDPConfig{URL: newUpstream(t, &pdp{}).URL}), Map: plain, Log: c.Log, Trail: o})
	}
}

// take returns how the last call ended, or "" if none has.
func (o *outcomes) take() string {
	select {
	case how := <-o.ended:
		return how
	default:
		return ""
	}
}
