package decisionlog_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var update = flag.Bool("update", false, "write the golden files")

func TestExport(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 123456789, time.FixedZone("CET", 3600))
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	revision, err := l.KeepArchive(map[string][]byte{"owner.cedar": []byte("permit (principal, action, resource);\n")})
	if err != nil {
		t.Fatal(err)
	}
	entries := []*decisionlog.Entry{
		{ID: "a", Time: at, Kind: decisionlog.KindReload, Revision: revision},
		{
			ID:      "b",
			Time:    at,
			Tenant:  "acme",
			Kind:    decisionlog.KindEvaluation,
			Request: jsontext.Value("{\n  \"z\": 1.50, \"a\": \"\\u0061\\/<&>\\u2028\", \"big\": 123456789012345678901234567890\n}"),
			Result: &decisionlog.Result{
				Decision:    true,
				Policies:    []string{"owner", "public"},
				Errors:      []decisionlog.PolicyError{{Policy: "broken", Message: "no attribute \"x\""}},
				Obligations: []authzen.Obligation{{ID: "1", Type: "notification", Properties: jsontext.Value(`{"to": "ops"}`)}},
			},
			Revision:      revision,
			Caller:        "gateway",
			RequestID:     "r-1",
			TraceID:       "4bf92f3577b34da6a3ce929d0e0e4736",
			LatencyMicros: 42,
			Masked:        []string{"/request/a"},
		},
		{
			ID:          "c",
			Time:        at,
			Kind:        decisionlog.KindEvaluations,
			Request:     jsontext.Value(`{"evaluations":[{},{}]}`),
			Evaluations: []decisionlog.Result{{Decision: true}, {Decision: false, Policies: []string{"guard"}}},
		},
		{ID: "d", Time: at, Kind: decisionlog.KindEvaluation, Result: &decisionlog.Result{}},
	}
	mustAppend(t, l, entries...)

	got := export(t, l.Reader)
	golden := filepath.Join("testdata", "export.jsonl")
	if *update {
		if err := os.WriteFile(golden, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("export (-want +got):\n%s", diff)
	}
	if _, err := decisionlog.VerifyExport(bytes.NewReader(got), l.Head()); err != nil {
		t.Error(err)
	}
}

func TestRoundTrip(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	fill(t, l, 0, 20)
	for n, got := range lines(t, l.Reader) {
		want := line{Index: int64(n), Entry: *entry(n)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("entry %d (-want +got):\n%s", n, diff)
		}
	}
}

func TestExportRange(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	const size = 2500 // more than two pages
	fill(t, l, 0, size)
	wait(t, func() bool { return l.Head().Size == size })
	for _, tt := range []struct{ from, until, first, n int64 }{
		{0, -1, 0, size},
		{0, size + 1, 0, size},
		{-1, 2, 0, 2},
		{999, 1001, 999, 2},
		{size - 1, size, size - 1, 1},
		{size, -1, 0, 0},
		{5, 5, 0, 0},
	} {
		var out bytes.Buffer
		n, err := l.Export(t.Context(), &out, tt.from, tt.until)
		if err != nil || n != tt.n || int64(bytes.Count(out.Bytes(), []byte("\n"))) != tt.n {
			t.Errorf("export [%d, %d): n = %d, err = %v, want n = %d", tt.from, tt.until, n, err, tt.n)
		}
		if begin := fmt.Sprintf(`{"index":%d,`, tt.first); n > 0 && !strings.HasPrefix(out.String(), begin) {
			t.Errorf("export [%d, %d) does not begin with %s", tt.from, tt.until, begin)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Export(ctx, new(bytes.Buffer), 0, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("export with a context that ended: %v", err)
	}
}

// A blockingWriter blocks in its first Write until it is told to go on.
type blockingWriter struct {
	once             sync.Once
	blocked, goAhead chan struct{}
	bytes.Buffer
}

func (w *blockingWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.blocked); <-w.goAhead })
	return w.Buffer.Write(b)
}

func TestSlowExportHoldsNothing(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	for range 5 {
		mustAppend(t, l, bulky(1<<20))
	}
	w := &blockingWriter{blocked: make(chan struct{}), goAhead: make(chan struct{})}
	exported := make(chan error)
	go func() {
		_, err := l.Export(t.Context(), w, 0, -1)
		exported <- err
	}()
	<-w.blocked
	if n := l.OpenTransactions(); n != 0 {
		t.Errorf("%d read transactions are open while the writer blocks", n)
	}
	mustAppend(t, l, entry(5))
	close(w.goAhead)
	if err := <-exported; err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(w.Bytes(), []byte("\n")); n != 5 {
		t.Errorf("%d lines, want the 5 below the head at the start", n)
	}
}

// An export reads all entries into the same memory, however large they are.
func TestExportReusesMemory(t *testing.T) {
	const entries, size, most = 60, 900_000, 16 << 20
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	request := []byte(`{"context":{"text":"` + strings.Repeat("x", size) + `"}}`)
	for range entries {
		mustAppend(t, l, &decisionlog.Entry{Kind: decisionlog.KindEvaluation, Request: request, Result: &decisionlog.Result{}})
	}
	l.Head()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if n, err := l.Export(t.Context(), io.Discard, 0, -1); n != entries || err != nil {
		t.Fatal(n, err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Errorf("an export of %d MB allocated %d MiB", entries*size/1_000_000, took>>20)
	}
}
