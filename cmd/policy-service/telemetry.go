package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/policy-service/policy-service/pdp"
)

// newTelemetry makes a page of measurements and, where the environment says
// where traces and measurements go (OTEL_EXPORTER_OTLP_ENDPOINT and the other
// variables of OpenTelemetry), sends them there. The caller ends it. The page
// names tenants to strangers only if that is said.
func newTelemetry(ctx context.Context, nameTenants bool) (pdp.Telemetry, func(context.Context) error, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	out := pdp.Telemetry{Page: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	if out.PublicPage = out.Page; !nameTenants {
		out.PublicPage = promhttp.HandlerFor(anonymous{registry}, promhttp.HandlerOpts{})
	}
	if telemetryDisabled() {
		return out, func(context.Context) error { return nil }, nil
	}
	if err := checkOpenTelemetry(os.Environ()); err != nil {
		return pdp.Telemetry{}, nil, err
	}
	about, err := newResource(ctx)
	if err != nil {
		return pdp.Telemetry{}, nil, err
	}
	meters, err := newMeters(ctx, registry, about)
	if err != nil {
		return pdp.Telemetry{}, nil, fmt.Errorf("metrics: %w", err)
	}
	out.Meters = meters
	if !exported("TRACES", true) {
		return out, meters.Shutdown, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return pdp.Telemetry{}, nil, fmt.Errorf("traces: %w", err)
	}
	traces := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	out.Traces = traces
	return out, func(ctx context.Context) error { return errors.Join(traces.Shutdown(ctx), meters.Shutdown(ctx)) }, nil
}

// newMeters measures for the page and, where the environment asks for it, for a
// collector.
func newMeters(ctx context.Context, page prometheus.Registerer, about *resource.Resource) (*metric.MeterProvider, error) {
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(page), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	options := []metric.Option{metric.WithReader(reader), metric.WithResource(about)}
	if exported("METRICS", false) {
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, err
		}
		options = append(options, metric.WithReader(metric.NewPeriodicReader(exporter)))
	}
	return metric.NewMeterProvider(options...), nil
}

// exported reports whether the environment has traces or metrics sent: by the
// name of an exporter or, where that alone is enough, of where they go.
func exported(signal string, byEndpoint bool) bool {
	switch os.Getenv("OTEL_" + signal + "_EXPORTER") {
	case "otlp":
		return true
	case "":
		return byEndpoint && endpointFor(signal)
	}
	return false
}

// endpointFor reports whether the environment says where a signal goes.
func endpointFor(signal string) bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// newResource is what this program is to those who get its telemetry.
func newResource(ctx context.Context) (*resource.Resource, error) {
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("policy-service"), semconv.ServiceVersion(version)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return about, nil
}
