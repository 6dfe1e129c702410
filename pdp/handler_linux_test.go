package pdp_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
)

// BenchmarkHandler is a request from its header to its answer, without the
// network and without a wait for the disk.
func BenchmarkHandler(b *testing.B) {
	for _, a := range []asked{askedSingle, askedBatch, askedSearch} {
		b.Run(a.name, func(b *testing.B) { benchmarkHandler(b, a) })
	}
}

func benchmarkHandler(b *testing.B, a asked) {
	dir := b.TempDir()
	log, err := decisionlog.Open(dir, decisionlog.Config{Durability: decisionlog.Batched, Queue: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	handler, _, err := pdp.NewHandlers(dir, numbered(10), pdp.Limits{}, log, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, a.path, strings.NewReader(a.body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Body.String() != a.answer {
			b.Fatal(w.Body)
		}
	}
}
