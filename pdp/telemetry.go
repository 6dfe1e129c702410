package pdp

import (
	"context"
	"errors"
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
	"github.com/policy-service/policy-service/obligations/approval"
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
	commits   metric.Float64Histogram
	shed      metric.Int64Counter
	meter     metric.Meter
	off       bool // nobody looks
}

// newTelemetry makes the instruments.
func newTelemetry(to Telemetry) (*telemetry, error) {
	off := to.Traces == nil && to.Meters == nil
	if to.Traces == nil {
		to.Traces = tracenoop.NewTracerProvider()
	}
	if to.Meters == nil {
		to.Meters = metricnoop.NewMeterProvider()
	}
	meter := to.Meters.Meter(instrumentation)
	t := &telemetry{tracer: to.Traces.Tracer(instrumentation), meter: meter, off: off}
	var err error
	seconds := func(name, what string) (metric.Float64Histogram, error) {
		return meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what),
			metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5))
	}
	if t.requests, err = seconds("http.server.request.duration", "How long requests took."); err != nil {
		return nil, err
	}
	if t.commits, err = seconds("policy_service.commit_duration", "How long the log took to put what had queued on disk."); err != nil {
		return nil, err
	}
	if t.shed, err = meter.Int64Counter("policy_service.shed",
		metric.WithDescription("Requests that were turned away.")); err != nil {
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

// observe has what is to do, and the state of the policies and of the log,
// measured whenever somebody looks.
func (t *telemetry) observe(engine *evaluation.Engine, log *decisionlog.Log, limits *limiter, approvals *approval.Service) error {
	working, err := t.meter.Int64ObservableGauge("policy_service.in_flight", metric.WithDescription("Requests that are worked on."))
	if err != nil {
		return err
	}
	waiting, err := t.meter.Int64ObservableGauge("policy_service.waiting", metric.WithDescription("Requests that wait to be worked on."))
	if err != nil {
		return err
	}
	queued, err := t.meter.Int64ObservableGauge("policy_service.log_queue", metric.WithDescription("Entries that are not on disk yet."))
	if err != nil {
		return err
	}
	pending, err := t.meter.Int64ObservableGauge("policy_service.approvals_pending", metric.WithDescription("Access Requests that wait for a person."))
	if err != nil {
		return err
	}
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
	_, err = t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		w, q := limits.turns.load()
		o.ObserveInt64(working, int64(w))
		o.ObserveInt64(waiting, int64(q))
		o.ObserveInt64(queued, int64(log.Queued()))
		if n, err := approvals.Pending(ctx); err == nil {
			o.ObserveInt64(pending, int64(n))
		}
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
	}, working, waiting, queued, pending, policies, stale, info, shadowStale, entries)
	return err
}

func zeroOrOne(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// committed measures a commit of the log.
func (t *telemetry) committed(_ int, took time.Duration) {
	if !t.off {
		t.commits.Record(context.Background(), took.Seconds())
	}
}

// reasons are why a request is turned away.
var reasons = []struct {
	err  error
	name string
}{{errOverload, "overload"}, {errTenantRate, "rate"}, {errDeadline, "deadline"}}

// turnedAway counts a request that has no answer for one of the reasons.
func (t *telemetry) turnedAway(ctx context.Context, err error) {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			t.shed.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", r.name)))
		}
	}
}

// recorded counts the decisions of an entry.
func (t *telemetry) recorded(ctx context.Context, e *decisionlog.Entry) {
	if t.off {
		return
	}
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
		if t.off && r.Header.Get("Traceparent") == "" {
			return next(c)
		}
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		if trace.SpanContextFromContext(ctx).IsValid() {
			c.SetRequest(r.WithContext(ctx))
		}
		if err := next(c); err != nil {
			c.Error(err) // so that the status is known
			t.turnedAway(ctx, err)
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
