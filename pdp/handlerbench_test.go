package pdp_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// BenchmarkEvaluation is a request from its header to its answer, without the
// network and without a wait for the disk.
func BenchmarkEvaluation(b *testing.B) {
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
		r := httptest.NewRequest(http.MethodPost, authzen.PathEvaluation, strings.NewReader(benchBody))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}
