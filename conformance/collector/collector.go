// Package collector is a collector of OpenTelemetry for tests: it receives what
// programs export over OTLP/HTTP.
package collector

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A Collector receives what programs export, and any other POST request.
type Collector struct {
	*httptest.Server

	mu      sync.Mutex
	spans   []*tracepb.Span
	metrics map[string]bool   // by name
	posted  map[string]string // traceparent of other requests, by path
}

// New starts a Collector that ends with the test.
func New(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{metrics: make(map[string]bool), posted: make(map[string]string)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = c.receive(r, body)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *Collector) receive(r *http.Request, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.URL.Path {
	case "/v1/traces":
		return c.addSpans(body)
	case "/v1/metrics":
		return c.addMetrics(body)
	}
	c.posted[r.URL.Path] = r.Header.Get("Traceparent")
	return nil
}

func (c *Collector) addSpans(body []byte) error {
	var batch collectortrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &batch); err != nil {
		return err
	}
	for _, resource := range batch.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return nil
}

func (c *Collector) addMetrics(body []byte) error {
	var batch collectormetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(body, &batch); err != nil {
		return err
	}
	for _, resource := range batch.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				c.metrics[m.Name] = true
			}
		}
	}
	return nil
}

// Spans returns the spans of a trace, in the order of their starts.
func (c *Collector) Spans(of trace.TraceID) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*tracepb.Span
	for _, span := range c.spans {
		if string(span.TraceId) == string(of[:]) {
			found = append(found, span)
		}
	}
	slices.SortStableFunc(found, func(a, b *tracepb.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	return found
}

// Named returns the first span of that name, or nil.
func Named(spans []*tracepb.Span, name string) *tracepb.Span {
	for _, span := range spans {
		if span.Name == name {
			return span
		}
	}
	return nil
}

// Metrics returns the names of the metrics that have been exported.
func (c *Collector) Metrics() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.metrics))
}

// AllSpans returns the number of spans that have been exported.
func (c *Collector) AllSpans() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spans)
}

// Posted returns the traceparent of a request to another path, or "".
func (c *Collector) Posted(path string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.posted[path]
}
