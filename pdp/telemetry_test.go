package pdp_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A decision belongs to the trace that its PEP names, including its log entry.
func TestTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	s := start(t, pdp.Config{Telemetry: pdp.Telemetry{Traces: trace.NewTracerProvider(trace.WithSpanProcessor(spans))}})
	const traceID, spanID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.main+authzen.PathEvaluation, strings.NewReader(aliceReads))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-"+traceID+"-"+spanID+"-01")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	s.stop(t)

	parents := map[string]string{} // by name of the span
	server := ""
	for _, span := range spans.Ended() {
		if got := span.SpanContext().TraceID().String(); got != traceID {
			t.Errorf("%s is of trace %s", span.Name(), got)
		}
		parents[span.Name()] = span.Parent().SpanID().String()
		if span.Name() == "POST "+authzen.PathEvaluation {
			server = span.SpanContext().SpanID().String()
		}
	}
	want := map[string]string{"POST " + authzen.PathEvaluation: spanID, "decide": server, "record": server}
	for name, parent := range want {
		if parents[name] != parent {
			t.Errorf("the parent of %s is %q, want %q", name, parents[name], parent)
		}
	}
	if entries := decided(t, s.state); len(entries) != 1 || entries[0].TraceID != traceID {
		t.Errorf("recorded as %+v", entries)
	}
}

// The log message about a failed request names its trace.
func TestFailuresNameTheirTrace(t *testing.T) {
	var program output
	s := start(t, pdp.Config{Limits: pdp.Limits{Deadline: time.Nanosecond}, Log: slog.New(slog.NewTextHandler(&program, nil))})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.main+authzen.PathEvaluation, strings.NewReader(aliceReads))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if !strings.Contains(program.String(), "trace_id=4bf92f3577b34da6a3ce929d0e0e4736") {
		t.Errorf("%s:\n%s", response.Status, program.String())
	}
}

func TestMeasurements(t *testing.T) {
	reader := metric.NewManualReader()
	s := start(t, pdp.Config{Telemetry: pdp.Telemetry{Meters: metric.NewMeterProvider(metric.WithReader(reader))}})
	bobWrites := strings.NewReplacer("alice", "bob", "read", "write").Replace(aliceReads)
	for _, body := range []string{aliceReads, aliceReads, bobWrites, `{`} {
		post(t, http.DefaultClient, s.main+"/tenants/acme"+authzen.PathEvaluation, body)
	}
	lines := collected(t, reader)
	for _, want := range []string{
		"policy_service.decisions decision=allow,kind=evaluation,tenant=acme 2",
		"policy_service.decisions decision=deny,kind=evaluation,tenant=acme 1",
		"policy_service.in_flight  0",
		"policy_service.waiting  0",
		"policy_service.log_queue  0",
		"policy_service.approvals_pending  0",
		"policy_service.capabilities_active  0",
		"policy_service.policies  4",
		"policy_service.policies_stale  0",
		"policy_service.log_entries  4",
		"http.server.request.duration http.response.status_code=200,http.route=/tenants/:tenant/access/v1/evaluation 3",
		"http.server.request.duration http.response.status_code=400,http.route=/tenants/:tenant/access/v1/evaluation 1",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("there is no %q in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

// collected returns the measurements, one on each line: name, attributes, and value or count.
func collected(t *testing.T, reader metric.Reader) []string {
	t.Helper()
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &metrics); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range metrics.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				lines = append(lines, line(m.Name, p.Attributes, p.Value))
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				lines = append(lines, line(m.Name, p.Attributes, p.Value))
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				lines = append(lines, line(m.Name, p.Attributes, int64(p.Count)))
			}
		}
	}
	return lines
}

// Rejected requests are counted.
func TestRejectionsAreCounted(t *testing.T) {
	for reason, limits := range map[string]pdp.Limits{"rate": {TenantRate: 0.001}, "deadline": {Deadline: time.Nanosecond}} {
		reader := metric.NewManualReader()
		s := start(t, pdp.Config{Limits: limits, Telemetry: pdp.Telemetry{Meters: metric.NewMeterProvider(metric.WithReader(reader))}})
		post(t, http.DefaultClient, s.main+authzen.PathEvaluation, aliceReads)
		post(t, http.DefaultClient, s.main+authzen.PathEvaluation, aliceReads)
		want := map[string]string{"rate": "policy_service.shed reason=rate 1", "deadline": "policy_service.shed reason=deadline 2"}[reason]
		if lines := collected(t, reader); !slices.Contains(lines, want) {
			t.Errorf("there is no %q in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

// Disabled telemetry allocates nothing. Enabled telemetry is the control.
func TestDisabledTelemetryCostsNothing(t *testing.T) {
	allocations := func(to pdp.Telemetry) float64 {
		serve, err := pdp.NewMeasured(to)
		if err != nil {
			t.Fatal(err)
		}
		c := echo.New().NewContext(httptest.NewRequest(http.MethodPost, "/", nil), httptest.NewRecorder())
		served := serve(func(echo.Context) error { return nil })
		return testing.AllocsPerRun(100, func() { _ = served(c) })
	}
	if n := allocations(pdp.Telemetry{}); n != 0 {
		t.Errorf("%v allocations where nobody looks", n)
	}
	if allocations(pdp.Telemetry{Meters: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))}) == 0 {
		t.Error("no allocation where somebody does")
	}
}

func line(name string, attributes attribute.Set, value int64) string {
	return name + " " + attributes.Encoded(attribute.DefaultEncoder()) + " " + strconv.FormatInt(value, 10)
}
