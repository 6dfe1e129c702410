package pdp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/schematest"
)

// permitted maps paths to requests that the certification policies permit.
var permitted = map[string]string{
	authzen.PathEvaluation:  aliceReads,
	authzen.PathEvaluations: strings.TrimSuffix(aliceReads, "}") + `,"evaluations":[{},{}]}`,
	"/v1/authorize":         `{"tenant_id":"t","actor":{"actor_id":"alice","actor_type":"user"},"action":"read","resource":{"type":"record","id":"record-1"}}`,
}

// A harmed is a service in this process whose log the test can damage.
type harmed struct {
	main, admin *httptest.Server
	log         *decisionlog.Log
	state       string
	program     *output // log of the service
}

// harm serves the store, or none for nil, with a log of the given configuration.
func harm(t *testing.T, store fs.FS, c decisionlog.Config) *harmed {
	t.Helper()
	return harmWithin(t, store, c, pdp.Limits{Deadline: time.Minute})
}

// harmWithin is harm with limits.
func harmWithin(t *testing.T, store fs.FS, c decisionlog.Config, limits pdp.Limits) *harmed {
	t.Helper()
	h := &harmed{state: t.TempDir(), program: new(output)}
	var err error
	h.log, err = decisionlog.Open(h.state, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.log.Close() }) // may already be closed or failed
	main, admin, err := pdp.NewHandlers(t.Context(), h.state, store, limits, h.log, slog.New(slog.NewTextHandler(h.program, nil)))
	if err != nil {
		t.Fatal(err)
	}
	h.main, h.admin = httptest.NewServer(main), httptest.NewServer(admin)
	t.Cleanup(h.main.Close)
	t.Cleanup(h.admin.Close)
	return h
}

// An output is a bytes.Buffer for several writers.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// wantUnavailable checks that every path answers 503 with Retry-After.
func (h *harmed) wantUnavailable(t *testing.T, message string) {
	t.Helper()
	for path, body := range permitted {
		response, answer := post(t, h.main.Client(), h.main.URL+path, body)
		if response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: status %s", path, response.Status)
		}
		if want := fmt.Sprintf(`{"error":{"status":503,"message":%q},"message":%[1]q}`, message); answer != want {
			t.Errorf("%s: %s, want %s", path, answer, want)
		}
		schematest.Check(t, "ErrorResponse", []byte(answer))
		for name, want := range map[string]string{"Retry-After": "1", "Cache-Control": "no-store", "X-Request-ID": "request-1", "Decision-ID": ""} {
			if got := response.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
}

// mostAnswers exceeds the capacity of the logs in these tests.
const mostAnswers = 2000

// Each row of the fail-closed table that ends in a 503 does so.
func TestUnavailable(t *testing.T) {
	const unrecorded = "the decision could not be recorded"

	t.Run("no policies are loaded", func(t *testing.T) {
		h := harm(t, nil, decisionlog.Config{})
		h.wantUnavailable(t, "no policies are loaded")
		h.wantUnready(t, "no policies are loaded\n")
	})
	t.Run("the log is closed", func(t *testing.T) {
		h := harm(t, policySet(t, "certification"), decisionlog.Config{})
		if err := h.log.Close(); err != nil {
			t.Fatal(err)
		}
		h.wantUnavailable(t, unrecorded)
	})
	t.Run("the log is full", func(t *testing.T) {
		h := harm(t, policySet(t, "certification"), decisionlog.Config{MaxSize: 1 << 16})
		var given []string
		for range mostAnswers {
			response, _ := post(t, h.main.Client(), h.main.URL+authzen.PathEvaluation, aliceReads)
			if response.StatusCode != http.StatusOK {
				break
			}
			given = append(given, response.Header.Get("Decision-ID"))
		}
		h.wantUnavailable(t, unrecorded)
		if err := h.log.Close(); err != nil {
			t.Fatal(err)
		}
		if got := ids(decided(t, h.state)); len(given) == 0 || !slices.Equal(got, given) {
			t.Errorf("%d decisions were given and %d recorded, or others: %v", len(given), len(got), cmp.Diff(given, got))
		}
	})
	t.Run("the disk hangs", func(t *testing.T) {
		var hangs atomic.Bool
		mended := make(chan struct{})
		mend := sync.OnceFunc(func() { close(mended) })
		t.Cleanup(mend)
		now := func() time.Time { // which the log asks for before it writes to a segment
			if hangs.Load() {
				<-mended
			}
			return time.Now()
		}
		h := harmWithin(t, policySet(t, "certification"), decisionlog.Config{Now: now}, pdp.Limits{Deadline: 20 * time.Millisecond})
		hangs.Store(true)
		for filled := error(nil); filled == nil; { // the journal
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // longer than a busy disk takes
			filled = h.log.Append(ctx, &decisionlog.Entry{Kind: decisionlog.KindAdmin, Request: jsontext.Value(`"` + strings.Repeat("x", 1<<20) + `"`)})
			cancel()
		}
		h.wantUnavailable(t, "the decision took too long: retry later")
		hangs.Store(false)
		mend()
		for answered := false; !answered; { // once the journal has room
			_, body := post(t, h.main.Client(), h.main.URL+authzen.PathEvaluation, aliceReads)
			answered = body == `{"decision":true}`
		}
	})
	t.Run("the deadline has passed", func(t *testing.T) {
		h := harmWithin(t, policySet(t, "certification"), decisionlog.Config{}, pdp.Limits{Deadline: time.Nanosecond})
		h.wantUnavailable(t, "the decision took too long: retry later")
	})
	t.Run("the file of the log is gone", func(t *testing.T) {
		h := harm(t, policySet(t, "certification"), decisionlog.Config{})
		removeSegment(t, h.state)
		h.wantUnavailable(t, unrecorded)
		h.wantUnready(t, "the decision log has failed\n")
		if !strings.Contains(h.program.String(), "request_id=request-1") {
			t.Errorf("the service's own log does not say which request failed:\n%s", h.program)
		}
	})
}

func (h *harmed) wantUnready(t *testing.T, want string) {
	t.Helper()
	response, body := get(t, h.admin.URL+"/readyz")
	if response.StatusCode != http.StatusServiceUnavailable || body != want {
		t.Errorf("readyz: %s %q, want %q", response.Status, body, want)
	}
}

func removeSegment(t testing.TB, state string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(state, "log", "*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("segments %q, %v", files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
}

// A service whose signing key is missing does not start, and creates no other key.
func TestNoStartWithoutTheKey(t *testing.T) {
	first := start(t, pdp.Config{})
	first.stop(t)
	key := filepath.Join(first.state, "checkpoint", "key")
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if s := launch(t, pdp.Config{State: first.state}); s.main != "" || !errors.Is(s.err, fs.ErrNotExist) {
		t.Errorf("it answers on %q: %v", s.main, s.err)
	}
	if err := os.WriteFile(key, text, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, pdp.Config{State: first.state})
}

// A service ends when the content of the disk is unknown.
func TestRunEndsWhenTheLogFails(t *testing.T) {
	s := start(t, pdp.Config{})
	removeSegment(t, s.state)
	response, body := post(t, http.DefaultClient, s.main+authzen.PathEvaluation, aliceReads)
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %s, body %s", response.Status, body)
	}
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		t.Fatal("the service has not ended")
	}
	if !errors.Is(s.err, decisionlog.ErrFailed) {
		t.Errorf("the service ended with %v", s.err)
	}
}

// TestNoDecisionWithoutRecord closes the log during requests. Each decision that was sent is in the
// log, and all other requests get 503.
func TestNoDecisionWithoutRecord(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	var total int
	for round := range rounds {
		h := harm(t, policySet(t, "certification"), decisionlog.Config{MaxSize: 1 << 20})
		var answers atomic.Int64
		var mu sync.Mutex
		var given []string
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for range mostAnswers {
					response, body, err := send(t.Context(), h.main.Client(), http.MethodPost, h.main.URL+authzen.PathEvaluation, aliceReads)
					switch {
					case err != nil:
						t.Error(err)
						return
					case response.StatusCode == http.StatusServiceUnavailable && !sayTrue.MatchString(body):
						return
					case response.StatusCode != http.StatusOK || body != `{"decision":true}`:
						t.Errorf("%s %s", response.Status, body)
						return
					}
					mu.Lock()
					given = append(given, response.Header.Get("Decision-ID"))
					mu.Unlock()
					if answers.Add(1) == int64(10+7*round) {
						_ = h.log.Close()
					}
				}
			})
		}
		clients.Wait()
		recorded := make(map[string]bool)
		for _, e := range decided(t, h.state) {
			recorded[e.ID] = true
		}
		for _, id := range given {
			if !recorded[id] {
				t.Errorf("round %d: %s was given and is not recorded", round, id)
			}
		}
		total += len(given)
	}
	t.Logf("%d rounds, %d decisions given, each recorded", rounds, total)
}

// A panic is a 500 that reveals nothing.
func TestPanic(t *testing.T) {
	thrown := map[string]any{
		"a string":                "secret",
		"an error":                errors.New("secret"),
		"an error of the request": authzen.Invalid("/secret", "is required"),
		"an error of a router":    echo.NewHTTPError(http.StatusTeapot, "secret"),
		"a runtime error":         nil,
	}
	for name, value := range thrown {
		t.Run(name, func(t *testing.T) {
			program := new(output)
			router := pdp.NewRouter(slog.New(slog.NewTextHandler(program, nil)))
			router.POST(authzen.PathEvaluation, func(c echo.Context) error {
				if value == nil {
					var none *http.Request
					return errors.New(none.Proto)
				}
				panic(value)
			})
			server := httptest.NewServer(router)
			defer server.Close()
			response, body := post(t, server.Client(), server.URL+authzen.PathEvaluation, aliceReads)
			if want := `{"error":{"status":500,"message":"internal error"},"message":"internal error"}`; response.StatusCode != http.StatusInternalServerError || body != want {
				t.Errorf("%s %s", response.Status, body)
			}
			if id := response.Header.Get("X-Request-ID"); id != "request-1" {
				t.Errorf("AZ-48: X-Request-ID is %q", id)
			}
			if !strings.Contains(program.String(), "msg=panic") || !strings.Contains(program.String(), "failclosed_test.go") {
				t.Errorf("the service's own log does not say where:\n%s", program)
			}
		})
	}
}

// An answer that fails half way does not look complete.
func TestBrokenOffAnswer(t *testing.T) {
	for name, fail := range map[string]func() error{
		"an error": func() error { return errors.New("secret") },
		"a panic":  func() error { panic("secret") },
	} {
		t.Run(name, func(t *testing.T) {
			program := new(output)
			router := pdp.NewRouter(slog.New(slog.NewTextHandler(program, nil)))
			router.GET("/half", func(c echo.Context) error {
				if err := c.String(http.StatusOK, "half"); err != nil {
					return err
				}
				c.Response().Flush()
				return fail()
			})
			server := httptest.NewServer(router)
			defer server.Close()
			response, err := server.Client().Get(server.URL + "/half")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if string(body) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q, %v", body, err)
			}
			if !strings.Contains(program.String(), "secret") {
				t.Errorf("the service's own log does not say why:\n%s", program)
			}
		})
	}
}

// A fault in the transport of a body is a client error.
func TestBodyThatDoesNotArrive(t *testing.T) {
	const head = "POST " + authzen.PathEvaluation + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Request-ID: request-1\r\n"
	for name, sent := range map[string]string{
		"a chunk that has no length": head + "Transfer-Encoding: chunked\r\n\r\nsecret\r\n",
		"chunks without an end":      head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"sub",
		"fewer bytes than announced": head + "Content-Length: 100\r\n\r\n" + `{"subject":`,
	} {
		t.Run(name, func(t *testing.T) {
			h := harm(t, policySet(t, "certification"), decisionlog.Config{})
			conn, err := net.Dial("tcp", h.main.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, sent); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			wantBadBody(t, conn)
			if h.program.String() != "" {
				t.Errorf("the service's own log:\n%s", h.program)
			}
		})
	}
}

func wantBadBody(t *testing.T, conn net.Conn) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"error":{"status":400,"message":"the body is incomplete or arrived too late"},"message":"the body is incomplete or arrived too late"}`
	if response.StatusCode != http.StatusBadRequest || string(body) != want || response.Header.Get("X-Request-ID") != "request-1" {
		t.Errorf("%s %s", response.Status, body)
	}
}

// A client that stalls is disconnected.
func TestSlowClients(t *testing.T) {
	state := t.TempDir()
	log, err := decisionlog.Open(state, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	program := slog.New(slog.NewTextHandler(t.Output(), nil))
	handler, _, err := pdp.NewHandlers(t.Context(), state, policySet(t, "certification"), pdp.Limits{}, log, program)
	if err != nil {
		t.Fatal(err)
	}
	server := pdp.NewServer(handler, program)
	for name, deadline := range map[string]time.Duration{
		"header": server.ReadHeaderTimeout, "request": server.ReadTimeout, "answer": server.WriteTimeout, "idle": server.IdleTimeout,
	} {
		if deadline <= 0 || deadline > time.Minute {
			t.Errorf("the %s of a request may take %s", name, deadline)
		}
	}
	if server.MaxHeaderBytes <= 0 || server.MaxHeaderBytes > 64<<10 {
		t.Errorf("headers may have %d bytes", server.MaxHeaderBytes)
	}

	server.ReadHeaderTimeout, server.ReadTimeout, server.IdleTimeout = 50*time.Millisecond, 100*time.Millisecond, 50*time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	dial := func(t *testing.T, sent string) net.Conn {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	const head = "POST " + authzen.PathEvaluation + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Request-ID: request-1\r\n"
	t.Run("half a header", func(t *testing.T) {
		rest, err := io.ReadAll(dial(t, head))
		if err != nil || bytes.Contains(rest, []byte(" 200 ")) {
			t.Errorf("%q, %v", rest, err)
		}
	})
	t.Run("nothing at all", func(t *testing.T) {
		if rest, err := io.ReadAll(dial(t, "")); err != nil || bytes.Contains(rest, []byte(" 200 ")) {
			t.Errorf("%q, %v", rest, err)
		}
	})
	t.Run("half a body", func(t *testing.T) {
		wantBadBody(t, dial(t, head+"Content-Length: 100\r\n\r\n{"))
	})
	t.Run("too long a header", func(t *testing.T) {
		conn := dial(t, head+"X-Long: "+strings.Repeat("a", server.MaxHeaderBytes+(8<<10))+"\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%v, %v", response, err)
		}
	})
	if err := server.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
