package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/policy-service/policy-service/pdp"
)

// newTelemetry makes a page of measurements and, where the environment says
// where traces go (OTEL_EXPORTER_OTLP_ENDPOINT and the other variables of
// OpenTelemetry), sends them there. The caller ends it.
func newTelemetry(ctx context.Context) (pdp.Telemetry, func(context.Context) error, error) {
	about, err := newResource(ctx)
	if err != nil {
		return pdp.Telemetry{}, nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	page, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return pdp.Telemetry{}, nil, fmt.Errorf("metrics: %w", err)
	}
	meters := metric.NewMeterProvider(metric.WithReader(page), metric.WithResource(about))
	out := pdp.Telemetry{Meters: meters, Page: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	if !tracesWanted() {
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

// tracesWanted reports whether the environment says where traces go.
func tracesWanted() bool {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return endpointFor("TRACES")
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
