package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/gateway"
	"github.com/policy-service/policy-service/conformance/docpage"
)

// An upstream is an MCP server that answers with its name. A read of file:///slow waits,
// and its streams carry what is sent to events.
type upstream struct {
	*httptest.Server
	name            string
	begun, finish   chan bool
	events, streams chan string
}

func newUpstream(t *testing.T, name string) *upstream {
	u := &upstream{name: name, begun: make(chan bool, 1), finish: make(chan bool), events: make(chan string), streams: make(chan string, 2)}
	u.Server = httptest.NewServer(u)
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a broken request has no method that follows
	w.Header().Set("Mcp-Session-Id", "session-of-"+u.name)
	if r.Method == http.MethodGet {
		u.stream(w, r)
		return
	}
	var m struct {
		ID     jsontext.Value `json:"id"`
		Method string         `json:"method"`
	}
	if json.Unmarshal(body, &m) != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case m.Method == "initialize":
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{}},"serverInfo":{"name":"s","version":"1"}}}`, m.ID)
		return
	case strings.Contains(string(body), "file:///slow"):
		u.begun <- true
		select {
		case <-u.finish:
		case <-r.Context().Done():
			return
		}
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"contents":[{"uri":"file:///a","text":%q}]}}`, m.ID, u.name)
}

func (u *upstream) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()
	select {
	case u.streams <- u.name:
	case <-r.Context().Done():
		return
	}
	for {
		select {
		case text := <-u.events:
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":%q}}\n\n", text)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// A front is a gateway that reads its configuration again.
type front struct {
	t      *testing.T
	base   string
	config string
	reload chan os.Signal
}

func newFront(t *testing.T, config string) *front {
	decides := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
		fmt.Fprint(w, `{"decision":true}`)
	}))
	t.Cleanup(decides.Close)
	address := docpage.FreeAddress(t)
	common := fmt.Sprintf("listen: %s\nstate: %s\npdp: {url: %q, timeout: 10s}\n", address, t.TempDir(), decides.URL)
	if !strings.Contains(config, "identity:") {
		common += "identity: {local: {type: user, id: alice}}\n"
	}
	f := &front{t: t, base: "http://" + address, config: config, reload: make(chan os.Signal)}
	read := func() (*gateway.Config, error) {
		return gateway.Parse("gateway.yaml", []byte(common+f.config), "", true)
	}
	cfg, err := read()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Reload = &gateway.Reload{Requested: f.reload, Read: read}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Run(ctx, cfg) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	f.await("/livez", http.StatusOK)
	return f
}

// await asks for a page until it has the status.
func (f *front) await(path string, status int) {
	f.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if response, err := http.Get(f.base + path); err == nil {
			response.Body.Close()
			if response.StatusCode == status {
				return
			}
		}
	}
	f.t.Fatalf("%s does not answer %d", path, status)
}

// post sends a message to a server and returns the answer.
func (f *front) post(server, session, body string) *http.Response {
	request, err := http.NewRequest(http.MethodPost, f.base+"/"+server+"/mcp", strings.NewReader(body))
	if err != nil {
		f.t.Error(err)
		return nil
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": session} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		f.t.Error(err)
		return nil
	}
	return response
}

// session begins a session at a server.
func (f *front) session(server string) string {
	response := f.post(server, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	response.Body.Close()
	return response.Header.Get("Mcp-Session-Id")
}

// read reads a resource of a server in a session, and returns the answer.
func (f *front) read(server, session, uri string) string {
	response := f.post(server, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":%q}}`, uri))
	if response == nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Error(err)
	}
	return response.Status + " " + string(text)
}

// listen opens the stream of a session. Its lines that have data are sent, until the
// stream ends.
func (f *front) listen(server, session string) <-chan string {
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.base+"/"+server+"/mcp", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Mcp-Session-Id", session)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	lines := make(chan string, 10)
	go func() {
		defer close(lines)
		defer response.Body.Close()
		for scan := bufio.NewScanner(response.Body); scan.Scan(); {
			if strings.HasPrefix(scan.Text(), "data: {") {
				lines <- scan.Text()
			}
		}
	}()
	return lines
}

// A gateway that reads its configuration again serves the new servers, and the changed
// one at its new place. A call at a server that is gone ends as always, and its stream
// ends at once. The streams of the other servers stay.
func TestReloadOfServersKeepsWhatRuns(t *testing.T) {
	steady, gone, old, moved, added := newUpstream(t, "steady"), newUpstream(t, "gone"), newUpstream(t, "old"), newUpstream(t, "moved"), newUpstream(t, "added")
	server := func(name string, u *upstream) string { return fmt.Sprintf("  - {name: %s, url: %q}\n", name, u.URL) }
	f := newFront(t, "servers:\n"+server("steady", steady)+server("gone", gone)+server("changed", old))

	session, sessionOfGone := f.session("steady"), f.session("gone")
	stays, ends := f.listen("steady", session), f.listen("gone", sessionOfGone)
	for _, u := range []*upstream{steady, gone} {
		<-u.streams
	}
	slow := make(chan string, 1)
	go func() { slow <- f.read("gone", sessionOfGone, "file:///slow") }()
	<-gone.begun
	if got := f.read("changed", f.session("changed"), "file:///a"); !strings.Contains(got, `"old"`) {
		t.Errorf("before: %s", got)
	}

	f.config = "servers:\n" + server("added", added) + server("steady", steady) + server("changed", moved) + "endpoints: [{path: /all/mcp, servers: [steady, added]}]\n"
	f.reload <- os.Interrupt
	f.await("/gone/mcp", http.StatusNotFound)

	if line, open := <-ends; open {
		t.Errorf("the stream of the server that is gone has %s", line)
	}
	for name, want := range map[string]string{"added": `"added"`, "changed": `"moved"`, "steady": `"steady"`} {
		if got := f.read(name, f.session(name), "file:///a"); !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := f.session("all"); got == "" {
		t.Error("the new endpoint over two servers begins no session")
	}
	steady.events <- "still here"
	if line, open := <-stays; !open || !strings.Contains(line, "still here") {
		t.Errorf("the stream of a server that stays has %q, open %v", line, open)
	}
	if got := f.read("steady", session, "file:///a"); !strings.Contains(got, `"steady"`) {
		t.Errorf("in the session of before: %s", got)
	}
	close(gone.finish)
	if got := <-slow; !strings.HasPrefix(got, "200") || !strings.Contains(got, `"gone"`) {
		t.Errorf("the call of before: %s", got)
	}
}
