package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
)

// An eventStore is a server with an event store, as the TypeScript SDK is: it
// begins the stream of a call with an empty event, which it replays as {}.
type eventStore struct {
	release chan struct{} // closed when the call is done
	cut     bool          // the server breaks the connection after the first event
	asked   chan string   // Last-Event-ID of each GET
	result  string        // of the call; "" is that of late
	before  string        // message before it, or ""
}

const late = `{"jsonrpc":"2.0","id":7,"result":{"late":1}}`

func (s *eventStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Mcp-Session-Id", "s")
	flush := http.NewResponseController(w).Flush
	switch {
	case strings.Contains(string(body), "initialize"):
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	case r.Method == http.MethodGet:
		s.asked <- r.Header.Get("Last-Event-Id")
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 2\ndata: {}\n\n: keepalive\n\n")
		_ = flush()
		<-s.release
		if s.before != "" {
			fmt.Fprintf(w, "data: %s\n\n", s.before)
		}
		answer := late
		if s.result != "" {
			answer = `{"jsonrpc":"2.0","id":7,"result":` + s.result + `}`
		}
		fmt.Fprintf(w, "event: message\nid: 3\ndata: %s\n\nid: 4\ndata: %s\n\n", answer, strings.Replace(late, "late", "twice", 1))
	default:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 1\nretry: 10\ndata: \n\n")
		_ = flush()
		if s.cut {
			panic(http.ErrAbortHandler)
		}
		select {
		case <-s.release:
		case <-r.Context().Done():
		}
	}
}

func newEventStore(t *testing.T) (*eventStore, *upstream) {
	s := &eventStore{release: make(chan struct{}), asked: make(chan string, 10)}
	return s, newUpstream(t, s)
}

// interrupted begins a session and a call, breaks the connection after the first
// event, and returns the headers to resume with.
func interrupted(t *testing.T, g *gateway) http.Header {
	t.Helper()
	return interruptedCall(t, g, legacy)
}

func interruptedCall(t *testing.T, g *gateway, body string) http.Header {
	t.Helper()
	_, header, _ := g.send(t, post{body: begin})
	in := http.Header{"Authorization": {"Bearer alice"}, "Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}, "Mcp-Session-Id": {header.Get("Mcp-Session-Id")}}
	ctx, cut := context.WithCancel(t.Context())
	defer cut()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = in.Clone()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	id, ok := strings.CutPrefix(strings.TrimSpace(line), "id: ")
	if err != nil || !ok || id == "1" {
		t.Fatalf("the first line: %q, %v", line, err)
	}
	in.Set("Last-Event-Id", id)
	return in
}

// A server that does not answer a GET breaks the connection of the client, which tries
// again. The Go SDK would end the session after any status.
func TestResumeWithoutServer(t *testing.T) {
	_, u := newEventStore(t)
	g := newGateway(t, u, nil)
	in := interrupted(t, g)
	u.CloseClientConnections()
	u.Listener.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = in
	if response, err := http.DefaultClient.Do(r); err == nil {
		response.Body.Close()
		t.Errorf("the client gets %s", response.Status)
	}
}

// resume asks for the rest of a stream.
func resume(t *testing.T, url string, header http.Header) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode, read(t, response.Body)
}

// The response that comes on a resumed stream is that of the call, whose outcome is
// then known. It comes again if the client asks again, and at another gateway with
// the same key, but only once on one stream (SEP-1699).
func TestResumedStream(t *testing.T) {
	store, u := newEventStore(t)
	kept := new(outcomes)
	g := newGateway(t, u, kept.keep(t))
	in := interrupted(t, g)
	close(store.release)
	for again := range 2 {
		status, body := resume(t, g.URL, in)
		if status != http.StatusOK || strings.Count(body, late) != 1 || strings.Contains(body, "twice") || strings.Contains(body, "{}\n") {
			t.Errorf("the stream that goes on: %d %q", status, body)
		}
		if got := <-store.asked; got != "1" {
			t.Errorf("the server is asked for what follows %q", got)
		}
		if again == 0 && kept.take() != enforce.Succeeded {
			t.Error("the outcome is not known")
		}
	}
	restarted := new(outcomes)
	other := newGateway(t, u, restarted.keep(t))
	if status, body := resume(t, other.URL, in); status != http.StatusOK || !strings.Contains(body, late) {
		t.Errorf("at another gateway: %d %q", status, body)
	}
	if got := restarted.take(); got != "entry late "+enforce.Succeeded {
		t.Errorf("the trail of another gateway says %q", got)
	}
}

// Ids of events are good for the caller, the server and the session that they were
// made for. The server never sees one of another.
func TestEventsOfOthers(t *testing.T) {
	store, u := newEventStore(t)
	close(store.release)
	g := newGateway(t, u, nil)
	in := interrupted(t, g)
	_, bob, _ := g.send(t, post{as: "bob", body: begin})
	other := newGateway(t, u, func(c *proxy.Config) { c.Server = "other" })
	_, there, _ := other.send(t, post{body: begin})
	with := func(name, value string) http.Header {
		changed := in.Clone()
		changed.Set(name, value)
		return changed
	}
	foreign := with("Authorization", "Bearer bob")
	foreign.Set("Mcp-Session-Id", bob.Get("Mcp-Session-Id"))
	without := in.Clone()
	without.Del("Mcp-Session-Id")
	for _, test := range []struct {
		name, url string
		header    http.Header
	}{
		{"the server's own id", g.URL, with("Last-Event-Id", "1")},
		{"one that was changed", g.URL, with("Last-Event-Id", strings.ToUpper(in.Get("Last-Event-Id")))},
		{"the id of a session", g.URL, with("Last-Event-Id", in.Get("Mcp-Session-Id"))},
		{"another caller", g.URL, foreign},
		{"another server", other.URL, with("Mcp-Session-Id", there.Get("Mcp-Session-Id"))},
		{"no session", g.URL, without},
	} {
		if status, body := resume(t, test.url, test.header); status != http.StatusBadRequest || body != "there is no such event\n" {
			t.Errorf("%s: %d %q", test.name, status, body)
		}
	}
	if len(store.asked) > 0 {
		t.Errorf("the server was asked for what follows %q", <-store.asked)
	}
	if status, body := resume(t, g.URL, in); status != http.StatusOK || !strings.Contains(body, late) {
		t.Errorf("the control: %d %q", status, body)
	}
	if status, _, _ := g.send(t, post{body: legacy, header: map[string]string{"Mcp-Session-Id": in.Get("Mcp-Session-Id"), "Last-Event-Id": "1", "Accept": "text/event-stream"}}); status != http.StatusOK {
		t.Errorf("a POST with the header: %d", status)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if got := u.headers[len(u.headers)-1].Get("Last-Event-Id"); got != "" {
		t.Errorf("a POST takes %q to the server", got)
	}
}

// A call whose stream nobody resumes in time has an unknown outcome.
func TestResumedTooLate(t *testing.T) {
	_, u := newEventStore(t)
	kept := new(outcomes)
	g := newGateway(t, u, func(c *proxy.Config) {
		kept.keep(t)(c)
		c.Resume = 50 * time.Millisecond
	})
	interrupted(t, g)
	select {
	case how := <-kept.ended:
		if how != enforce.Unknown {
			t.Errorf("the trail says %q", how)
		}
	case <-time.After(10 * time.Second):
		t.Error("the call does not end")
	}
}

// A stream that breaks off on the way from the server goes on where it was, and its
// client notices nothing.
func TestServerConnectionCut(t *testing.T) {
	store, u := newEventStore(t)
	store.cut = true
	close(store.release)
	kept := new(outcomes)
	g := newGateway(t, u, kept.keep(t))
	_, header, _ := g.send(t, post{body: begin})
	_, _, body := g.send(t, post{body: legacy, header: map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id")}})
	if strings.Count(body, late) != 1 || strings.Contains(body, "-32603") || kept.take() != enforce.Succeeded {
		t.Errorf("the client gets %q", body)
	}
}

// A resumed stream tells of an answer that is too large, too.
func TestResumedTooLarge(t *testing.T) {
	store, u := newEventStore(t)
	kept := new(outcomes)
	g := newGateway(t, u, func(c *proxy.Config) {
		kept.keep(t)(c)
		c.MaxReply = int64(len(late)) - 1
	})
	in := interrupted(t, g)
	close(store.release)
	if _, body := resume(t, g.URL, in); !strings.Contains(body, `"id":7,"error"`) || !strings.Contains(body, "answer_withheld") || kept.take() != enforce.Succeeded {
		t.Errorf("the client gets %q", body)
	}
}

// A call that is too large to be kept has an unknown outcome. Its client gets the
// response all the same.
func TestResumedLargeCall(t *testing.T) {
	store, u := newEventStore(t)
	kept := new(outcomes)
	g := newGateway(t, u, kept.keep(t))
	in := interruptedCall(t, g, strings.Replace(legacy, "bob", strings.Repeat("b", 65<<10), 1))
	if how := <-kept.ended; how != enforce.Unknown {
		t.Errorf("the trail says %q", how)
	}
	close(store.release)
	if status, body := resume(t, g.URL, in); status != http.StatusOK || !strings.Contains(body, late) {
		t.Errorf("%d %q", status, body)
	}
}

// Many clients resume at once, each its own call.
func TestResumedAtOnce(t *testing.T) {
	store, u := newEventStore(t)
	g := newGateway(t, u, nil)
	var clients sync.WaitGroup
	for range 20 {
		in := interrupted(t, g)
		clients.Go(func() {
			if status, body := resume(t, g.URL, in); status != http.StatusOK || strings.Count(body, late) != 1 {
				t.Errorf("%d %q", status, body)
			}
		})
	}
	for range 20 {
		<-store.asked
	}
	close(store.release)
	clients.Wait()
}
