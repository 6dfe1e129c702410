package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/policy-service/policy-service/conformance/collector"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// clientSpan is the span of a client.
var clientSpan = trace.NewSpanContext(trace.SpanContextConfig{
	TraceID: trace.TraceID{0x4b, 0xf9, 0x2f, 15: 0x36}, SpanID: trace.SpanID{0, 0xf0, 7: 0xb7}, TraceFlags: trace.FlagsSampled,
})

func traceParentOf(span trace.SpanContext) string {
	return fmt.Sprintf("00-%s-%s-01", span.TraceID(), span.SpanID())
}

// tracedServer is a server with the tool echo. It sends what it gets of a call to
// the channel: the header traceparent and the body.
func tracedServer(t *testing.T) (string, <-chan [2]string) {
	t.Helper()
	calls := make(chan [2]string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), "tools/list") {
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":"gw-list","result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"write","inputSchema":{"type":"object"}}]}}`)
			return
		}
		calls <- [2]string{r.Header.Get("Traceparent"), string(body)}
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	}))
	t.Cleanup(server.Close)
	return server.URL, calls
}

// callTraced calls a tool in the client's span.
func callTraced(t *testing.T, url, tool string) {
	t.Helper()
	send(t, url, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"_meta":{"traceparent":%q}}}`, tool, traceParentOf(clientSpan)))
}

// awaitSpans returns the spans of the client's trace once n of them are exported.
func awaitSpans(t *testing.T, c *collector.Collector, n int) []*tracepb.Span {
	t.Helper()
	for range 200 {
		if spans := c.Spans(clientSpan.TraceID()); len(spans) >= n {
			return spans
		}
		time.Sleep(50 * time.Millisecond) // the exporter sends in batches
	}
	t.Fatalf("there are fewer than %d spans: %v", n, c.Spans(clientSpan.TraceID()))
	return nil
}

// awaitMetric waits until the collector has a metric: they come at intervals.
func awaitMetric(t *testing.T, c *collector.Collector, name string) {
	t.Helper()
	for range 200 {
		if slices.Contains(c.Metrics(), name) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("the metrics are %v", c.Metrics())
}

// One trace leads from the client to the decision of the PDP and to the server.
func TestTraces(t *testing.T) {
	c := collector.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
	url, calls := tracedServer(t)
	s := set(t, "", server("desk", url))
	s.serve(t)
	endpoint := "http://" + s.gateway + "/desk/mcp"
	callTraced(t, endpoint, "echo")

	spans := awaitSpans(t, c, 6)
	call, decide, forward := collector.Named(spans, "tools/call echo"), collector.Named(spans, "decide"), collector.Named(spans, "forward")
	decision := collector.Named(spans, "POST "+authzen.PathEvaluation)
	for _, step := range []struct {
		child  *tracepb.Span
		parent []byte
	}{{call, spanID(clientSpan)}, {decide, call.GetSpanId()}, {decision, decide.GetSpanId()}, {forward, call.GetSpanId()}} {
		if step.child == nil || string(step.child.ParentSpanId) != string(step.parent) {
			t.Errorf("the parent is not %x: %v, of %v", step.parent, step.child, spans)
		}
	}
	seen := <-calls
	want := fmt.Sprintf("00-%s-%s-01", clientSpan.TraceID(), hex.EncodeToString(forward.GetSpanId()))
	if seen[0] != want || !strings.Contains(seen[1], want) {
		t.Errorf("the server got %q, want the traceparent %s in the header and in _meta", seen, want)
	}

	awaitMetric(t, c, "mcp_gateway.calls")
	callTraced(t, endpoint, "nowhere")
	spans = awaitSpans(t, c, len(spans)+1)
	refused := spans[slices.IndexFunc(spans, func(s *tracepb.Span) bool { return s.Name == "tools/call" })]
	if text := refused.String(); !strings.Contains(text, `"unknown_tool"`) || strings.Contains(text, "nowhere") {
		t.Errorf("the span of a refused call is %s", text)
	}
}

func spanID(span trace.SpanContext) []byte {
	id := span.SpanID()
	return id[:]
}

// Without a collector the server gets the span of the client: the control.
func TestNoTraces(t *testing.T) {
	url, calls := tracedServer(t)
	s := set(t, "", server("desk", url))
	s.serve(t)
	callTraced(t, "http://"+s.gateway+"/desk/mcp", "echo")
	if seen := <-calls; seen[0] != traceParentOf(clientSpan) || !strings.Contains(seen[1], traceParentOf(clientSpan)) {
		t.Errorf("the server got %q, want the traceparent %s", seen, traceParentOf(clientSpan))
	}
}
