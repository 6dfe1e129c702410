package pdp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/policies"
)

// A service is a running pdp.Run.
type service struct {
	main, admin string // URLs
	console     string // "" without a console
	state       string
	cancel      context.CancelFunc
	ended       chan struct{}
	err         error // what Run returned, once ended is closed
}

// start runs the service on free ports until the test ends, which then
// verifies its log. What c leaves out is the certification policies and a new
// state directory.
func start(t testing.TB, c pdp.Config) *service {
	t.Helper()
	s := launch(t, c)
	if s.main == "" {
		t.Fatalf("the service did not start: %v", s.err)
	}
	return s
}

// launch is start for a service that may refuse to; its URLs are then empty.
func launch(t testing.TB, c pdp.Config) *service {
	t.Helper()
	s := &service{state: c.State, ended: make(chan struct{})}
	if s.state == "" {
		s.state = t.TempDir()
	}
	if c.Policies == nil {
		c.Policies = policySet(t, "certification")
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.AdminListen == "" {
		c.AdminListen = "127.0.0.1:0"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	if c.Limits.Deadline == 0 {
		c.Limits.Deadline = time.Minute // longer than a busy machine takes
	}
	ready := make(chan struct{})
	c.State = s.state
	c.Ready = func(at pdp.Addresses) {
		s.main, s.admin, s.console = at.Main, at.Admin, at.Console
		close(ready)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.ended)
		s.err = pdp.Run(ctx, c)
	}()
	select {
	case <-ready:
		t.Cleanup(func() { s.stop(t) })
	case <-s.ended:
	}
	return s
}

// stop ends the service and verifies its log.
func (s *service) stop(t testing.TB) *decisionlog.Report {
	t.Helper()
	s.cancel()
	<-s.ended
	if errors.Is(s.err, decisionlog.ErrFailed) {
		return nil // the test has harmed the log
	}
	if s.err != nil {
		t.Errorf("the service ended with %v", s.err)
	}
	report, err := decisionlog.Verify(context.Background(), s.state)
	if err != nil {
		t.Error(err)
	}
	return report
}

func policySet(t testing.TB, name string) fs.FS {
	t.Helper()
	store, err := policies.Set(name)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// An entry is what the tests read of a line of the log.
type entry struct {
	Index     int64  `json:"index"`
	ID        string `json:"id"`
	Tenant    string `json:"tenant"`
	Kind      string `json:"kind"`
	RequestID string `json:"request_id"`
	TraceID   string `json:"trace_id"`
	Decision  bool   `json:"decision"`
}

func readEntries(t testing.TB, lines []byte) []entry {
	t.Helper()
	var entries []entry
	for line := range bytes.Lines(lines) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		entries = append(entries, e)
	}
	return entries
}

// decided returns the entries of a log that nobody has open which record what
// PEPs were answered.
func decided(t testing.TB, state string) []entry {
	t.Helper()
	reader, err := decisionlog.OpenReadOnly(state)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var out bytes.Buffer
	if _, err := reader.Export(context.Background(), &out, 0, -1); err != nil {
		t.Fatal(err)
	}
	var lines []byte
	for line := range bytes.Lines(out.Bytes()) {
		if !bytes.Contains(line, []byte(`"resource":{"type":"access_request"`)) { // whether somebody may approve
			lines = append(lines, line...)
		}
	}
	kinds := []string{"evaluation", "evaluations", "search"}
	return slices.DeleteFunc(readEntries(t, lines), func(e entry) bool { return !slices.Contains(kinds, e.Kind) })
}

func ids(entries []entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, e.ID)
	}
	return all
}

// aliceReads is a request that the certification policies permit.
const aliceReads = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"record","id":"record-1"}}`

// post sends a JSON body and returns the answer with its whole body.
func post(t testing.TB, client *http.Client, url, body string) (*http.Response, string) {
	t.Helper()
	response, answer, err := send(t.Context(), client, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return response, answer
}

func get(t testing.TB, url string) (*http.Response, string) {
	t.Helper()
	response, answer, err := send(t.Context(), http.DefaultClient, http.MethodGet, url, "")
	if err != nil {
		t.Fatal(err)
	}
	return response, answer
}

func send(ctx context.Context, client *http.Client, method, url, body string) (*http.Response, string, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Request-ID", "request-1")
	response, err := client.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response, string(answer), err
}
