package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/labels"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
)

// callerLabels are the labels of callers without tenants and sessions.
type callerLabels struct{ *labels.Store }

func newCallerLabels(t *testing.T) callerLabels {
	t.Helper()
	store, err := labels.Open(labels.Config{File: filepath.Join(t.TempDir(), "labels.db"), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return callerLabels{store}
}

func of(c *enforce.Call) labels.Caller {
	return labels.Caller{Type: c.Caller.Subject.Type, ID: c.Caller.Subject.ID}
}

func (l callerLabels) Of(c *enforce.Call) ([]string, error)      { return l.Store.Of(of(c)) }
func (l callerLabels) Add(c *enforce.Call, names []string) error { return l.Store.Add(of(c), names) }

// has reports whether alice has the label secret.
func (l callerLabels) has(t *testing.T) bool {
	t.Helper()
	caller, err := alice(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names, err := l.Of(&enforce.Call{Caller: caller})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ") == "secret"
}

const (
	labelsSecret = `{"action":"label","labels":["secret"]}`
	says         = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hunter2"}}`
	advances     = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"total":2,"message":"hunter2","_meta":{"example.com/note":"hunter2"}}}`
	numbers      = `"params":{"progress":1,"progressToken":1,"total":2}}`
)

// A talker is a server that says something before it answers a call: on the stream of
// the call, and on that of the session.
type talker struct {
	stream  bool          // calls are answered with a stream
	begun   chan struct{} // one for each call
	release chan struct{} // closed when calls are answered
}

func newTalker(t *testing.T, stream bool) (*talker, *upstream) {
	s := &talker{stream: stream, begun: make(chan struct{}, 10), release: make(chan struct{})}
	return s, newUpstream(t, s)
}

func (s *talker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Mcp-Session-Id", "s")
	flush := http.NewResponseController(w).Flush
	switch {
	case strings.Contains(string(body), "initialize"):
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		return
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ":\n\n")
		_ = flush()
		<-s.begun
		fmt.Fprintf(w, "data: %s\n\ndata: %s\n\n", says, advances)
		_ = flush()
		<-r.Context().Done()
		return
	case s.stream:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\ndata: %s\n\n", says, advances)
		_ = flush()
	}
	s.begun <- struct{}{}
	select {
	case <-s.release:
	case <-r.Context().Done():
		return
	}
	if s.stream {
		fmt.Fprintf(w, "data: %s\n\n", late)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, late)
}

// open sends a request that ends with the context, and returns the body of the
// response once it begins.
func open(t *testing.T, ctx context.Context, g *gateway, method, session, body string) *bufio.Reader {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, g.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer alice"}, "Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}, "Mcp-Session-Id": {session}}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return bufio.NewReader(response.Body)
}

// inBackground makes a call whose answer nobody reads, and hands over how it ends.
func inBackground(t *testing.T, ctx context.Context, g *gateway, session string) (ended chan error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL, strings.NewReader(legacy))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer alice"}, "Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}, "Mcp-Session-Id": {session}}
	ended = make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(r)
		if err == nil {
			response.Body.Close()
		}
		ended <- err
	}()
	return ended
}

// nextMessage returns the next line of a stream that has a message.
func nextMessage(t *testing.T, stream *bufio.Reader) string {
	t.Helper()
	for {
		line, err := stream.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "data: {") {
			return line
		}
	}
}

// begunSession returns the id of a session at a gateway.
func begunSession(t *testing.T, g *gateway) string {
	t.Helper()
	_, header, _ := g.send(t, post{body: begin})
	return header.Get("Mcp-Session-Id")
}

// What a server says before its result gives the caller the labels of the result, on
// the stream of the call and on that of the session. So an agent that does not wait for
// the result has them.
func TestLabelsBeforeTheResult(t *testing.T) {
	for name, stream := range map[string]bool{"on the stream of the call": true, "on the stream of the session": false} {
		kept := newCallerLabels(t)
		_, u := newTalker(t, stream)
		g := newGateway(t, u, obligesWith(t, kept, labelsSecret))
		session := begunSession(t, g)
		ctx, leave := context.WithCancel(t.Context())
		if stream {
			if got := nextMessage(t, open(t, ctx, g, http.MethodPost, session, legacy)); !strings.Contains(got, "hunter2") {
				t.Errorf("%s: %s", name, got)
			}
		} else {
			feed := open(t, ctx, g, http.MethodGet, session, "")
			inBackground(t, ctx, g, session)
			if got := nextMessage(t, feed); !strings.Contains(got, "hunter2") {
				t.Errorf("%s: %s", name, got)
			}
		}
		if !kept.has(t) {
			t.Errorf("%s: the caller has no label", name)
		}
		leave()
		u.CloseClientConnections()
	}
}

// A client that leaves a call gets its labels: what the server says later may still
// reach it.
func TestLabelsOfAClientThatLeaves(t *testing.T) {
	kept := newCallerLabels(t)
	server, u := newTalker(t, false)
	g := newGateway(t, u, obligesWith(t, kept, labelsSecret))
	ctx, leave := context.WithCancel(t.Context())
	ended := inBackground(t, ctx, g, begunSession(t, g))
	<-server.begun
	if kept.has(t) {
		t.Error("the caller has a label of a call of which nothing is known")
	}
	leave()
	if err := <-ended; err == nil {
		t.Fatal("the client has an answer")
	}
	for deadline := time.Now().Add(10 * time.Second); !kept.has(t); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the caller has no label")
		}
	}
}

// While parts of a result are to be hidden, the client gets no log messages, and of
// progress only the numbers.
func TestHiddenBeforeTheResult(t *testing.T) {
	for _, obligation := range []string{hideLate, `{"action":"mask","pattern":"hunter."}`} {
		for name, stream := range map[string]bool{"on the stream of the call": true, "on the stream of the session": false} {
			_, u := newTalker(t, stream)
			g := newGateway(t, u, obliges(t, obligation))
			session := begunSession(t, g)
			ctx, leave := context.WithCancel(t.Context())
			var from *bufio.Reader
			if stream {
				from = open(t, ctx, g, http.MethodPost, session, legacy)
			} else {
				from = open(t, ctx, g, http.MethodGet, session, "")
				inBackground(t, ctx, g, session)
			}
			if got := nextMessage(t, from); !strings.Contains(got, numbers) {
				t.Errorf("%s %s: %s", obligation, name, got)
			}
			leave()
			u.CloseClientConnections()
		}
	}
}

// A stream that is resumed at another gateway hides the same, and labels the caller.
func TestResumedBeforeTheResult(t *testing.T) {
	for _, test := range []struct {
		obligation string
		says       string
		want       string
	}{
		{labelsSecret, says, "hunter2"}, {hideLate, says, `"n":1`}, {hideLate, advances, numbers},
	} {
		kept := newCallerLabels(t)
		store, u := newEventStore(t)
		store.result, store.before = hidden, test.says
		in := interrupted(t, newGateway(t, u, obligesWith(t, kept, test.obligation)))
		close(store.release)
		_, body := resume(t, newGateway(t, u, obligesWith(t, kept, test.obligation)).URL, in)
		if !strings.Contains(body, test.want) || test.obligation == hideLate && strings.Contains(body, "hunter2") {
			t.Errorf("%s: %s", test.obligation, body)
		}
		if test.obligation == labelsSecret && !kept.has(t) {
			t.Errorf("%s: the caller has no label", test.obligation)
		}
	}
}

// On standard input and output, the same holds for all that the server says while a
// call is under way.
func TestBeforeTheResultOnStdio(t *testing.T) {
	const script = `read -r call; echo '` + says + `'; echo '` + advances + `'; read -r more; echo '{"jsonrpc":"2.0","id":7,"result":{}}'; exit 0`
	for obligation, want := range map[string]string{labelsSecret: "hunter2", hideLate: numbers} {
		kept := newCallerLabels(t)
		var over proxy.Config
		obligesWith(t, kept, obligation)(&over)
		fromClient, client := io.Pipe()
		toClient, gateway := io.Pipe()
		pipe := proxy.NewPipe(proxy.PipeConfig{
			Server: "desk", In: fromClient, Out: gateway, Log: slog.New(slog.DiscardHandler), Identify: alice, Gate: over.Gate, Command: exec.Command("sh", "-c", script),
		})
		ended := make(chan error, 1)
		go func() { ended <- pipe.Run(t.Context()) }()
		if _, err := fmt.Fprintln(client, legacy); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(toClient).ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Errorf("%s: %s %v", obligation, line, err)
		}
		if obligation == labelsSecret && !kept.has(t) {
			t.Error("the caller has no label")
		}
		go func() { _, _ = io.Copy(io.Discard, toClient) }()
		client.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
