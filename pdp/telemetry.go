package pdp

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// instrumentation names this program as the source of spans and measurements.
const instrumentation = "github.com/policy-service/policy-service"

// A Telemetry is where spans and measurements go. Its zero value is nowhere.
type Telemetry struct {
	Traces trace.TracerProvider
	Meters metric.MeterProvider
	Page   http.Handler // of the admin listener's /metrics; nil for none
}

// telemetry measures requests and what was decided.
type telemetry struct {
	tracer    trace.Tracer
	requests  metric.Float64Histogram
	decisions metric.Int64Counter
	errors    metric.Int64Counter
	shadows   metric.Int64Counter
	meter     metric.Meter
}

// newTelemetry makes the instruments.
func newTelemetry(to Telemetry) (*telemetry, error) {
	if to.Traces == nil {
		to.Traces = tracenoop.NewTracerProvider()
	}
	if to.Meters == nil {
		to.Meters = metricnoop.NewMeterProvider()
	}
	meter := to.Meters.Meter(instrumentation)
	t := &telemetry{tracer: to.Traces.Tracer(instrumentation), meter: meter}
	var err error
	if t.requests, err = meter.Float64Histogram("http.server.request.duration",
		metric.WithUnit("s"), metric.WithDescription("How long requests took."),
		metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)); err != nil {
		return nil, err
	}
	if t.decisions, err = meter.Int64Counter("policy_service.decisions",
		metric.WithDescription("Decisions that were recorded.")); err != nil {
		return nil, err
	}
	if t.errors, err = meter.Int64Counter("policy_service.policy_errors",
		metric.WithDescription("Policies that could not be evaluated.")); err != nil {
		return nil, err
	}
	t.shadows, err = meter.Int64Counter("policy_service.shadow_decisions",
		metric.WithDescription("Decisions that shadow policies made, too."))
	return t, err
}

// observe has the state of the policies and of the log measured whenever
// somebody looks.
func (t *telemetry) observe(engine *evaluation.Engine, log *decisionlog.Log) error {
	policies, err := t.meter.Int64ObservableGauge("policy_service.policies", metric.WithDescription("Policies that decide."))
	if err != nil {
		return err
	}
	stale, err := t.meter.Int64ObservableGauge("policy_service.policies_stale",
		metric.WithDescription("1 while the policy store cannot be loaded and the last good policies decide."))
	if err != nil {
		return err
	}
	info, err := t.meter.Int64ObservableGauge("policy_service.revision_info", metric.WithDescription("The revision that decides; always 1."))
	if err != nil {
		return err
	}
	shadowStale, err := t.meter.Int64ObservableGauge("policy_service.shadow_stale",
		metric.WithDescription("1 while the shadow policies cannot be loaded."))
	if err != nil {
		return err
	}
	entries, err := t.meter.Int64ObservableCounter("policy_service.log_entries", metric.WithDescription("Entries of the decision log."))
	if err != nil {
		return err
	}
	_, err = t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		status := engine.Status()
		o.ObserveInt64(policies, int64(status.Policies))
		o.ObserveInt64(stale, zeroOrOne(status.Stale))
		if status.Revision != "" {
			o.ObserveInt64(info, 1, metric.WithAttributes(attribute.String("revision", status.Revision)))
		}
		if shadow := engine.ShadowStatus(); !shadow.Attempt.IsZero() {
			o.ObserveInt64(shadowStale, zeroOrOne(shadow.Stale))
		}
		o.ObserveInt64(entries, log.Head().Size)
		return nil
	}, policies, stale, info, shadowStale, entries)
	return err
}

func zeroOrOne(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// recorded counts the decisions of an entry.
func (t *telemetry) recorded(ctx context.Context, e *decisionlog.Entry) {
	results := e.Evaluations
	if e.Result != nil {
		results = []decisionlog.Result{*e.Result}
	}
	for _, r := range results {
		outcome := "deny"
		if r.Decision {
			outcome = "allow"
		}
		t.decisions.Add(ctx, 1, metric.WithAttributes(
			attribute.String("kind", string(e.Kind)), attribute.String("tenant", e.Tenant), attribute.String("decision", outcome)))
		for _, fault := range r.Errors {
			if fault.Policy != "" {
				t.errors.Add(ctx, 1, metric.WithAttributes(attribute.String("policy", fault.Policy), attribute.String("tenant", e.Tenant)))
			}
		}
		if r.Shadow != nil {
			effect := orDefault(evaluation.ShadowEffect(&r), effectNone)
			t.shadows.Add(ctx, 1, metric.WithAttributes(attribute.String("effect", string(effect)), attribute.String("tenant", e.Tenant)))
		}
	}
}

// effectNone is the effect of shadow policies that decide the same.
const effectNone evaluation.Effect = "none"

// serve measures a request, as a part of the trace that it names (W3C Trace
// Context).
func (t *telemetry) serve(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := time.Now()
		r := c.Request()
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		if trace.SpanContextFromContext(ctx).IsValid() {
			c.SetRequest(r.WithContext(ctx))
		}
		if err := next(c); err != nil {
			c.Error(err) // so that the status is known
		}
		status := attribute.Int("http.response.status_code", c.Response().Status)
		route := attribute.String("http.route", c.Path())
		span.SetName(r.Method + " " + c.Path())
		span.SetAttributes(status, route)
		if c.Response().Status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		t.requests.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(status, route))
		return nil
	}
}

// traceID is the trace that a request belongs to, or "".
func traceID(ctx context.Context) string {
	if s := trace.SpanContextFromContext(ctx); s.HasTraceID() {
		return s.TraceID().String()
	}
	return ""
}
