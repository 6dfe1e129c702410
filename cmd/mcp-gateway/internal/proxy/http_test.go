package proxy_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce/enforcetest"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

const (
	modern = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"greet","arguments":{"name":"bob"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	begin  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`
	legacy = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"greet","arguments":{"name":"bob"}}}`
)

// A message is a POST with the headers that a stateless client sends, but for
// those that header changes: "" removes one.
type post struct {
	as, body string
	header   map[string]string
}

func (g *gateway) send(t *testing.T, p post) (status int, header http.Header, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL, strings.NewReader(p.body))
	if err != nil {
		t.Fatal(err)
	}
	if p.as == "" {
		p.as = "alice"
	}
	r.Header.Set("Authorization", "Bearer "+p.as)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if p.body == modern {
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", "greet")
	}
	for name, value := range p.header {
		r.Header.Set(name, value)
		switch {
		case value == "":
			r.Header.Del(name)
		case name == "Host":
			r.Host = value
		}
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode, response.Header, read(t, response.Body)
}

func read(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// What is wrong with a request is said before anyone is asked, and the server
// never sees it: batches, headers that are not those of the body, names of other
// hosts (CZ-62, CZ-76).
func TestRefusedAtTheDoor(t *testing.T) {
	u := sdkServer(t, eras[0].options)
	g := newGateway(t, u, nil)
	control, _, answer := g.send(t, post{body: modern})
	if control != http.StatusOK || !strings.Contains(answer, "hello bob") {
		t.Fatalf("the control: %d %s", control, answer)
	}
	asked, reached := len(g.pdp.asked), len(u.bodies)
	for _, test := range []struct {
		name   string
		post   post
		status int
		want   string
	}{
		{"another host", post{body: modern, header: map[string]string{"Host": "attacker.example"}}, 403, "not served"},
		{"a page of another origin", post{body: modern, header: map[string]string{"Origin": "https://attacker.example"}}, 403, "not served"},
		{"an origin of nobody", post{body: modern, header: map[string]string{"Origin": "null"}}, 403, "not served"},
		{"no token", post{body: modern, header: map[string]string{"Authorization": ""}}, 401, "no token"},
		{"no type", post{body: modern, header: map[string]string{"Content-Type": ""}}, 415, "-32600"},
		{"another type", post{body: modern, header: map[string]string{"Content-Type": "text/plain"}}, 415, "-32600"},
		{"an encoded body", post{body: modern, header: map[string]string{"Content-Encoding": "gzip"}}, 415, "-32600"},
		{"a batch", post{body: "[" + legacy + "]"}, 400, "-32600"},
		{"no JSON", post{body: "hello"}, 400, "-32700"},
		{"a name twice", post{body: strings.Replace(legacy, `"name":"greet"`, `"name":"rm","name":"greet"`, 1)}, 400, "-32700"},
		{"a name in another case, too", post{body: strings.Replace(legacy, `"name":"greet"`, `"Name":"rm","name":"greet"`, 1)}, 400, "-32600"},
		{"too large", post{body: strings.Replace(legacy, "bob", strings.Repeat("b", 5<<20), 1)}, 413, "-32600"},
		{"another method in the header", post{body: modern, header: map[string]string{"Mcp-Method": "tools/list"}}, 400, "-32020"},
		{"no method in the header", post{body: modern, header: map[string]string{"Mcp-Method": ""}}, 400, "-32020"},
		{"another name in the header", post{body: modern, header: map[string]string{"Mcp-Name": "rm"}}, 400, "-32020"},
		{"no name in the header", post{body: modern, header: map[string]string{"Mcp-Name": ""}}, 400, "-32020"},
		{"a name that is no base64", post{body: modern, header: map[string]string{"Mcp-Name": "=?base64?%%?="}}, 400, "-32020"},
		{"another version in the header", post{body: modern, header: map[string]string{"Mcp-Protocol-Version": "2025-11-25"}}, 400, "-32020"},
		{"no version in the header", post{body: modern, header: map[string]string{"Mcp-Protocol-Version": ""}}, 400, "-32020"},
		{"no version in the body", post{body: legacy, header: map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "greet"}}, 400, "-32602"},
		{"a method that is no more", post{body: strings.Replace(modern, "tools/call", "logging/setLevel", 1), header: map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "logging/setLevel"}}, 404, "-32601"},
		{"a session that nobody has", post{body: legacy, header: map[string]string{"Mcp-Session-Id": "x"}}, 404, "no such session"},
		{"a response of a stateless client", post{body: `{"jsonrpc":"2.0","id":1,"result":{}}`, header: map[string]string{"Mcp-Protocol-Version": "2026-07-28"}}, 400, "-32600"},
		{"a name that is a number", post{body: strings.Replace(legacy, `"greet"`, `1`, 1)}, 400, "-32602"},
		{"arguments that are a list", post{body: strings.Replace(legacy, `{"name":"bob"}`, `[]`, 1)}, 400, "-32602"},
		{"a number that is not exact", post{body: strings.Replace(legacy, `"bob"`, `9007199254740993`, 1)}, 200, "non_interoperable_number"},
		{"a number that is not exact, beside the arguments", post{body: strings.Replace(legacy, `"params":{`, `"params":{"x":1e400,`, 1)}, 200, "non_interoperable_number"},
		{"a method that nobody knows", post{body: strings.Replace(legacy, `tools/call`, `no/such`, 1)}, 200, "unknown_method"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, _, body := g.send(t, test.post)
			if status != test.status || !strings.Contains(body, test.want) {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	if len(g.pdp.asked) != asked || len(u.bodies) != reached {
		t.Errorf("the PDP was asked %d times, the server %d times", len(g.pdp.asked)-asked, len(u.bodies)-reached)
	}
	if status, _, body := g.send(t, post{body: modern, header: map[string]string{"Mcp-Name": "=?base64?Z3JlZXQ=?="}}); status != http.StatusOK {
		t.Errorf("a name in base64: %d %s", status, body)
	}
	if got := u.headers[len(u.headers)-1].Get("Mcp-Name"); got != "greet" {
		t.Errorf("the header was not made anew: %q", got)
	}
}

// A page of an origin that is named may ask whether it may call, call, and read
// the answer; no other.
func TestOrigins(t *testing.T) {
	const app = "https://app.example.com"
	g := newGateway(t, sdkServer(t, eras[0].options), func(c *proxy.Config) { c.Origins = []string{app} })
	for origin, want := range map[string]int{app: http.StatusNoContent, "https://attacker.example": http.StatusForbidden} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, g.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"authorization, mcp-name"}}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if got := response.Header.Get("Access-Control-Allow-Origin"); response.StatusCode != want || (got == origin) != (want == http.StatusNoContent) {
			t.Errorf("%s: %d, %v", origin, response.StatusCode, response.Header)
		}
	}
	if status, header, _ := g.send(t, post{body: modern, header: map[string]string{"Origin": app}}); status != http.StatusOK || header.Get("Access-Control-Allow-Origin") != app {
		t.Errorf("%d, %v", status, header)
	}
	if status, header, _ := g.send(t, post{body: modern}); status != http.StatusOK || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("without an origin: %d, %v", status, header)
	}
}

// A session is good for the caller that began it.
func TestSessionOfAnother(t *testing.T) {
	u := sdkServer(t, nil)
	g := newGateway(t, u, nil)
	_, header, _ := g.send(t, post{body: begin})
	session := header.Get("Mcp-Session-Id")
	if session == "" {
		t.Fatal("there is no session")
	}
	for _, body := range []string{legacy, `{"jsonrpc":"2.0","id":1,"result":{}}`} {
		if status, _, _ := g.send(t, post{as: "mallory", body: body, header: map[string]string{"Mcp-Session-Id": session}}); status != http.StatusNotFound {
			t.Errorf("another may use the session: %d", status)
		}
	}
	if status, _, body := g.send(t, post{body: legacy, header: map[string]string{"Mcp-Session-Id": session}}); status != http.StatusOK || !strings.Contains(body, "hello bob") {
		t.Errorf("the control: %d %s", status, body)
	}
	for _, header := range u.headers {
		if header.Get("Mcp-Session-Id") == session {
			t.Error("the server got the sealed session")
		}
	}
}

// A server that lies is not believed.
func TestLyingServer(t *testing.T) {
	const ok = `{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`
	for _, test := range []struct {
		name, kind, body string
		want             string
		not              string
	}{
		{"the control", "application/json", ok, ok, "-32603"},
		{"the control on a stream", "text/event-stream", "data: " + ok + "\n\n", ok, "-32603"},
		{"lines that end otherwise", "text/event-stream", ":\r\rid: 1\rdata: {\"jsonrpc\":\"2.0\",\r\ndata:\"id\":7,\"result\":{}}\r\r", `"result":{}`, "-32603"},
		{"a response to another", "application/json", strings.Replace(ok, "7", "8", 1), "-32603", "content"},
		{"a response to another on a stream", "text/event-stream", "data: " + strings.Replace(ok, "7", "8", 1) + "\n\n", "-32603", "content"},
		{"an id that is a string", "application/json", strings.Replace(ok, "7", `"7"`, 1), "-32603", "content"},
		{"a result twice", "application/json", strings.Replace(ok, `"result"`, `"result":{"a":1},"result"`, 1), "-32603", "content"},
		{"requests under a name of another case", "application/json", strings.Replace(ok, `"content":[]`, `"InputRequests":{"x":{"method":"elicitation/create","params":{"mode":"url","url":"https://secret.example"}}}`, 1), "-32603", "secret"},
		{"a page under a name of another case", "text/event-stream", "data: " + strings.Replace(ok, `"content":[]`, `"inputRequests":{"x":{"method":"elicitation/create","params":{"mode":"url","Url":"https://secret.example"}}}`, 1) + "\n\n", "-32603", "secret"},
		{"no JSON", "application/json", "secret", "-32603", "secret"},
		{"no JSON in the second event", "text/event-stream", `data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}` + "\n\ndata: secret\n\ndata: " + ok + "\n\n", "-32603", "secret"},
		{"a request, which this era has not", "text/event-stream", `data: {"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"secret":1}}` + "\n\ndata: " + ok + "\n\n", "-32603", "secret"},
		{"a page", "text/html", "secret", "-32603", "secret"},
		{"an event that does not end", "text/event-stream", "data: " + ok + "\n", "-32603", "content"},
		{"nothing", "application/json", "", "-32603", "content"},
		{"too much", "application/json", strings.Replace(ok, "[]", `["secret`+strings.Repeat("x", 1<<20)+`"]`, 1), "-32603", "secret"},
		{"too much on a stream", "text/event-stream", "data: " + strings.Replace(ok, "[]", `["secret`+strings.Repeat("x", 1<<20)+`"]`, 1) + "\n\n", "-32603", "secret"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGateway(t, newUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				w.Header().Set("Set-Cookie", "secret=1")
				w.Header().Set("X-Secret", "1")
				fmt.Fprint(w, test.body)
			})), func(c *proxy.Config) { c.MaxReply = 1 << 20 })
			_, header, body := g.send(t, post{body: modern})
			if !strings.Contains(body, test.want) || strings.Contains(body, test.not) {
				t.Errorf("the client gets %s", body)
			}
			if header.Get("Set-Cookie") != "" || header.Get("X-Secret") != "" {
				t.Errorf("the client gets %v", header)
			}
		})
	}
}

// What a server may not ask never reaches the client, and the server is told so.
func TestMayAsk(t *testing.T) {
	for _, may := range []bool{true, false} {
		denied := make(chan string, 1)
		u := newUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch {
			case strings.Contains(string(body), "initialize"):
				w.Header().Set("Mcp-Session-Id", "s")
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
			case strings.Contains(string(body), `"error"`):
				denied <- r.Header.Get("Mcp-Session-Id") + " " + string(body)
				w.WriteHeader(http.StatusAccepted)
			default:
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, `data: {"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"secret":1}}`+"\n\n")
				_ = http.NewResponseController(w).Flush()
				if !may {
					denied <- <-denied
				}
				fmt.Fprint(w, `data: {"jsonrpc":"2.0","id":7,"result":{"content":[]}}`+"\n\n")
			}
		}))
		g := newGateway(t, u, func(c *proxy.Config) {
			c.FromServer = fromServer{request: func(of *enforce.Call, m *wire.Message) bool {
				return may && m.Method == "sampling/createMessage" && of.Params.Name == "greet"
			}}
		})
		_, header, _ := g.send(t, post{body: begin})
		_, _, body := g.send(t, post{body: legacy, header: map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id")}})
		if strings.Contains(body, "sampling") != may || !strings.Contains(body, "content") {
			t.Errorf("may ask: %v, the client gets %s", may, body)
		}
		if may {
			continue
		}
		if got := <-denied; !strings.HasPrefix(got, `s {"jsonrpc":"2.0","id":"q","error":{"code":-32601`) {
			t.Errorf("the server gets %s", got)
		}
	}
}

// However a server sends a list, nobody gets to see what the filter takes from it.
func TestNoListUnfiltered(t *testing.T) {
	const (
		asks    = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
		all     = `{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"greet"},{"name":"secret"}]}}`
		another = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`
	)
	var packed strings.Builder
	out := gzip.NewWriter(&packed)
	fmt.Fprint(out, all)
	out.Close()
	for _, test := range []struct {
		name, kind, encoding string
		status               int
		body                 string
		shown                bool // what is left of the list is
	}{
		{"the control", "application/json", "", 200, all, true},
		{"the control on a stream", "text/event-stream", "", 200, "data: " + all + "\n\n", true},
		{"behind another message", "text/event-stream", "", 200, "data: " + another + "\n\nevent: message\nid: 2\ndata: " + all + "\n\n", true},
		{"before another message", "text/event-stream", "", 200, "data: " + all + "\n\ndata: " + another + "\n\n", true},
		{"on lines of their own", "text/event-stream", "", 200, "data: " + strings.Replace(all, `,{"name"`, "\ndata: ,{\"name\"", 1) + "\n\n", true},
		{"lines that end otherwise", "text/event-stream", "", 200, "data:" + strings.Replace(all, `,{"name"`, "\rdata:,{\"name\"", 1) + "\r\r", true},
		{"twice", "text/event-stream", "", 200, "data: " + all + "\n\ndata: " + all + "\n\n", true},
		{"an event of another kind", "text/event-stream", "", 200, "event: endpoint\ndata: " + all + "\n\n", true},
		{"behind an event that cannot be read", "text/event-stream", "", 200, "data: {\n\ndata: " + all + "\n\n", false},
		{"an event that does not end", "text/event-stream", "", 200, "data: " + all, false},
		{"a byte order mark", "application/json", "", 200, "\ufeff" + all, false},
		{"a byte order mark on a stream", "text/event-stream", "", 200, "data: \ufeff" + all + "\n\n", false},
		{"another type", "text/plain", "", 200, all, false},
		{"a page", "text/html; charset=utf-8", "", 200, all, false},
		{"no type that can be read", "application/json, text/html", "", 200, all, false},
		{"JSON of another kind", "application/problem+json", "", 200, all, false},
		{"a stream that says it is JSON", "application/json", "", 200, "data: " + all + "\n\n", false},
		{"JSON that says it is a stream", "text/event-stream", "", 200, all, false},
		{"packed", "application/json", "gzip", 200, packed.String(), false},
		{"packed, and not said to be", "application/json", "", 200, packed.String(), false},
		{"a part", "application/json", "", 206, all, true},
		{"a part of a stream", "text/event-stream", "", 206, "data: " + all + "\n\n", false},
		{"an error", "application/json", "", 500, all, true},
		{"an error in text", "text/plain", "", 500, all, false},
		{"nothing there", "application/json", "", 404, all, true},
		{"no list", "application/json", "", 200, strings.Replace(all, "tools", "Tools", 1), false},
		{"two lists", "application/json", "", 200, strings.Replace(all, `"tools"`, `"tools":[],"tools"`, 1), false},
		{"the list of another request", "application/json", "", 200, strings.Replace(all, "7", "8", 1), false},
		{"a batch", "application/json", "", 200, "[" + all + "]", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := newUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				if test.encoding != "" {
					w.Header().Set("Content-Encoding", test.encoding)
				}
				w.WriteHeader(test.status)
				fmt.Fprint(w, test.body)
			}))
			tools, err := catalog.Open(catalog.Config{Path: filepath.Join(t.TempDir(), "catalog.db")})
			if err != nil {
				t.Fatal(err)
			}
			g := newGateway(t, u, func(c *proxy.Config) {
				c.Gate = enforce.New(enforce.Config{
					PDP: enforce.NewPDP(enforce.PDPConfig{URL: newUpstream(t, &pdp{}).URL, Client: client.Config{Timeout: 5 * time.Second}}), Map: plain, Log: c.Log,
					Tools: enforcetest.Tools{Filter: func(ctx context.Context, of *enforce.Call, result jsontext.Value, _ enforce.Ask) (jsontext.Value, error) {
						return tools.Filter(ctx, catalog.List{Server: of.Server, Method: of.Message.Method, Result: result, Question: func(name string, _ jsontext.Value) (*authzen.EvaluationRequest, error) {
							if name == "secret" {
								return nil, errors.New("it cannot be asked about")
							}
							return nil, nil
						}})
					}},
				})
			})
			_, _, body := g.send(t, post{body: asks})
			if strings.Contains(body, "secret") || strings.Contains(body, "greet") != test.shown {
				t.Errorf("the client gets %s", body)
			}
		})
	}
}

// A server's statuses that are about the gateway are not the client's.
func TestStatuses(t *testing.T) {
	for status, want := range map[int]int{400: 400, 404: 404, 405: 405, 401: 502, 403: 502, 307: 502, 500: 500} {
		g := newGateway(t, newUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://"+r.Host+"/elsewhere")
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(status)
		})), nil)
		if got, header, _ := g.send(t, post{body: modern}); got != want || header.Get("Location") != "" || header.Get("Www-Authenticate") != "" {
			t.Errorf("%d becomes %d, %v", status, got, header)
		}
	}
}

// The end of a client's request ends that to the server.
func TestCancellation(t *testing.T) {
	arrived, ended := make(chan struct{}), make(chan struct{})
	g := newGateway(t, newUpstream(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(ended)
	})), nil)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL, strings.NewReader(legacy))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer alice"}, "Content-Type": {"application/json"}, "Accept": {"*/*"}}
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := http.DefaultClient.Do(r); err == nil {
		t.Error("there is an answer")
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the server goes on")
	}
}

// The headers of a session's stream come at once.
func TestHeadersAtOnce(t *testing.T) {
	release := make(chan struct{})
	g := newGateway(t, newUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-release
	})), func(c *proxy.Config) {})
	t.Cleanup(func() { close(release) })
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL, nil)
	r.Header = http.Header{"Authorization": {"Bearer alice"}, "Accept": {"text/event-stream"}}
	begun := time.Now()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if took := time.Since(begun); response.StatusCode != http.StatusOK || took > 5*time.Second {
		t.Errorf("%d after %s", response.StatusCode, took)
	}
}

// Arguments that stand in headers are what the body says, and the server gets
// them so, also where the gateway itself calls (SEP-2243).
func TestMirrors(t *testing.T) {
	tool := &enforce.Tool{Definition: []byte(`{"name":"greet","inputSchema":{"properties":{"name":{"type":"string","x-mcp-header":"Who"}}}}`)}
	u := newUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`)
	}))
	var handler *proxy.Handler
	g := newGateway(t, u, func(c *proxy.Config) {
		decides := newUpstream(t, &pdp{})
		c.Gate = enforce.New(enforce.Config{
			PDP: enforce.NewPDP(enforce.PDPConfig{URL: decides.URL}), Map: plain, Log: c.Log,
			Tools: enforcetest.Tools{Find: func(context.Context, *enforce.Call) (*enforce.Tool, error) { return tool, nil }},
		})
		handler = proxy.New(*c)
	})
	for _, test := range []struct {
		header map[string]string
		status int
	}{
		{map[string]string{"Mcp-Param-Who": "bob", "Mcp-Param-Else": "x"}, 200},
		{map[string]string{"Mcp-Param-Who": "=?base64?Ym9i?="}, 200},
		{map[string]string{"Mcp-Param-Who": "alice"}, 400},
		{map[string]string{"Mcp-Param-Who": "=?base64?%%?="}, 400},
		{nil, 400},
	} {
		reached := len(u.headers)
		status, _, body := g.send(t, post{body: modern, header: test.header})
		if status != test.status || strings.Contains(body, "-32020") != (status == 400) {
			t.Errorf("%v: %d %s", test.header, status, body)
		}
		if status == 400 {
			if len(u.headers) != reached {
				t.Errorf("%v: it reaches the server", test.header)
			}
		} else if got := u.headers[reached].Get("Mcp-Param-Who"); got != "bob" {
			t.Errorf("%v: the server gets %q", test.header, got)
		}
	}
	m, err := wire.Parse([]byte(modern))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handler.Execute(t.Context(), m, &enforce.Caller{}, tool); err != nil {
		t.Error(err)
	}
	if got := u.headers[len(u.headers)-1]; got.Get("Mcp-Param-Who") != "bob" || got.Get("Mcp-Name") != "greet" {
		t.Errorf("the server gets %v", got)
	}
}
