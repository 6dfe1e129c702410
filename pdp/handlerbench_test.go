package pdp_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// BenchmarkHandler is a request from its header to its answer, without the
// network and without a wait for the disk.
func BenchmarkHandler(b *testing.B) {
	for _, c := range []benchCall{singleCall, batchCall, searchCall} {
		b.Run(c.name, func(b *testing.B) { benchmarkHandler(b, c) })
	}
}

func benchmarkHandler(b *testing.B, c benchCall) {
	dir := b.TempDir()
	log, err := decisionlog.Open(dir, decisionlog.Config{Durability: decisionlog.Batched, Queue: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	handler, _, err := pdp.NewHandlers(b.Context(), dir, numbered(10), pdp.Limits{}, log, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Body.String() != c.answer {
			b.Fatal(w.Body)
		}
	}
}

// A benchCall is a request and the answer it must get.
type benchCall struct {
	name, path, body, answer string
}

var (
	singleCall = benchCall{"single", authzen.PathEvaluation, benchBody, `{"decision":true}`}
	batchCall  = benchCall{
		"batch of 50", authzen.PathEvaluations,
		benchBody[:len(benchBody)-1] + `,"evaluations":[` + strings.Repeat(`{},`, 49) + `{}]}`,
		`{"evaluations":[` + strings.Repeat(`{"decision":true},`, 49) + `{"decision":true}]}`,
	}
	searchCall = benchCall{
		"search", authzen.PathSearchResource,
		`{"subject":{"type":"user","id":"user-3"},"action":{"name":"read"},"resource":{"type":"record"},"context":{"time":"2026-11-20T09:30:00Z"}}`,
		`{"results":[{"type":"record","id":"record-1"}]}`,
	}
)

// numbered returns a store of n policies, one for each of n users.
func numbered(n int) fs.FS {
	var policies, entities strings.Builder
	for i := range n {
		fmt.Fprintf(&policies, "@id(\"user-%d-reads\")\npermit (principal == user::\"user-%[1]d\", action == Action::\"read\", resource in folder::\"records\");\n", i)
		fmt.Fprintf(&entities, "{\"uid\":{\"type\":\"user\",\"id\":\"user-%d\"},\"attrs\":{},\"parents\":[]},\n", i)
	}
	entities.WriteString(`{"uid":{"type":"folder","id":"records"},"attrs":{},"parents":[]},
{"uid":{"type":"record","id":"record-1"},"attrs":{"status":"active"},"parents":[{"type":"folder","id":"records"}]}`)
	return fstest.MapFS{
		"users.cedar":   {Data: []byte(policies.String())},
		"entities.json": {Data: []byte("[" + entities.String() + "]")},
		"schema.cedarschema": {Data: []byte(`entity user { role?: String };
entity folder;
entity record in [folder] { status?: String };
action read appliesTo { principal: [user], resource: [record], context: { time?: String } };
`)},
	}
}

// benchBody is a request that one of the numbered policies permits.
const benchBody = `{"subject":{"type":"user","id":"user-3","properties":{"role":"editor"}},"action":{"name":"read"},"resource":{"type":"record","id":"record-1"},"context":{"time":"2026-11-20T09:30:00Z"}}`
