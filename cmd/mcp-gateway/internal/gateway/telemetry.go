package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	exporters "github.com/policy-service/policy-service/cmd/internal/telemetry"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/approval"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
)

// telemetry measures what becomes of calls. Nothing that a client or a server
// says is a label: servers are those of the configuration, methods those that the
// gateway knows, reasons its own.
type telemetry struct {
	page        http.Handler // of the admin listener's /metrics
	meter       metric.Meter
	tracer      trace.Tracer // nil if spans are not exported
	end         func(context.Context) error
	calls       metric.Int64Counter
	pdpDuration metric.Float64Histogram

	breaker atomic.Int64 // an index of breakerStates
}

// instrumentation is the scope of the gateway's metrics and spans.
const instrumentation = "github.com/policy-service/policy-service/cmd/mcp-gateway"

// flushTimeout bounds the time in which the last spans and metrics are sent.
const flushTimeout = 2 * time.Second

// close sends what has not been sent yet. A collector that does not answer is no
// failure of the gateway.
func (t *telemetry) close(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.end(ctx); err != nil {
		log.Warn("the last spans and metrics were not sent", "error", err)
	}
}

// breakerStates are those of the circuit breaker, as it calls them.
var breakerStates = []string{"closed", "half-open", "open"}

func newTelemetry(version string) (*telemetry, error) {
	exported, err := exporters.Open(context.Background(), "mcp-gateway", version)
	if err != nil {
		return nil, err
	}
	if exported.Meters == nil {
		exported.Meters = noop.NewMeterProvider()
	}
	t := &telemetry{
		page: promhttp.HandlerFor(exported.Page, promhttp.HandlerOpts{}), meter: exported.Meters.Meter(instrumentation), end: exported.Close,
	}
	if exported.Traces != nil {
		t.tracer = exported.Traces.Tracer(instrumentation)
	}
	if t.calls, err = t.meter.Int64Counter("mcp_gateway.calls", metric.WithDescription("Decided calls, by outcome.")); err != nil {
		return nil, err
	}
	t.pdpDuration, err = t.meter.Float64Histogram("mcp_gateway.pdp_duration", metric.WithUnit("s"), metric.WithDescription("Time of the PDP's decisions."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5))
	return t, err
}

// observe has the state of the gateway measured whenever somebody looks.
func (t *telemetry) observe(g *gateway) error {
	breaker, err := t.meter.Int64ObservableGauge("mcp_gateway.pdp_breaker",
		metric.WithDescription("State of the circuit breakers, the most open of all tenants: 0 closed, 1 half-open, 2 open."))
	if err != nil {
		return err
	}
	waiting, err := t.meter.Int64ObservableGauge("mcp_gateway.calls_waiting", metric.WithDescription("Calls that wait for a person's decision."))
	if err != nil {
		return err
	}
	quarantined, err := t.meter.Int64ObservableGauge("mcp_gateway.tools_quarantined",
		metric.WithDescription("Tools in quarantine until their definition is accepted."))
	if err != nil {
		return err
	}
	_, err = t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(breaker, t.breaker.Load())
		if n, err := g.approvals.Waiting(); err == nil {
			o.ObserveInt64(waiting, int64(n))
		}
		for _, s := range g.rules.Load().cfg.Servers {
			if n, err := g.tools.Quarantined(s.Name); err == nil {
				o.ObserveInt64(quarantined, int64(n), metric.WithAttributes(attribute.String("server", s.Name)))
			}
		}
		return nil
	}, breaker, waiting, quarantined)
	return err
}

// breakerChanged takes the most open state of the circuit breakers.
func (t *telemetry) breakerChanged(state string) {
	t.breaker.Store(int64(max(0, slices.Index(breakerStates, state))))
}

// pdpAnswered implements [enforce.PDPConfig.Asked].
func (t *telemetry) pdpAnswered(took time.Duration, err error) {
	result := "decided"
	switch {
	case errors.Is(err, enforce.ErrPaused):
		result = "paused"
	case err != nil:
		result = "failed"
	}
	t.pdpDuration.Record(context.Background(), took.Seconds(), metric.WithAttributes(attribute.String("result", result)))
}

// outcomeWaiting and outcomeRefused are the outcomes of calls that are not
// forwarded; the others are those of [enforce.Trail].
const (
	outcomeWaiting = "waiting"
	outcomeRefused = "refused"
)

// other is the method of calls that are of none the gateway knows.
const other = "other"

var methods = slices.Concat(coaz.Methods(), coaz.ServerRequests())

// count counts a call.
func (t *telemetry) count(c *enforce.Call, outcome, reason string) {
	method := c.Message.Method
	if _, known := slices.BinarySearch(methods, method); !known {
		method = other
	}
	labels := []attribute.KeyValue{attribute.String("server", c.Server), attribute.String("method", method), attribute.String("outcome", outcome)}
	if reason != "" {
		labels = append(labels, attribute.String("reason", reason))
	}
	t.calls.Add(context.Background(), 1, metric.WithAttributes(labels...))
}

// A counted trail counts what it keeps of calls.
type counted struct {
	enforce.Trail
	*telemetry
	health *health
}

// Begin implements [enforce.Trail].
func (c *counted) Begin(e *enforce.Entry) (string, func(how string), error) {
	id, ended, err := c.Trail.Begin(e)
	if err != nil {
		return "", nil, err
	}
	return id, func(how string) {
		ended(how)
		c.health.ended(e.Call.Server, how)
		c.count(e.Call, how, e.Observed.ReasonOrNone())
	}, nil
}

// Refuse is that of [enforce.Trail].
func (c *counted) Refuse(e *enforce.Entry, reason string) {
	c.Trail.Refuse(e, reason)
	if reason == enforce.ReasonPending {
		c.count(e.Call, outcomeWaiting, "")
		return
	}
	c.count(e.Call, outcomeRefused, reason)
}

// countedApprovals count the calls that begin to wait.
type countedApprovals struct {
	*approval.Service
	*telemetry
}

// Suspend implements [enforce.Approver].
func (a *countedApprovals) Suspend(ctx context.Context, d *enforce.DeniedCall) (*enforce.Disposition, error) {
	disposition, err := a.Service.Suspend(ctx, d)
	if err == nil && disposition.Answer != nil {
		a.count(d.Call, outcomeWaiting, "")
	}
	return disposition, err
}

// A resumed trail is of calls that have waited: those that are carried out are
// counted, and no refusals, of which the gate tells where anyone is refused.
type resumed struct {
	*counted
	rules *currentRules
}

// Begin implements [enforce.Trail].
func (r resumed) Begin(e *enforce.Entry) (string, func(how string), error) {
	r.rules.Load().limits.countLate(e.Call)
	return r.counted.Begin(e)
}

// Refuse is that of [enforce.Trail].
func (r resumed) Refuse(e *enforce.Entry, reason string) { r.Trail.Refuse(e, reason) }

// admin are the endpoints of the admin listener, for who addresses this host.
func (g *gateway) admin(address string) http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /livez", livez)
	routes.HandleFunc("GET /readyz", g.readyzVerbose)
	routes.Handle("GET /metrics", g.telemetry.page)
	g.trail.Routes(routes)
	local := hosts(nil, address)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(local, strings.ToLower(r.Host)) {
			http.Error(w, "this host is not served", http.StatusForbidden)
			return
		}
		routes.ServeHTTP(w, r)
	})
}
