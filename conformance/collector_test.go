package conformance_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/policy-service/policy-service/conformance/collector"
	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A decision is in the trace that its PEP began, down to when it was on disk, at
// a collector that the standard variables name. What the service sends of itself
// says which trace it is of, too.
func TestCollector(t *testing.T) {
	c := collector.New(t)
	command := serveCommand(t, unpack(t, "certification"), t.TempDir(), "--log.checkpoint-url", c.URL+"/kept")
	command.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_METRICS_EXPORTER=otlp",
		"OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_METRIC_EXPORT_INTERVAL=100", "OTEL_SERVICE_NAME=pdp-1")
	s := launch(t, command)

	pep := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0x4b, 0xf9, 0x2f, 15: 0x36}, SpanID: trace.SpanID{0, 0xf0, 7: 0xb7}, TraceFlags: trace.FlagsSampled,
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+authzen.PathEvaluation, strings.NewReader(readsRecord1))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", fmt.Sprintf("00-%s-%s-01", pep.TraceID(), pep.SpanID()))
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	response.Body.Close()

	process.Eventually(t, "the trace has three spans", func() bool { return len(c.Spans(pep.TraceID())) == 3 })
	spans := c.Spans(pep.TraceID())
	server, decide, record := collector.Named(spans, "POST "+authzen.PathEvaluation), collector.Named(spans, "decide"), collector.Named(spans, "record")
	if server == nil || decide == nil || record == nil {
		t.Fatalf("the spans are %v", spans)
	}
	parent := pep.SpanID()
	if string(server.ParentSpanId) != string(parent[:]) || string(decide.ParentSpanId) != string(server.SpanId) || string(record.ParentSpanId) != string(server.SpanId) {
		t.Errorf("the spans do not belong to each other: %v", spans)
	}
	if record.StartTimeUnixNano < decide.EndTimeUnixNano || server.EndTimeUnixNano < record.EndTimeUnixNano {
		t.Error("the decision was not recorded before it was answered")
	}
	show(t, pep, server, decide, record)

	process.Eventually(t, "a checkpoint says its trace", func() bool {
		return strings.HasPrefix(c.Posted("/kept"), "00-")
	})
	process.Eventually(t, "measurements are exported", func() bool {
		all := c.Metrics()
		return slices.Contains(all, "policy_service.decisions") && slices.Contains(all, "policy_service.commit_duration")
	})
	if id := s.entryOf(t, response.Header.Get("Decision-ID")); !strings.Contains(id, `"trace_id":"`+pep.TraceID().String()+`"`) {
		t.Errorf("the entry does not name the trace: %s", id)
	}
	if page := s.page(t); !strings.Contains(page, "policy_service_commit_duration_seconds_count") {
		t.Errorf("the page of measurements has no commits:\n%s", page)
	} else {
		t.Logf("the page of measurements:\n%s", page)
	}
}

// Nothing is exported where the variables say so: the control.
func TestNoCollector(t *testing.T) {
	for _, variable := range []string{"OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=none"} {
		c := collector.New(t)
		command := serveCommand(t, unpack(t, "certification"), t.TempDir())
		command.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_BSP_SCHEDULE_DELAY=10", variable)
		ended := asked(t, command)
		if c.AllSpans() > 0 || len(c.Metrics()) > 0 {
			t.Errorf("%s: %d spans and %d measurements of a service that has ended with %v", variable, c.AllSpans(), len(c.Metrics()), ended)
		}
	}
}

// asked asks a server once, and ends it.
func asked(t *testing.T, command *exec.Cmd) *os.ProcessState {
	t.Helper()
	s := launch(t, command)
	if status, body := s.post(t, authzen.PathEvaluation, []byte(readsRecord1)); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	s.End(t)
	return s.Process.ProcessState
}

// show logs a trace as it is.
func show(t *testing.T, pep trace.SpanContext, spans ...*tracepb.Span) {
	t.Helper()
	t.Logf("trace %s, the PEP's span %s", pep.TraceID(), pep.SpanID())
	for _, span := range spans {
		t.Logf("  %-34s span %s parent %s +%d us, %d us", span.Name, id(span.SpanId), id(span.ParentSpanId),
			(span.StartTimeUnixNano-spans[0].StartTimeUnixNano)/1000, (span.EndTimeUnixNano-span.StartTimeUnixNano)/1000)
	}
}

func id(b []byte) string { return fmt.Sprintf("%x", b) }

// entryOf is the line of the log with an id.
func (s *server) entryOf(t *testing.T, id string) string {
	t.Helper()
	for line := range s.exported(t) {
		if strings.Contains(line, id) {
			return line
		}
	}
	return ""
}
