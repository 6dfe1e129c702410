package process_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/process"
)

const variable = "PROCESS_TEST_SERVER"

// TestMain is also the program of the server.
func TestMain(m *testing.M) {
	if os.Getenv(variable) != "" {
		serve()
		return
	}
	os.Exit(m.Run())
}

// serve answers each request with the id of its process: but hang, which has no answer,
// and die. It asks for roots once it is initialized, and logs the answer. It ends a second after its input.
func serve() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var m struct {
			ID     jsontext.Value `json:"id"`
			Method string         `json:"method"`
		}
		switch err := json.Unmarshal(in.Bytes(), &m); {
		case m.Method == "notifications/initialized":
			fmt.Println(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		case string(m.ID) == `"q"`:
			fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":%s}}`+"\n", in.Bytes())
		case err != nil, m.ID == nil, m.Method == "hang":
		case m.Method == "die":
			os.Exit(3)
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"pid":%d}}`+"\n", m.ID, os.Getpid())
		}
	}
	time.Sleep(500 * time.Millisecond)
}

// A pool is one whose processes are counted.
type pool struct {
	*testing.T
	*process.Pool
	started atomic.Int64
}

func newPool(t *testing.T, cfg process.Config) *pool {
	p := &pool{T: t}
	cfg.Server, cfg.Command, cfg.MaxReply, cfg.Log = "cell", []string{os.Args[0]}, 1<<20, slog.New(slog.DiscardHandler)
	cfg.Env = func() []string {
		p.started.Add(1)
		return []string{variable + "=1"}
	}
	p.Pool = process.New(cfg)
	t.Cleanup(p.Close)
	return p
}

// send sends a message of a caller for an answer of a type of content.
func (p *pool) send(caller, session, kind, message string) (*http.Response, error) {
	p.Helper()
	r, err := http.NewRequestWithContext(p.Context(), http.MethodPost, "http://cell.invalid/", strings.NewReader(message))
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("Accept", kind)
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	return p.Transport(process.Owner{Type: "user", ID: caller}).RoundTrip(r)
}

// post sends a message of a caller, and returns the session, and the answer or the error.
func (p *pool) post(caller, session, message string) (_, answer string) {
	p.Helper()
	response, err := p.send(caller, session, "application/json", message)
	if err != nil {
		return "", err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.Fatal(err)
	}
	return response.Header.Get("Mcp-Session-Id"), fmt.Sprintf("%d %s", response.StatusCode, body)
}

// hang makes a call that has no answer before the test ends.
func (p *pool) hang(caller, session string) {
	p.Helper()
	response, err := p.send(caller, session, "text/event-stream", `{"jsonrpc":"2.0","id":2,"method":"hang"}`)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { response.Body.Close() })
}

// begin begins a session of a client that has a capability of this name.
func (p *pool) begin(caller, capability string) (session, answer string) {
	p.Helper()
	return p.post(caller, "", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"experimental":{%q:{}}}}}`, capability))
}

const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`

// A caller whose clients name ever new capabilities does not take the processes of
// others. The process that it used last goes on.
func TestCallerLeavesProcessesToOthers(t *testing.T) {
	p := newPool(t, process.Config{Idle: time.Minute, Max: 8})
	var last string
	for n := range 10 {
		session, answer := p.begin("mallory", fmt.Sprint(n))
		if session == "" {
			t.Fatalf("client %d: %s", n, answer)
		}
		last = session
	}
	if session, answer := p.begin("alice", ""); session == "" {
		t.Errorf("another caller: %s", answer)
	}
	if _, answer := p.post("mallory", last, ping); !strings.HasPrefix(answer, "200 ") {
		t.Errorf("the last session: %s", answer)
	}
}

// A caller whose processes are all in use is refused, and others are not.
func TestCallerWithAllProcessesInUse(t *testing.T) {
	p := newPool(t, process.Config{Idle: time.Minute, Max: 4})
	for n := range 2 {
		session, answer := p.begin("mallory", fmt.Sprint(n))
		if session == "" {
			t.Fatal(answer)
		}
		p.hang("mallory", session)
	}
	want := "all 2 processes of the server that one caller may have are in use"
	if _, answer := p.begin("mallory", "more"); answer != want {
		t.Errorf("%s, want %s", answer, want)
	}
	if session, answer := p.begin("alice", ""); session == "" {
		t.Errorf("another caller: %s", answer)
	}
}

// A process of a caller that starts while the one before ends is used again, and ends
// with the pool.
func TestProcessStartsWhileAnotherEnds(t *testing.T) {
	p := newPool(t, process.Config{Idle: 500 * time.Millisecond, Max: 4})
	if session, answer := p.begin("alice", ""); session == "" {
		t.Fatal(answer)
	}
	time.Sleep(700 * time.Millisecond) // the process has no input now, and is about to end
	session, answer := p.begin("alice", "")
	if session == "" {
		t.Fatal(answer)
	}
	p.hang("alice", session)
	time.Sleep(1500 * time.Millisecond)
	if session, answer := p.begin("alice", ""); session == "" {
		t.Fatal(answer)
	}
	if n := p.started.Load(); n != 2 {
		t.Errorf("%d processes have started, want 2", n)
	}
	closed := make(chan struct{})
	go func() {
		p.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("the pool does not end: it has lost a process")
	}
}

// A pool that drains starts no process, ends what nothing uses at once, and leaves a
// call its process until the call has ended.
func TestDrain(t *testing.T) {
	p := newPool(t, process.Config{Idle: time.Hour, Max: 8})
	unused, _ := p.begin("alice", "")
	used, _ := p.begin("bob", "")
	call, err := p.send("bob", used, "text/event-stream", `{"jsonrpc":"2.0","id":2,"method":"hang"}`)
	if err != nil {
		t.Fatal(err)
	}
	p.Drain()
	p.ends("alice", unused)
	if session, answer := p.begin("carol", ""); session != "" || !strings.Contains(answer, "not served any more") {
		t.Errorf("another caller: %s", answer)
	}
	if _, answer := p.post("bob", used, ping); !strings.HasPrefix(answer, "200 ") {
		t.Errorf("beside a call that runs: %s", answer)
	}
	if err := call.Body.Close(); err != nil {
		t.Fatal(err)
	}
	p.ends("bob", used)
}

// ends waits until a session has ended.
func (p *pool) ends(caller, session string) {
	p.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, answer := p.post(caller, session, ping); strings.HasPrefix(answer, "404 ") {
			return
		}
	}
	p.Errorf("the process of %s does not end", caller)
}

// A caller whose process dies again and again does not keep others from starting theirs.
func TestFailuresOfOneCaller(t *testing.T) {
	p := newPool(t, process.Config{Idle: time.Minute, Max: 4})
	session, answer := p.begin("mallory", "")
	if session == "" {
		t.Fatal(answer)
	}
	_, _ = p.post("mallory", session, `{"jsonrpc":"2.0","id":2,"method":"die"}`)
	if session, answer := p.begin("mallory", ""); session != "" || !strings.Contains(answer, "the server has failed") {
		t.Errorf("the caller whose process has died: %q %s", session, answer)
	}
	if session, answer := p.begin("alice", ""); session == "" {
		t.Errorf("another caller: %s", answer)
	}
}

// The sessions of a caller in a process are bounded: the one that was unused for longest
// ends. Sessions of other callers stay.
func TestSessionsOfCallerAreBounded(t *testing.T) {
	p := newPool(t, process.Config{Idle: time.Minute, Max: 4, Shared: true})
	other, answer := p.begin("alice", "")
	if other == "" {
		t.Fatal(answer)
	}
	first, _ := p.begin("mallory", "")
	second, _ := p.begin("mallory", "")
	_, _ = p.post("mallory", first, ping)
	for range 999 {
		_, _ = p.begin("mallory", "")
	}
	for session, want := range map[string]string{first: "200 ", second: "404 "} {
		if _, answer := p.post("mallory", session, ping); !strings.HasPrefix(answer, want) {
			t.Errorf("%s, want %s", answer, want)
		}
	}
	if _, answer := p.post("alice", other, ping); !strings.HasPrefix(answer, "200 ") {
		t.Errorf("another caller: %s", answer)
	}
}

// A server that asks for something as soon as it is initialized gets an answer, although
// the client opens the stream of its session a little later. It gets an error if there is
// no stream.
func TestRequestBeforeAnyCall(t *testing.T) {
	for name, listens := range map[string]bool{"a stream": true, "no stream": false} {
		p := newPool(t, process.Config{Idle: time.Minute, Max: 4})
		session, answer := p.begin("alice", "")
		if session == "" {
			t.Fatal(answer)
		}
		_, _ = p.post("alice", session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		time.Sleep(map[bool]time.Duration{true: 300 * time.Millisecond, false: 6 * time.Second}[listens])
		stream := p.listen("alice", session)
		if listens {
			if got := next(t, stream); !strings.Contains(got, `"method":"roots/list"`) {
				t.Errorf("%s: %s", name, got)
			}
			_, _ = p.post("alice", session, `{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}`)
		}
		if got := next(t, stream); strings.Contains(got, `"roots":[]`) != listens || strings.Contains(got, "no client can be asked now") == listens {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// listen returns the stream of a session.
func (p *pool) listen(caller, session string) *bufio.Scanner {
	p.Helper()
	r, err := http.NewRequestWithContext(p.Context(), http.MethodGet, "http://cell.invalid/", nil)
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("Mcp-Session-Id", session)
	response, err := p.Transport(process.Owner{Type: "user", ID: caller}).RoundTrip(r)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { response.Body.Close() })
	return bufio.NewScanner(response.Body)
}

// next returns the next message of a stream.
func next(t *testing.T, stream *bufio.Scanner) string {
	t.Helper()
	for stream.Scan() {
		if strings.HasPrefix(stream.Text(), "data: ") {
			return stream.Text()
		}
	}
	t.Fatal(stream.Err())
	return ""
}

// Clients that name versions that nobody knows share a process of a shared server.
func TestSharedProcessOfUnknownVersions(t *testing.T) {
	p := newPool(t, process.Config{Idle: time.Minute, Max: 4, Shared: true})
	for n := range 10 {
		session, answer := p.post("mallory", "", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"version %d","capabilities":{}}}`, n))
		if session == "" {
			t.Fatal(answer)
		}
	}
	if n := p.started.Load(); n != 1 {
		t.Errorf("%d processes have started, want 1", n)
	}
}
