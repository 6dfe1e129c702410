package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// streamer returns log stream, for the test to run and to kill.
func streamer(t *testing.T, state, to string, args ...string) *exec.Cmd {
	t.Helper()
	args = append([]string{"log", "stream", "--state", state, "--to", to, "--cursor", filepath.Join(filepath.Dir(state), "cursor"), "--once"}, args...)
	cmd := exec.CommandContext(t.Context(), "policy-service", args...)
	cmd.Env = append(os.Environ(), "GORACE="+hurry)
	return cmd
}

// hastyStream is log stream with the cursor moved before a sink has what it is
// given. Its arguments are state, URL and cursor.
func hastyStream() {
	c := &logStreamCmd{stateFlag: stateFlag{os.Args[1]}, To: os.Args[2], Cursor: os.Args[3], Format: decisionlog.FormatJSONL, Batch: 10, Once: true}
	to, err := newStreamSink(context.Background(), c)
	if err == nil {
		s := stream{command: c, to: hastySink{to, c.Cursor}}
		err = s.pass(context.Background())
	}
	os.Exit(report(err))
}

type hastySink struct {
	streamSink
	cursor string
}

func (s hastySink) deliver(ctx context.Context, lines [][]byte) error {
	index, _ := decisionlog.Index(lines[len(lines)-1])
	if err := writeCursor(s.cursor, index+1); err != nil {
		return err
	}
	return s.streamSink.deliver(ctx, lines)
}

// missing returns which of n entries are not among the lines of a log that
// were delivered, whatever was delivered twice.
func missing(t *testing.T, text []byte, n int) (indexes []int64) {
	t.Helper()
	delivered := make(map[int64]bool)
	for line := range bytes.Lines(text) {
		index, ok := decisionlog.Index(line)
		if !ok || !bytes.HasSuffix(line, []byte("}\n")) {
			t.Fatalf("no line of the log: %q", line)
		}
		if index > 0 && !delivered[index-1] && len(delivered) > 0 {
			t.Errorf("entry %d comes before %d", index, index-1)
		}
		delivered[index] = true
	}
	for index := range int64(n) {
		if !delivered[index] {
			indexes = append(indexes, index)
		}
	}
	return indexes
}

// TestStreamToFile kills a stream again and again, at any moment: every entry
// is in the file, and each line is whole.
func TestStreamToFile(t *testing.T) {
	root := t.TempDir()
	state, file := filepath.Join(root, "state"), filepath.Join(root, "entries.jsonl")
	record(t, state, 0, 1000)
	r := rand.New(rand.NewPCG(1, 2))
	kills := 0
	for ended := false; !ended; {
		cmd := streamer(t, state, "file:"+file, "--batch", "2")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if kills < 30 {
			time.AfterFunc(time.Duration(r.Int64N(int64(100*time.Millisecond))), func() { cmd.Process.Kill() })
		}
		if ended = cmd.Wait() == nil; !ended {
			kills++
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if m := missing(t, text, 1000); len(m) > 0 {
		t.Errorf("entries %d are missing", m)
	}
	t.Logf("%d kills, %d lines of 1000 entries", kills, bytes.Count(text, []byte("\n")))

	// Half a line that a killed writer left is written anew.
	if err := os.WriteFile(file, append(text, `{"index":1000,"id":"ha`...), 0o600); err != nil {
		t.Fatal(err)
	}
	record(t, state, 1000, 1010)
	if out, err := streamer(t, state, "file:"+file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text, err = os.ReadFile(file); err != nil || len(missing(t, text, 1010)) > 0 {
		t.Errorf("%v, the file ends %q", err, text[len(text)-100:])
	}
}

// A killer is a sink that kills who posts to it, before or after it has kept
// what was posted.
type killer struct {
	mu     sync.Mutex
	victim *exec.Cmd
	turn   int
	kept   bytes.Buffer
}

func (k *killer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn++
	if k.turn%4 != 1 {
		k.kept.Write(body)
	}
	if k.turn%4 <= 1 {
		k.victim.Process.Kill()
	}
}

// has returns what was kept, and how often something was posted.
func (k *killer) has() (kept []byte, turns int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept.Bytes(), k.turn
}

// run runs commands, each until it is killed or has ended, until one has ended
// by itself.
func (k *killer) run(t *testing.T, command func() *exec.Cmd) {
	t.Helper()
	for ended := false; !ended; {
		k.mu.Lock()
		k.victim = command()
		if err := k.victim.Start(); err != nil {
			t.Fatal(err)
		}
		k.mu.Unlock()
		ended = k.victim.Wait() == nil
	}
}

// TestStreamPosts kills a stream while it waits for an answer, before and after
// its entries are kept: every entry comes. The control is a stream that moves
// its cursor first.
func TestStreamPosts(t *testing.T) {
	root := t.TempDir()
	state := filepath.Join(root, "state")
	record(t, state, 0, 100)
	var good, bad killer
	server := httptest.NewServer(&good)
	defer server.Close()
	good.run(t, func() *exec.Cmd { return streamer(t, state, server.URL, "--batch", "10") })
	kept, posts := good.has()
	if m := missing(t, kept, 100); len(m) > 0 {
		t.Errorf("entries %d are missing", m)
	}
	control := httptest.NewServer(&bad)
	defer control.Close()
	bad.run(t, func() *exec.Cmd {
		return exec.CommandContext(t.Context(), "hasty-stream", state, control.URL, filepath.Join(root, "hasty"))
	})
	kept, _ = bad.has()
	lost := 0
	for index := range 100 {
		if !bytes.Contains(kept, fmt.Appendf(nil, `{"index":%d,`, index)) {
			lost++
		}
	}
	if lost == 0 {
		t.Error("control: no entry is missing")
	}
	t.Logf("%d posts, none of 100 entries lost; control: %d lost", posts, lost)
}

// TestStreamFollows holds that a stream goes on by itself: it delivers what
// comes, waits for a sink that is not there, and ends when it is interrupted.
func TestStreamFollows(t *testing.T) {
	root := t.TempDir()
	state := filepath.Join(root, "state")
	record(t, state, 0, 3)
	posts, refused := make(chan string, 10), false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3" || r.Header.Get("Content-Type") != "application/jsonl" {
			t.Errorf("headers %v", r.Header)
		}
		if !refused {
			refused = true
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		posts <- string(body)
	}))
	defer server.Close()
	cmd := exec.CommandContext(t.Context(), "policy-service", "log", "stream", "--state", state, "--to", server.URL,
		"--cursor", filepath.Join(root, "cursor"), "--every", "1ms", "--header", "Authorization: Bearer s3")
	cmd.Env = append(os.Environ(), "GORACE="+hurry)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if first := <-posts; strings.Count(first, "\n") != 3 {
		t.Errorf("the first post is %q", first)
	}
	record(t, state, 3, 4)
	if next := <-posts; !strings.HasPrefix(next, `{"index":3,`) {
		t.Errorf("the next post is %q", next)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(stderr.String(), "not delivered: POST "+server.URL+": 503 Service Unavailable; again in") {
		t.Errorf("%v\n%s", err, stderr.String())
	}
}

// TestStreamTellsGaps holds that a stream says what was removed before it was
// delivered, and goes on behind it.
func TestStreamTellsGaps(t *testing.T) {
	root := t.TempDir()
	state, file := filepath.Join(root, "state"), filepath.Join(root, "entries.jsonl")
	l, err := decisionlog.Open(state, decisionlog.Config{Durability: decisionlog.Batched, SegmentBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 600 {
		if err := l.Append(t.Context(), &decisionlog.Entry{ID: fmt.Sprint(n), Time: time.Unix(0, 0), Kind: decisionlog.KindAdmin}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	later := func() time.Time { return time.Now().Add(time.Hour) } // nothing removes the segments of the last minutes
	if l, err = decisionlog.Open(state, decisionlog.Config{Now: later}); err != nil {
		t.Fatal(err)
	}
	removed, err := l.Prune(t.Context(), decisionlog.Retention{Bytes: 1})
	if err := errors.Join(err, l.Close()); err != nil || removed != 512 {
		t.Fatalf("%d entries are removed: %v", removed, err)
	}
	out, err := streamer(t, state, "file:"+file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "entries 0 to 511 are no longer in the log, and were not delivered\n") {
		t.Errorf("%v\n%s", err, out)
	}
	// An entry about each of the two segments that were removed comes last.
	if text, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(text, []byte(`{"index":512,`)) || bytes.Count(text, []byte("\n")) != 600-512+2 {
		t.Errorf("%v: %d lines", err, bytes.Count(text, []byte("\n")))
	}
}

// Entries that a server does not show to a caller of some tenants are no gap.
func TestStreamOfTenantsHasNoGaps(t *testing.T) {
	for name, test := range map[string]struct {
		checkpoint int
		told       bool
	}{"a caller of some tenants": {http.StatusForbidden, false}, "a caller of all": {http.StatusOK, true}} {
		state := filepath.Join(t.TempDir(), "state")
		l, err := decisionlog.Open(state, decisionlog.Config{}) // as a server has it
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == pdp.PathLogCheckpoint {
				w.WriteHeader(test.checkpoint)
				io.WriteString(w, `{}`)
				return
			}
			io.WriteString(w, `{"index":3,"id":"a"}`+"\n"+`{"index":7,"id":"b"}`+"\n")
		}))
		defer server.Close()
		if err := os.WriteFile(filepath.Join(state, pdp.AdminURLFile), []byte(server.URL+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := streamer(t, state, "file:"+state+"/entries").CombinedOutput()
		if told := strings.Contains(string(out), "no longer in the log"); err != nil || told != test.told {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// makeVaried makes a log of entries that are different.
func makeVaried(t *testing.T) (state string) {
	t.Helper()
	state = t.TempDir()
	l, err := decisionlog.Open(state, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	revision, err := l.KeepArchive(map[string][]byte{"a.cedar": []byte("a")})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 9, 0, 0, 123456789, time.UTC)
	for _, e := range []*decisionlog.Entry{
		{ID: "start", Time: at, Kind: decisionlog.KindReload, Request: jsontext.Value(`{"cause":"start"}`), Result: &decisionlog.Result{Decision: true}, Revision: revision},
		{ID: "one", Time: at, Kind: decisionlog.KindEvaluation, Tenant: "acme", Caller: "gateway", LatencyMicros: 42, Revision: revision,
			Request: jsontext.Value(`{"subject":{"type":"user","id":"=alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}`),
			Result: &decisionlog.Result{Decision: true, Policies: []string{"a b", "c"}, Obligations: []authzen.Obligation{{ID: "1", Type: "notification"}},
				Shadow: &decisionlog.Shadow{Revision: revision, Result: decisionlog.Result{Errors: []decisionlog.PolicyError{{Policy: "p", Message: "no x"}, {Message: "evaluation_error"}}}}}},
		{ID: "many", Time: at, Kind: decisionlog.KindEvaluations, Request: jsontext.Value(`{"subject":{"type":"user","id":"bob"},"evaluations":[{},{}]}`),
			Evaluations: []decisionlog.Result{{Errors: []decisionlog.PolicyError{{Message: "no action"}}}, {Decision: true}}},
		{ID: "key", Time: at, Kind: decisionlog.KindAdmin},
	} {
		if err := l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	return state
}

// runExport runs log export.
func runExport(t *testing.T, state string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	export := exec.Command("policy-service", "log", "export", "--state", state)
	export.Stderr = &stderr
	out, err := export.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return out
}

// TestStreamOTLP holds that a collector gets a record for each entry, with the
// line as its body, and that one which does not take all of them gets them
// again.
func TestStreamOTLP(t *testing.T) {
	state := makeVaried(t)
	var mu sync.Mutex // guards what follows
	var kept []string
	reject := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/logs" {
			t.Errorf("%s: %v", r.URL, err)
		}
		var request logs.ExportLogsServiceRequest
		if err := proto.Unmarshal(body, &request); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		answer := new(logs.ExportLogsServiceResponse)
		if reject {
			answer.PartialSuccess = &logs.ExportLogsPartialSuccess{RejectedLogRecords: 1, ErrorMessage: "too many"}
		} else {
			kept = append(kept, bodies(&request)...)
		}
		text, err := proto.Marshal(answer)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(text)
	}))
	defer server.Close()
	run := func() (string, error) {
		cmd := streamer(t, state, "otlp")
		cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	var exit *exec.ExitError
	if out, err := run(); !errors.As(err, &exit) || exit.ExitCode() != exitFailure || !strings.Contains(out, "too many") {
		t.Errorf("refused: %v\n%s", err, out)
	}
	mu.Lock()
	reject = false
	mu.Unlock()
	if out, err := run(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(string(runExport(t, state)), strings.Join(kept, "\n")+"\n"); diff != "" {
		t.Errorf("bodies (-log +collector):\n%s", diff)
	}
	if out, err := streamer(t, state, "otlp").CombinedOutput(); err == nil || !strings.Contains(string(out), "OTEL_EXPORTER_OTLP_ENDPOINT") {
		t.Errorf("without an endpoint: %v\n%s", err, out)
	}
}

// bodies are those of the records in a request.
func bodies(request *logs.ExportLogsServiceRequest) (all []string) {
	for _, resource := range request.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			for _, record := range scope.LogRecords {
				all = append(all, record.Body.GetStringValue())
			}
		}
	}
	return all
}
