package proxy_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
)

// obliges makes a gateway with a PDP that permits everything with these custom
// obligations.
func obliges(t *testing.T, properties ...string) func(*proxy.Config) {
	t.Helper()
	return obligesWith(t, nil, properties...)
}

// obligesWith is obliges with the labels of callers.
func obligesWith(t *testing.T, kept enforce.Labels, properties ...string) func(*proxy.Config) {
	t.Helper()
	var all []string
	for i, p := range properties {
		all = append(all, fmt.Sprintf(`{"id":"%d","type":"custom","properties":%s}`, i, p))
	}
	decides := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if !strings.Contains(string(body), "tools/call") {
			fmt.Fprint(w, `{"decision":true}`)
			return
		}
		fmt.Fprintf(w, `{"decision":true,"context":{"obligations":[%s]}}`, strings.Join(all, ","))
	}))
	t.Cleanup(decides.Close)
	return func(c *proxy.Config) {
		c.Gate = enforce.New(enforce.Config{
			PDP: enforce.NewPDP(enforce.PDPConfig{URL: decides.URL, Client: client.Config{Timeout: 5 * time.Second}}),
			Map: plain, Obligations: client.Obligations{"custom": enforce.OnResult}, Labels: kept, Log: slog.New(slog.DiscardHandler),
		})
	}
}

const (
	hideLate = `{"action":"redact","paths":["/secret"]}`
	hidden   = `{"structuredContent":{"secret":"hunter2","n":1},"content":[{"type":"text","text":"{\"\\u0073ecret\":\"hunter2\",\"n\":1}"}]}`
)

// Obligations are carried out however the answer comes: as a body, as an event, over
// several lines of one, or as an HTTP error.
func TestResultObligations(t *testing.T) {
	answer := `{"jsonrpc":"2.0","id":7,"result":` + hidden + `}`
	for _, test := range []struct {
		name, kind, body string
		status           int
		want             string
	}{
		{"a body", "application/json", answer, 200, `"structuredContent":{"n":1}`},
		{"an event", "text/event-stream", "data: " + answer + "\n\n", 200, `"structuredContent":{"n":1}`},
		{"an event of several lines", "text/event-stream", "id: 1\ndata: " + strings.NewReplacer(`,"content"`, ",\ndata: \"content\"", `"id":7,`, "\"id\":7,\ndata:").Replace(answer) + "\n\n", 200, `"structuredContent":{"n":1}`},
		{"after another message", "text/event-stream", `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}` + "\n\ndata: " + answer + "\n\n", 200, `"structuredContent":{"n":1}`},
		{"an error", "application/json", `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"hunter2"}}`, 200, "answer_withheld"},
		{"an error of HTTP", "application/json", `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"hunter2"}}`, 400, "answer_withheld"},
		{"a text of HTTP", "text/plain", "no hunter2", 400, "answer_withheld"},
		{"over two events", "text/event-stream", "id: 1\ndata: " + answer[:60] + "\n\nid: 2\ndata: " + answer[60:] + "\n\n", 200, "upstream_unavailable"},
		{"a name in another case", "application/json", strings.Replace(answer, "structuredContent", "StructuredContent", 1), 200, "upstream_unavailable"},
		{"an image", "application/json", `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"image","data":"hunter2","mimeType":"image/png"}]}}`, 200, "answer_withheld"},
		{"a name twice", "application/json", `{"jsonrpc":"2.0","id":7,"result":{"structuredContent":{"secret":"hunter2","secret":1}}}`, 200, "upstream_unavailable"},
	} {
		u := newUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.kind)
			w.WriteHeader(test.status)
			fmt.Fprint(w, test.body)
		}))
		_, _, body := newGateway(t, u, obliges(t, hideLate)).send(t, post{body: legacy})
		if !strings.Contains(body, test.want) || strings.Contains(body, "hunter2") {
			t.Errorf("%s: %s", test.name, body)
		}
	}
}

// A resumed stream keeps the obligations of its call, at another gateway too.
// Obligations that are too large for the id of an event are known to the gateway
// that has the call, and to no other.
func TestResumedResultObligations(t *testing.T) {
	large := `{"action":"redact","paths":["/secret","/` + strings.Repeat("x", 3000) + `"]}`
	for _, test := range []struct{ name, obligation, elsewhere string }{
		{"small", `{"action":"redact","paths":["/secret"]}`, `"structuredContent":{"n":1}`},
		{"large", large, "answer_withheld"},
	} {
		store, u := newEventStore(t)
		store.result = hidden
		g := newGateway(t, u, obliges(t, test.obligation))
		in := interrupted(t, g)
		close(store.release)
		if _, body := resume(t, g.URL, in); !strings.Contains(body, `"structuredContent":{"n":1}`) || strings.Contains(body, "hunter2") {
			t.Errorf("%s: %s", test.name, body)
		}
		if _, body := resume(t, newGateway(t, u, obliges(t)).URL, in); !strings.Contains(body, test.elsewhere) || strings.Contains(body, "hunter2") {
			t.Errorf("%s, at another gateway: %s", test.name, body)
		}
	}
}

// A request of the server comes in the course of the call whose stream it is on, also
// once the stream is resumed. On the stream of a session no call is known.
func TestCourseOfServerRequest(t *testing.T) {
	const asks = `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`
	of := make(chan string, 10)
	observed := func(c *proxy.Config) {
		c.FromServer = fromServer{request: func(call *enforce.Call, m *wire.Message) bool {
			course := m.Method + " for " + call.Caller.Subject.ID + " in " + call.Session
			if call.Message != nil {
				course += " during " + call.Message.Method + " of " + call.Params.Object()
			}
			of <- course
			return true
		}}
	}
	store, u := newEventStore(t)
	store.before = asks
	g := newGateway(t, u, observed)
	in := interrupted(t, g)
	close(store.release)
	if _, body := resume(t, g.URL, in); !strings.Contains(body, "roots/list") {
		t.Error(body)
	}
	if got := <-of; got != "roots/list for alice in s during tools/call of greet" {
		t.Errorf("resumed: %s", got)
	}
	in.Del("Last-Event-Id")
	resume(t, g.URL, in)
	if got := <-of; got != "roots/list for alice in s" {
		t.Errorf("of a session: %s", got)
	}
}
