package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A page for strangers names no tenant and no policy, and counts all the same.
func TestAnonymousMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total"}, []string{"decision", "tenant"})
	faults := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errors_total"}, []string{"policy", "tenant"})
	entries := prometheus.NewCounter(prometheus.CounterOpts{Name: "entries_total"})
	seats := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seats"}, []string{"tenant"})
	registry.MustRegister(decisions, faults, entries, seats)
	decisions.WithLabelValues("allow", "acme").Add(2)
	decisions.WithLabelValues("allow", "globex").Add(3)
	decisions.WithLabelValues("deny", "globex").Add(4)
	faults.WithLabelValues("acme-merger", "acme").Add(1)
	entries.Add(9)
	seats.WithLabelValues("acme").Set(7)
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(anonymous{registry}, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	page := recorder.Body.String()
	for _, want := range []string{`decisions_total{decision="allow"} 5`, `decisions_total{decision="deny"} 4`, "errors_total 1", "entries_total 9"} {
		if !strings.Contains(page, "\n"+want+"\n") {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, "acme") || strings.Contains(page, "globex") || strings.Contains(page, "seats") {
		t.Errorf("the page is\n%s", page)
	}
}
