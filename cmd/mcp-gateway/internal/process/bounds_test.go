package process_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/process"
)

// answersInitialize is the beginning of a server in sh.
const answersInitialize = `read line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}'; `

// A client is one of a server that a pool runs.
type client struct {
	t    *testing.T
	pool *process.Pool
	http.RoundTripper
}

// newClient runs a script of sh as the server.
func newClient(t *testing.T, script string, change ...func(*process.Config)) *client {
	t.Helper()
	cfg := process.Config{
		Server: "s", Command: []string{"sh", "-c", answersInitialize + script}, Env: func() []string { return []string{"PATH=/usr/bin:/bin"} },
		Idle: time.Minute, Max: 1, MaxReply: 1 << 20, Log: slog.New(slog.DiscardHandler),
	}
	for _, to := range change {
		to(&cfg)
	}
	pool := process.New(cfg)
	t.Cleanup(pool.Close)
	return &client{t, pool, pool.Transport(process.Owner{ID: "alice"})}
}

func (c *client) do(ctx context.Context, method, session, message string) (*http.Response, error) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://s.invalid/", strings.NewReader(message))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept", endpoint.TypeEvents)
	if session != "" {
		r.Header.Set(endpoint.HeaderSession, session)
	}
	return c.RoundTrip(r)
}

// send returns the answer to a message.
func (c *client) send(method, session, message string) *http.Response {
	c.t.Helper()
	response, err := c.do(c.t.Context(), method, session, message)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { response.Body.Close() })
	return response
}

// begin begins a session.
func (c *client) begin() string {
	c.t.Helper()
	response := c.send(http.MethodPost, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	session := response.Header.Get(endpoint.HeaderSession)
	if session == "" {
		c.t.Fatal("there is no session")
	}
	return session
}

// The sessions of all callers together are bounded. The stream of one that makes place
// ends.
func TestAllSessionsAreBounded(t *testing.T) {
	c := newClient(t, "cat > /dev/null", func(cfg *process.Config) { cfg.Shared = true })
	const limit = 20
	c.pool.LimitSessions(limit)
	first := c.begin()
	stream := c.send(http.MethodGet, first, "")
	for i := range limit {
		c.RoundTripper = c.pool.Transport(process.Owner{ID: fmt.Sprint("caller ", i)})
		c.begin()
	}
	if n, _, _ := c.pool.Remembered(); n != limit {
		t.Errorf("%d sessions are in memory", n)
	}
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream of a session that made place: %v", err)
	}
	if status := c.send(http.MethodPost, first, `{"jsonrpc":"2.0","method":"notifications/x"}`).StatusCode; status != http.StatusNotFound {
		t.Errorf("a session that made place: %d", status)
	}
}

// A server need not answer calls that are cancelled, or whose clients have gone. They
// fill no memory.
func TestDesertedCallsAreBounded(t *testing.T) {
	c := newClient(t, "cat > /dev/null")
	session := c.begin()
	for i := range 3 * process.MaxDeserted {
		ctx, cancel := context.WithCancel(t.Context())
		response, err := c.do(ctx, http.MethodPost, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t"}}`, i))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		_, _ = io.Copy(io.Discard, response.Body) // until the gateway has noticed
		response.Body.Close()
	}
	if _, calls, _ := c.pool.Remembered(); calls != process.MaxDeserted {
		t.Errorf("%d calls are in memory", calls)
	}
}

// A client need not answer what a server asks. The questions fill no memory.
func TestAskedAreBounded(t *testing.T) {
	c := newClient(t, `i=0; while read line; do i=$((i+1)); echo '{"jsonrpc":"2.0","id":"q'$i'","method":"ping"}'; done`)
	session := c.begin()
	events := bufio.NewReader(c.send(http.MethodPost, session, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`).Body)
	for i := range process.MaxAsked + 100 {
		for line := ""; !strings.HasPrefix(line, "data:"); {
			var err error
			if line, err = events.ReadString('\n'); err != nil {
				t.Fatalf("question %d: %v", i, err)
			}
		}
		c.send(http.MethodPost, session, `{"jsonrpc":"2.0","method":"notifications/x"}`)
	}
	if _, _, asked := c.pool.Remembered(); asked != process.MaxAsked {
		t.Errorf("%d questions are in memory", asked)
	}
}
