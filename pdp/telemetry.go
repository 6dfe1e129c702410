package pdp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
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
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/pdp/admission"
	"github.com/policy-service/policy-service/pdp/rates"
)

// instrumentation is the scope of this program's spans and metrics.
const instrumentation = "github.com/policy-service/policy-service"

// A Telemetry has the destinations of spans and metrics. Its zero value discards them.
type Telemetry struct {
	Traces trace.TracerProvider
	Meters metric.MeterProvider
	Page   http.Handler // handler of /metrics on the admin listener; nil for none

	// PublicPage replaces Page, if callers are authenticated, for callers who may not see every
	// tenant. Without it they get status 403.
	PublicPage http.Handler
}

// telemetry records spans and metrics of requests and decisions.
type telemetry struct {
	tracer    trace.Tracer
	requests  metric.Float64Histogram
	decisions metric.Int64Counter
	errors    metric.Int64Counter
	shadows   metric.Int64Counter
	commits   metric.Float64Histogram
	shed      metric.Int64Counter

	notifications metric.Int64Counter
	meter         metric.Meter
	off           bool // no metrics are exported

	lastHour   rates.Ring
	unrecorded atomic.Pointer[unrecorded] // the last run; nil for none
	changes    shadowTally
	shadow     func() evaluation.Status // of the shadow policies
	traces     bool                     // spans are exported

	tenants  tenantNames
	outcomes attributeSets[outcomeKey]
	routes   attributeSets[routeKey]
}

// An outcomeKey identifies the attributes of a decision.
type outcomeKey struct {
	kind             decisionlog.Kind
	tenant, decision string
}

func (k outcomeKey) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("kind", string(k.kind)), attribute.String("tenant", k.tenant), attribute.String("decision", k.decision),
	}
}

// A routeKey identifies the attributes of a request.
type routeKey struct {
	route  string
	status int
}

func (k routeKey) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{attribute.Int("http.response.status_code", k.status), attribute.String("http.route", k.route)}
}

// attributeSets caches attribute sets. Creating one takes longer than a measurement.
type attributeSets[K interface {
	comparable
	attributes() []attribute.KeyValue
}] struct {
	kept sync.Map // maps a K to its metric.MeasurementOption
	size atomic.Int64
}

// maxSets is the capacity of the cache. Tenant names are unbounded.
const maxSets = 4096

func (s *attributeSets[K]) of(k K) metric.MeasurementOption {
	if kept, ok := s.kept.Load(k); ok {
		return kept.(metric.MeasurementOption)
	}
	made := metric.WithAttributeSet(attribute.NewSet(k.attributes()...))
	if s.size.Add(1) <= maxSets {
		s.kept.Store(k, made)
	}
	return made
}

// tenantNames limits the tenant names in metrics. Each name adds series, and clients can invent
// names.
type tenantNames struct {
	policies func() *snapshot.Snapshots // nil for none

	mu   sync.Mutex
	seen map[string]bool // used if the store has no tenants
}

// maxNames is the number of tenants with series of their own if the store does not list its
// tenants.
const maxNames = 256

// of returns a tenant's name, or "*" for a tenant without series of its own.
func (n *tenantNames) of(tenant string) string {
	if tenant == "" || n.policies == nil {
		return tenant
	}
	store := n.policies()
	switch {
	case store == nil:
		return admission.UnknownTenants
	case !store.HasTenants():
		return n.first(tenant)
	}
	if _, err := store.For(tenant); err != nil {
		return admission.UnknownTenants
	}
	return tenant
}

// first returns the name of a tenant that is among the first maxNames.
func (n *tenantNames) first(tenant string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.seen[tenant]:
		return tenant
	case len(n.seen) >= maxNames:
		return admission.UnknownTenants
	case n.seen == nil:
		n.seen = map[string]bool{}
	}
	n.seen[tenant] = true
	return tenant
}

// newTelemetry creates the instruments.
func newTelemetry(to Telemetry) (*telemetry, error) {
	off, traces := to.Traces == nil && to.Meters == nil, to.Traces != nil
	if to.Traces == nil {
		to.Traces = tracenoop.NewTracerProvider()
	}
	if to.Meters == nil {
		to.Meters = metricnoop.NewMeterProvider()
	}
	meter := to.Meters.Meter(instrumentation)
	t := &telemetry{tracer: to.Traces.Tracer(instrumentation), meter: meter, off: off, traces: traces}
	var err error
	seconds := func(name, what string) (metric.Float64Histogram, error) {
		return meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what),
			metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5))
	}
	if t.requests, err = seconds("http.server.request.duration", "Time from reading a request to writing its answer."); err != nil {
		return nil, err
	}
	if t.commits, err = seconds("policy_service.commit_duration", "Time to write and flush the queued entries of the decision log."); err != nil {
		return nil, err
	}
	if t.shed, err = meter.Int64Counter("policy_service.shed",
		metric.WithDescription("Requests refused because of a limit.")); err != nil {
		return nil, err
	}
	if t.notifications, err = meter.Int64Counter("policy_service.notifications",
		metric.WithDescription("Attempts to notify approvers.")); err != nil {
		return nil, err
	}
	if t.decisions, err = meter.Int64Counter("policy_service.decisions",
		metric.WithDescription("Decisions on disk.")); err != nil {
		return nil, err
	}
	if t.errors, err = meter.Int64Counter("policy_service.policy_errors",
		metric.WithDescription("Evaluations of a policy that ended in an error.")); err != nil {
		return nil, err
	}
	t.shadows, err = meter.Int64Counter("policy_service.shadow_decisions",
		metric.WithDescription("Decisions that the shadow policies evaluated."))
	return t, err
}

// observe registers gauges of the load and of the states of policies and log. Each is measured when a
// reader collects the metrics.
func (t *telemetry) observe(engine *evaluation.Engine, log *decisionlog.Log, limits *limiter, approvals *approval.Service, capabilities *capability.Service, supplied *policyLoader) error {
	t.tenants.policies, t.shadow = engine.Snapshots, engine.ShadowStatus
	return errors.Join(t.observeLoad(log, limits, approvals, capabilities), t.observePolicies(engine, supplied))
}

// observeLoad registers what waits, and the length of the log.
func (t *telemetry) observeLoad(log *decisionlog.Log, limits *limiter, approvals *approval.Service, capabilities *capability.Service) error {
	_, working := t.meter.Int64ObservableGauge("policy_service.in_flight",
		metric.WithDescription("Requests in processing."),
		measured(func() int64 { n, _ := limits.queue.Load(); return int64(n) }))
	_, waiting := t.meter.Int64ObservableGauge("policy_service.waiting",
		metric.WithDescription("Requests in the admission queue."),
		measured(func() int64 { _, n := limits.queue.Load(); return int64(n) }))
	_, queued := t.meter.Int64ObservableGauge("policy_service.log_queue",
		metric.WithDescription("Entries of the decision log in memory, not yet on disk."),
		measured(func() int64 { return int64(log.Queued()) }))
	_, entries := t.meter.Int64ObservableCounter("policy_service.log_entries",
		metric.WithDescription("Entries of the decision log, on disk."),
		measured(func() int64 { return log.Head().Size }))
	_, pending := t.meter.Int64ObservableGauge("policy_service.approvals_pending",
		metric.WithDescription("Access requests that await a person's decision."),
		metric.WithInt64Callback(func(ctx context.Context, o metric.Int64Observer) error {
			n, err := approvals.Pending(ctx)
			if err == nil {
				o.Observe(int64(n))
			}
			return nil
		}))
	_, active := t.meter.Int64ObservableGauge("policy_service.capabilities_active",
		metric.WithDescription("Capabilities that are active."),
		measured(func() int64 { return int64(capabilities.Active()) }))
	return errors.Join(working, waiting, queued, entries, pending, active)
}

// observePolicies registers the states of the active and of the shadow policies.
func (t *telemetry) observePolicies(engine *evaluation.Engine, supplied *policyLoader) error {
	_, policies := t.meter.Int64ObservableGauge("policy_service.policies",
		metric.WithDescription("Policies in force."),
		measured(func() int64 { return int64(engine.Status().Policies) }))
	_, stale := t.meter.Int64ObservableGauge("policy_service.policies_stale",
		metric.WithDescription("1 while the last change of the policy store is refused and the previous policies stay in force."),
		measured(func() int64 { return zeroOrOne(engine.Status().Stale) }))
	_, unapplied := t.meter.Float64ObservableGauge("policy_service.policies_pending", metric.WithUnit("s"),
		metric.WithDescription("Age of a change of the policy store that is neither in force nor refused; 0 without one."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(supplied.pending(engine, view{}).Seconds())
			return nil
		}))
	_, info := t.meter.Int64ObservableGauge("policy_service.revision_info",
		metric.WithDescription("Always 1; the label names the revision in force."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			if revision := engine.Status().Revision; revision != "" {
				o.Observe(1, metric.WithAttributes(attribute.String("revision", revision)))
			}
			return nil
		}))
	_, shadowStale := t.meter.Int64ObservableGauge("policy_service.shadow_stale",
		metric.WithDescription("1 while the last change of the shadow policies is refused."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			if shadow := engine.ShadowStatus(); !shadow.Attempt.IsZero() {
				o.Observe(zeroOrOne(shadow.Stale))
			}
			return nil
		}))
	return errors.Join(policies, stale, unapplied, info, shadowStale)
}

// measured observes the value of an instrument without attributes.
func measured(value func() int64) metric.Int64ObservableOption {
	return metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(value())
		return nil
	})
}

func zeroOrOne(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// committed records the duration of a commit.
func (t *telemetry) committed(_ int, took time.Duration) {
	if !t.off {
		t.commits.Record(context.Background(), took.Seconds())
	}
}

// reasons maps errors to the reasons of rejections in metrics.
var reasons = []struct {
	err  error
	name string
}{{errOverload, "overload"}, {errTenantRate, "rate"}, {admission.ErrDeadline, "deadline"}, {snapshot.ErrTooLong, "deadline"}, {admission.ErrMemory, "memory"}}

// turnedAway counts a request that was rejected for one of the reasons.
func (t *telemetry) turnedAway(ctx context.Context, err error) {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			t.shed.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", r.name)))
		}
	}
}

// recorded counts the decisions of an entry.
func (t *telemetry) recorded(ctx context.Context, e *decisionlog.Entry) {
	t.count(e)
	if t.off {
		return
	}
	if e.TraceID == "" {
		ctx = context.Background() // without traces, exemplars need no span
	}
	tenant := t.tenants.of(e.Tenant)
	for _, r := range resultsOf(e) {
		t.decisions.Add(ctx, 1, t.outcomes.of(outcomeKey{e.Kind, tenant, decisionlog.DecisionString(r.Decision)}))
		for _, fault := range r.Errors {
			if fault.Policy != "" {
				t.errors.Add(ctx, 1, metric.WithAttributes(attribute.String("policy", fault.Policy), attribute.String("tenant", tenant)))
			}
		}
		if r.Shadow != nil {
			effect := cmp.Or(evaluation.ShadowEffect(&r), effectNone)
			t.shadows.Add(ctx, 1, metric.WithAttributes(attribute.String("effect", string(effect)), attribute.String("tenant", tenant)))
		}
	}
}

// count counts the decisions of an entry for the status of the service. It allocates nothing, except
// for decisions of the shadow policies.
func (t *telemetry) count(e *decisionlog.Entry) {
	var c rates.Counts
	shadowed := false
	count := func(r *decisionlog.Result) {
		if r.Decision {
			c.Allowed++
		} else {
			c.Denied++
		}
		for i := range r.Errors {
			if r.Errors[i].Policy != "" {
				c.PolicyErrors++
			}
		}
		shadowed = shadowed || r.Shadow != nil
	}
	if e.Result != nil {
		count(e.Result)
	}
	for i := range e.Evaluations {
		count(&e.Evaluations[i])
	}
	if c.Allowed+c.Denied == 0 {
		return
	}
	now := time.Now()
	t.lastHour.Decided(now, now.Sub(e.Time), c)
	if shadowed && t.shadow != nil {
		t.changes.add(t.shadow().Revision, t.tenants.of(e.Tenant), e)
	}
}

// failed counts a request without a decision because of a failure of the service.
func (t *telemetry) failed(err error) {
	if err == nil || errors.Is(err, context.Canceled) || describe(err).Status < http.StatusInternalServerError {
		return
	}
	now := time.Now()
	t.lastHour.Failed(now)
	if errors.Is(err, decisionlog.ErrUnavailable) {
		t.unrecorded.Store(t.unrecorded.Load().next(now, t.lastHour.Answers()))
	}
}

// effectNone is the effect if the shadow policies decide the same.
const effectNone replay.Effect = "none"

// serve measures a request and joins the trace that it names (W3C Trace Context).
func (t *telemetry) serve(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := time.Now()
		r := c.Request()
		ctx, span := context.Background(), trace.Span(tracenoop.Span{})
		switch named := r.Header.Get("Traceparent") != ""; {
		case t.traces || named:
			ctx, span = t.begin(c, named)
			defer span.End()
		case t.off:
			err := next(c)
			t.failed(err)
			return err
		}
		if err := next(c); err != nil {
			t.failed(err)
			c.Error(err) // sets the status
			t.turnedAway(ctx, err)
		}
		asked := routeKey{c.Path(), c.Response().Status}
		if span.IsRecording() {
			span.SetName(r.Method + " " + asked.route)
			span.SetAttributes(asked.attributes()...)
		}
		if asked.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		t.requests.Record(ctx, time.Since(start).Seconds(), t.routes.of(asked))
		return nil
	}
}

// begin starts the span of a request. With named set it joins the trace that the request names.
func (t *telemetry) begin(c echo.Context, named bool) (context.Context, trace.Span) {
	r := c.Request()
	ctx := r.Context()
	if named {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
	}
	ctx, span := t.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
	if trace.SpanContextFromContext(ctx).IsValid() {
		c.SetRequest(r.WithContext(ctx))
	}
	return ctx, span
}

// traceID returns the trace id of the request, or "".
func traceID(ctx context.Context) string {
	if s := trace.SpanContextFromContext(ctx); s.HasTraceID() {
		return s.TraceID().String()
	}
	return ""
}
