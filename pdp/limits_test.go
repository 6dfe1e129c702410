package pdp_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A crowd sends requests to a service that processes one at a time.
type crowd struct {
	t       *testing.T
	serve   echo.HandlerFunc
	release chan struct{} // each value ends one request
	clients sync.WaitGroup

	mu    sync.Mutex
	order []string // order in which requests are processed or rejected
}

func newCrowd(t *testing.T, queue int) *crowd {
	c := &crowd{t: t, release: make(chan struct{})}
	c.serve = pdp.NewInFlight(pdp.Limits{InFlight: 1, Queue: queue, Wait: time.Second})(func(e echo.Context) error {
		c.note(e.Request().Header.Get("X-Request-ID"))
		<-c.release
		return nil
	})
	return c
}

func (c *crowd) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order = append(c.order, what)
}

// ask sends requests of a tenant, one after the other.
func (c *crowd) ask(tenant string, names ...string) {
	for _, name := range names {
		c.clients.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("X-Request-ID", name)
			e := echo.New().NewContext(r, httptest.NewRecorder())
			e.SetParamNames("tenant")
			e.SetParamValues(tenant)
			switch err := c.serve(e); {
			case errors.Is(err, pdp.ErrOverload):
				c.note("not " + name)
			case err != nil:
				c.t.Error(err)
			}
		})
		synctest.Wait()
	}
}

// finish lets n requests finish, one after the other.
func (c *crowd) finish(n int) {
	for range n {
		c.release <- struct{}{}
		synctest.Wait()
	}
}

// Requests beyond capacity are rejected, and the wait of others is limited.
func TestOverload(t *testing.T) {
	for _, test := range []struct {
		name  string
		queue int
		act   func(c *crowd)
		want  string
	}{
		{"a burst, in the order of its coming", 3, func(c *crowd) {
			c.ask("a", "1", "2", "3", "4")
			c.finish(4)
		}, "1, 2, 3, 4"},
		{"no room: the newest is worth more than the oldest", 1, func(c *crowd) {
			c.ask("a", "1", "2", "3")
			c.finish(2)
		}, "1, not 2, 3"},
		{"too long", 1, func(c *crowd) {
			c.ask("a", "1", "2")
			time.Sleep(2 * time.Second)
			c.ask("a", "3")
			c.finish(2)
		}, "1, not 2, 3"},
		{"overload: the newest first", 5, func(c *crowd) {
			c.ask("a", "1", "2")
			time.Sleep(200 * time.Millisecond)
			c.ask("a", "3", "4", "5")
			c.finish(3)
			time.Sleep(time.Second)
			c.finish(1)
		}, "1, 5, 4, 3, not 2"},
		{"a noisy tenant makes room", 4, func(c *crowd) {
			c.ask("noisy", "1", "2", "3", "4", "5")
			c.ask("quiet", "q")
			c.ask("noisy", "6")
			c.finish(5)
		}, "1, not 2, not 3, 4, q, 5, 6"},
		{"in one line with a noisy one: the control", 4, func(c *crowd) {
			c.ask("one", "1", "2", "3", "4", "5", "q", "6")
			c.finish(5)
		}, "1, not 2, not 3, 4, 5, q, 6"},
		{"tenants take turns", 6, func(c *crowd) {
			c.ask("noisy", "1", "2", "3", "4")
			c.ask("quiet", "q1", "q2")
			c.finish(6)
		}, "1, 2, q1, 3, q2, 4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, test.queue)
				test.act(c)
				c.clients.Wait()
				if got := strings.Join(c.order, ", "); got != test.want {
					t.Errorf("%s; want %s", got, test.want)
				}
			})
		})
	}
}

// A request whose client has disconnected leaves the queue and delays no other.
func TestCanceledRequestsLeaveTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 2)
		c.ask("a", "1")
		ctx, cancel := context.WithCancel(t.Context())
		c.clients.Go(func() {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
			if err := c.serve(echo.New().NewContext(r, httptest.NewRecorder())); !errors.Is(err, pdp.ErrOverload) {
				t.Error(err)
			}
		})
		c.ask("a", "2")
		cancel()
		synctest.Wait()
		c.finish(2)
		c.clients.Wait()
		if got := strings.Join(c.order, ", "); got != "1, 2" {
			t.Error(got)
		}
	})
}

// A late decision is not sent, also if the method ignores its context. The control calls the method
// without a deadline.
func TestDeadline(t *testing.T) {
	yes := &authzen.Decision{Decision: true}
	for _, test := range []struct {
		name string
		call func(context.Context, *authzen.EvaluationRequest) (*authzen.Decision, error)
		want error
	}{
		{"in time", func(context.Context, *authzen.EvaluationRequest) (*authzen.Decision, error) {
			time.Sleep(time.Second)
			return yes, nil
		}, nil},
		{"late, and allows", func(context.Context, *authzen.EvaluationRequest) (*authzen.Decision, error) {
			time.Sleep(3 * time.Second)
			return yes, nil
		}, pdp.ErrDeadline},
		{"late, and gives up", func(ctx context.Context, _ *authzen.EvaluationRequest) (*authzen.Decision, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, pdp.ErrDeadline},
		{"fails in time", func(context.Context, *authzen.EvaluationRequest) (*authzen.Decision, error) {
			return nil, fs.ErrNotExist
		}, fs.ErrNotExist},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := pdp.Within(2*time.Second, test.call)(t.Context(), nil)
				if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) || (got == yes) != (test.want == nil) {
					t.Errorf("%v, %v; want %v", got, err, test.want)
				}
			})
			if test.name == "late, and allows" {
				synctest.Test(t, func(t *testing.T) {
					if got, err := test.call(t.Context(), nil); got != yes || err != nil {
						t.Errorf("by itself: %v, %v", got, err)
					}
				})
			}
		})
	}
}

// Requests in sequence have separate deadlines, and the values of their own contexts.
func TestDeadlinesApart(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		const after = 2 * time.Second
		var left time.Duration
		var value any
		ask := pdp.Within(after, func(ctx context.Context, _ *authzen.EvaluationRequest) (*authzen.Decision, error) {
			until, _ := ctx.Deadline()
			left, value = time.Until(until), ctx.Value(key{})
			return nil, nil
		})
		for n := range 1000 {
			if _, err := ask(context.WithValue(t.Context(), key{}, n), nil); err != nil {
				t.Fatal(err)
			}
			if left > after || left < after-after/50 || value != n {
				t.Fatalf("request %d: %v left, %v", n, left, value)
			}
			time.Sleep(7 * time.Millisecond)
		}
	})
}

// A body that does not arrive delays no other request.
func TestSlowBodies(t *testing.T) {
	s := start(t, pdp.Config{Limits: pdp.Limits{InFlight: 1, Wait: time.Millisecond}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.main, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST "+authzen.PathEvaluation+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("the body is not waited for: %q, %v", line, err)
	}
	if response, body := post(t, http.DefaultClient, s.main+authzen.PathEvaluation, aliceReads); response.StatusCode != http.StatusOK {
		t.Errorf("%s %s", response.Status, body)
	}
}

// At the limit, new connections are accepted when others end or are idle.
func TestConnections(t *testing.T) {
	for name, test := range map[string]struct {
		limit int
		first string
		waits bool
	}{
		"one too many, and all busy":    {2, busy, true},
		"one too many, and others idle": {2, asks, false},
		"as many as may be":             {3, busy, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, pdp.Config{Limits: pdp.Limits{Connections: test.limit}})
			first, answer := connect(t, s, test.first)
			for _, r := range []*bufio.Reader{answer, second(connect(t, s, test.first))} {
				if _, err := r.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			third, answer := connect(t, s, asks)
			if err := third.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, err := answer.ReadString('\n'); errors.Is(err, os.ErrDeadlineExceeded) != test.waits {
				t.Fatalf("the third: %v", err)
			}
			if err := errors.Join(first.Close(), third.SetReadDeadline(time.Now().Add(10*time.Second))); err != nil {
				t.Fatal(err)
			}
			if _, err := answer.ReadString('\n'); err != nil {
				t.Errorf("the third, when there is room: %v", err)
			}
		})
	}
}

// What a client sends: a complete request, or one whose body never arrives.
const (
	asks = "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n"
	busy = "POST " + authzen.PathEvaluation + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
)

// connect opens a connection and sends text.
func connect(t *testing.T, s *service, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.main, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// Unauthenticated clients that hold all connections do not delay a caller with a key.
func TestUnauthenticatedConnectionsMakeRoom(t *testing.T) {
	const many, key = 64, "psk_of_the_test"
	auth := callers.Auth{APIKeys: []callers.APIKey{{ID: "pep", SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(key)))}}}
	request := "POST " + authzen.PathEvaluation + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer " + key +
		"\r\nContent-Length: " + strconv.Itoa(len(aliceReads)) + "\r\n\r\n" + aliceReads
	for name, sent := range map[string]string{
		"nothing":                 "",
		"one request":             "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"half a request":          "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n",
		"a request without a key": "POST " + authzen.PathEvaluation + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n",
		"a caller's":              request,
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, pdp.Config{Auth: auth, Limits: pdp.Limits{Connections: many}})
			known, answer := connect(t, s, request)
			if response, err := http.ReadResponse(answer, nil); err != nil || response.StatusCode != http.StatusOK || response.Close {
				t.Fatalf("%v, %v", response, err)
			}
			for range many {
				_, answer := connect(t, s, sent)
				if strings.HasPrefix(sent, http.MethodPost) {
					if _, err := http.ReadResponse(answer, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			began := time.Now()
			conn, answer := connect(t, s, request)
			if err := conn.SetReadDeadline(began.Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(answer, nil)
			if took := time.Since(began); err != nil || response.StatusCode != http.StatusOK || took > time.Second {
				t.Errorf("a caller with a key, after %v: %v, %v", took, response, err)
			}
			if sent == request {
				return // all are callers, and the first was idle for longest
			}
			if err := known.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(known, request); err != nil {
				t.Fatal(err)
			}
			if _, err := http.ReadResponse(bufio.NewReader(known), nil); err != nil {
				t.Errorf("one that was there before: %v", err)
			}
		})
	}
}

// If callers must authenticate, an answer to an unauthenticated client ends the connection. An
// answer to a caller does not.
func TestUnauthenticatedConnectionsEnd(t *testing.T) {
	const key = "psk_of_the_test"
	auth := callers.Auth{APIKeys: []callers.APIKey{{ID: "pep", SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(key)))}}}
	for _, test := range []struct {
		name string
		auth callers.Auth
		key  string
		path string
		want bool
	}{
		{"a stranger's decision", auth, "", authzen.PathEvaluation, true},
		{"a stranger reads", auth, "", "/openapi.yaml", true},
		{"another's key", auth, "psk_other", authzen.PathEvaluation, true},
		{"a caller", auth, key, authzen.PathEvaluation, false},
		{"nobody has to say", callers.Auth{}, "", authzen.PathEvaluation, false},
	} {
		s := start(t, pdp.Config{Auth: test.auth})
		r, err := http.NewRequestWithContext(t.Context(), map[bool]string{true: http.MethodGet, false: http.MethodPost}[test.path == "/openapi.yaml"], s.main+test.path, strings.NewReader(aliceReads))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if test.key != "" {
			r.Header.Set("Authorization", "Bearer "+test.key)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.Close != test.want {
			t.Errorf("%s: %s, closed: %v", test.name, response.Status, response.Close)
		}
	}
}

// One address has a limited number of connections: the next one replaces an idle one, and is
// refused if all are busy.
func TestConnectionsOfOneAddress(t *testing.T) {
	for name, test := range map[string]struct {
		first string
		ends  bool
	}{"busy": {busy, true}, "idle": {asks, false}} {
		t.Run(name, func(t *testing.T) {
			s := start(t, pdp.Config{Limits: pdp.Limits{PerAddress: 1}})
			if _, err := second(connect(t, s, test.first)).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			for {
				next, answer := connect(t, s, asks)
				if err := next.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
					t.Fatal(err)
				}
				_, err := http.ReadResponse(answer, nil)
				if errors.Is(err, os.ErrDeadlineExceeded) || err == nil && test.ends {
					t.Errorf("the next: %v", err)
				}
				if err == nil || test.ends {
					return
				}
				next.Close() // the first is not idle yet
			}
		})
	}
}

// A client that does not read its answers occupies little memory.
func TestUnreadAnswersUseLittleMemory(t *testing.T) {
	const enough = 1 << 20
	for name, test := range map[string]struct {
		of   func(net.Listener) net.Listener
		much bool
	}{
		"no more than it reads":              {pdp.NewUnread, false},
		"what the system takes: the control": {func(l net.Listener) net.Listener { return l }, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l = test.of(l)
			defer l.Close()
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			taken, err := conn.Write(make([]byte, 64<<20))
			if !errors.Is(err, os.ErrDeadlineExceeded) || (taken > enough) != test.much {
				t.Errorf("%d bytes are taken: %v", taken, err)
			}
		})
	}
}

func second[A, B any](_ A, b B) B { return b }

// Rejections over the rate limit are delayed, unless too many are already waiting.
func TestRateLimitRejectionsAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serve := pdp.NewPerTenant(pdp.Limits{TenantRate: 0.001, Queue: 2})(func(echo.Context) error { return nil })
		gone, leave := context.WithCancel(t.Context())
		start := time.Now()
		var clients sync.WaitGroup
		for i, want := range []struct {
			ctx         context.Context
			err         error
			after, most time.Duration
		}{
			{t.Context(), nil, 0, 0},
			{t.Context(), pdp.ErrTenantRate, 125 * time.Millisecond, 375 * time.Millisecond},
			{gone, pdp.ErrTenantRate, 100 * time.Millisecond, 100 * time.Millisecond},
			{t.Context(), pdp.ErrTenantRate, 0, 0}, // too many are waiting
		} {
			clients.Go(func() {
				r := httptest.NewRequestWithContext(want.ctx, http.MethodPost, "/", nil)
				err := serve(echo.New().NewContext(r, httptest.NewRecorder()))
				if took := time.Since(start); !errors.Is(err, want.err) || took < want.after || took > want.most {
					t.Errorf("request %d: %v after %v, want %v after %v to %v", i, err, took, want.err, want.after, want.most)
				}
			})
			synctest.Wait()
		}
		time.Sleep(100 * time.Millisecond)
		leave()
		clients.Wait()
	})
}

// A tenant's burst is the rate of one second, limited so that it leaves capacity to others.
func TestBurst(t *testing.T) {
	for _, test := range []struct {
		perSecond float64
		want      int
	}{{0.001, 1}, {1, 1}, {5.5, 5}, {256, 256}, {300, 256}, {2048, 256}, {16_000, 2000}} {
		synctest.Test(t, func(t *testing.T) {
			gone, leave := context.WithCancel(t.Context())
			leave()
			r := httptest.NewRequestWithContext(gone, http.MethodPost, "/", nil)
			got := 0
			serve := pdp.NewPerTenant(pdp.Limits{TenantRate: test.perSecond})(func(echo.Context) error { got++; return nil })
			for serve(echo.New().NewContext(r, httptest.NewRecorder())) == nil {
			}
			if got != test.want {
				t.Errorf("%v a second: %d at once, want %d", test.perSecond, got, test.want)
			}
		})
	}
}

// A tenant over its rate is rejected, and others are not.
func TestTenantRate(t *testing.T) {
	s := start(t, pdp.Config{Limits: pdp.Limits{TenantRate: 0.001}})
	statuses := func(path, body string) string {
		var all []string
		for range 3 {
			response, _ := post(t, http.DefaultClient, s.main+path, body)
			all = append(all, response.Status[:3])
			if (response.StatusCode == 429) != (response.Header.Get("Retry-After") != "") {
				t.Errorf("%s with Retry-After %q", response.Status, response.Header.Get("Retry-After"))
			}
		}
		return strings.Join(all, " ")
	}
	for _, test := range []struct{ path, body, want string }{
		{"/tenants/noisy" + authzen.PathEvaluation, aliceReads, "200 429 429"},
		{"/tenants/noisy" + authzen.PathEvaluations, aliceReads, "429 429 429"},
		{"/tenants/quiet" + authzen.PathEvaluation, aliceReads, "200 429 429"},
		{authzen.PathAuthorize, aliceInAcme, "200 429 429"},
		{authzen.PathSearchAction, aliceReads, "200 429 429"},
		{authzen.PathApprovals, `{"request":` + strings.Replace(aliceInAcme, "acme", "third", 1) + `,"approval":{"template":"t"}}`, "400 429 429"},
	} {
		if got := statuses(test.path, test.body); got != test.want {
			t.Errorf("%s: %s, want %s", test.path, got, test.want)
		}
	}
}

// The largest body always fits into the memory budget. Otherwise the service does not start.
func TestLargestBodyFits(t *testing.T) {
	const largest = 64 << 10
	const memory = 4*largest + 2*(8<<10+1) + 2
	s := start(t, pdp.Config{MaxBody: largest, Limits: pdp.Limits{BodyMemory: memory}})
	body := aliceReads + strings.Repeat(" ", largest-len(aliceReads))
	if got := ask(t, http.DefaultClient, http.MethodPost, s.main+authzen.PathEvaluation, "", body).StatusCode; got != http.StatusOK {
		t.Errorf("the largest body: status %d", got)
	}
	refused := launch(t, pdp.Config{MaxBody: largest, Limits: pdp.Limits{BodyMemory: memory - 4}})
	want := fmt.Sprintf("max_body: %d bytes are more than a fourth of max_body_memory, %d,", largest, memory-4)
	if refused.err == nil || !strings.Contains(refused.err.Error(), want) || !strings.Contains(refused.err.Error(), fmt.Sprintf("raise max_body_memory to %d", memory)) {
		t.Errorf("%v, want %q", refused.err, want)
	}
}
