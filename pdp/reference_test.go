package pdp_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/pdp"
)

// The page of the metrics has the instruments of the service.
func TestReferencePages(t *testing.T) {
	meter := new(recorder)
	start(t, pdp.Config{Telemetry: pdp.Telemetry{Meters: recorded{meter: meter}}})
	var rows [][]string
	for _, i := range meter.sorted() {
		rows = append(rows, []string{"`" + i.name + "`", i.inPrometheus(), i.kind, i.description})
	}
	docpage.Check(t, "../docs/reference/metrics.md", "metrics", docpage.Table([]string{"metric", "in Prometheus", "kind", "meaning"}, rows))
}

// A recorder makes instruments that measure nothing, and remembers them.
type recorder struct {
	noop.Meter

	mu  sync.Mutex
	all []instrument
}

// A recorded is what has one meter.
type recorded struct {
	noop.MeterProvider
	meter *recorder
}

func (r recorded) Meter(string, ...metric.MeterOption) metric.Meter { return r.meter }

type instrument struct{ name, kind, unit, description string }

// inPrometheus is the name that the Prometheus exporter writes.
func (i instrument) inPrometheus() string {
	name := strings.ReplaceAll(i.name, ".", "_")
	if i.unit == "s" {
		name += "_seconds"
	}
	if i.kind == "counter" {
		name += "_total"
	}
	return name
}

func (r *recorder) add(name, kind string, c interface {
	Description() string
	Unit() string
}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, instrument{name, kind, c.Unit(), c.Description()})
}

func (r *recorder) sorted() []instrument {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(slices.Values(r.all), func(a, b instrument) int { return strings.Compare(a.name, b.name) })
}

func (r *recorder) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	r.add(name, "histogram", metric.NewFloat64HistogramConfig(o...))
	return r.Meter.Float64Histogram(name, o...)
}

func (r *recorder) Int64Counter(name string, o ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	r.add(name, "counter", metric.NewInt64CounterConfig(o...))
	return r.Meter.Int64Counter(name, o...)
}

func (r *recorder) Int64ObservableCounter(name string, o ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	r.add(name, "counter", metric.NewInt64ObservableCounterConfig(o...))
	return r.Meter.Int64ObservableCounter(name, o...)
}

func (r *recorder) Int64ObservableGauge(name string, o ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	r.add(name, "gauge", metric.NewInt64ObservableGaugeConfig(o...))
	return r.Meter.Int64ObservableGauge(name, o...)
}

func (r *recorder) Float64ObservableGauge(name string, o ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	r.add(name, "gauge", metric.NewFloat64ObservableGaugeConfig(o...))
	return r.Meter.Float64ObservableGauge(name, o...)
}
