package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/go-json-experiment/json"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/trace"

	"github.com/policy-service/policy-service/cmd/internal/telemetry"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// An otlpSink sends a log record for each entry to a collector. The body is the line,
// so that an auditor can verify it there.
type otlpSink struct {
	records  collector
	logger   log.Logger
	exporter sdklog.Exporter
}

// newOTLPSink returns a sink with the destination of the environment
// (OTEL_EXPORTER_OTLP_ENDPOINT and the other variables of OpenTelemetry).
func newOTLPSink(ctx context.Context) (*otlpSink, error) {
	if !telemetry.HasEndpoint("LOGS") {
		return nil, errors.New("OTEL_EXPORTER_OTLP_ENDPOINT does not say where to")
	}
	if err := telemetry.Check(slices.DeleteFunc(os.Environ(), func(v string) bool { return v == "OTEL_LOGS_EXPORTER=otlp" })); err != nil {
		return nil, err
	}
	about, err := telemetry.NewResource(ctx, service, version)
	if err != nil {
		return nil, err
	}
	s := new(otlpSink)
	if s.exporter, err = otlploghttp.New(ctx); err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	provider := sdklog.NewLoggerProvider(sdklog.WithResource(about), sdklog.WithProcessor(&s.records))
	s.logger = provider.Logger("github.com/policy-service/policy-service")
	return s, nil
}

// deliver returns when the collector has accepted all the records.
func (s *otlpSink) deliver(ctx context.Context, lines [][]byte) error {
	s.records.all = nil
	for _, line := range lines {
		var entry decisionlog.Record
		if err := json.Unmarshal(line, &entry); err != nil {
			return fmt.Errorf("read entry: %w", err)
		}
		s.logger.Emit(traceOf(ctx, entry.TraceID), recordOf(&entry, line))
	}
	return s.exporter.Export(ctx, s.records.all)
}

func recordOf(e *decisionlog.Record, line []byte) (r log.Record) {
	r.SetEventName("policy_service." + string(e.Kind))
	r.SetTimestamp(e.Time)
	r.SetSeverity(log.SeverityInfo)
	r.SetBody(attribute.StringValue(string(line)))
	set := func(name, value string) {
		if value != "" {
			r.AddAttributes(attribute.String("policy_service."+name, value))
		}
	}
	r.AddAttributes(attribute.Int64("policy_service.index", e.Index))
	set("id", e.ID)
	set("kind", string(e.Kind))
	set("tenant", e.Tenant)
	set("revision", e.Revision)
	set("caller", e.Caller)
	set("request_id", e.RequestID)
	if e.Result == nil {
		return r
	}
	set("decision", decisionlog.DecisionString(e.Decision))
	if len(e.Policies) > 0 {
		r.AddAttributes(attribute.StringSlice("policy_service.policies", e.Policies))
	}
	if len(e.Errors) > 0 {
		r.SetSeverity(log.SeverityWarn)
	}
	return r
}

// traceOf returns a context in the trace of an entry, if the entry has one.
func traceOf(ctx context.Context, id string) context.Context {
	traceID, err := trace.TraceIDFromHex(id)
	if err != nil {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID}))
}

// A collector collects records, so that deliver sends them and sees the result.
type collector struct{ all []sdklog.Record }

func (c *collector) OnEmit(_ context.Context, r *sdklog.Record) error {
	c.all = append(c.all, r.Clone())
	return nil
}

func (*collector) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (*collector) Shutdown(context.Context) error                         { return nil }
func (*collector) ForceFlush(context.Context) error                       { return nil }
