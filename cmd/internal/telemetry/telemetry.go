// Package telemetry exports the spans and metrics of all programs, as the
// environment variables of OpenTelemetry say.
//
// The law it keeps: a variable that we do not support is an error.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// A Telemetry exports the spans and metrics of a program.
type Telemetry struct {
	Page   *prometheus.Registry // of the page of metrics, with those of the Go runtime and of the process
	Meters metric.MeterProvider // nil with OTEL_SDK_DISABLED
	Traces trace.TracerProvider // nil without a destination of spans
	end    []func(context.Context) error
}

// Open creates the exporters that the environment names
// (OTEL_EXPORTER_OTLP_ENDPOINT and the other variables of OpenTelemetry). The
// caller closes the Telemetry.
func Open(ctx context.Context, service, version string) (*Telemetry, error) {
	t := &Telemetry{Page: prometheus.NewRegistry()}
	t.Page.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if isDisabled() {
		return t, nil
	}
	if err := Check(os.Environ()); err != nil {
		return nil, err
	}
	about, err := NewResource(ctx, service, version)
	if err != nil {
		return nil, err
	}
	if err := t.addMeters(ctx, about); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if !isExported("TRACES", true) {
		return t, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	traces := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	t.Traces, t.end = traces, append(t.end, traces.Shutdown)
	return t, nil
}

// Close sends what has not been sent yet.
func (t *Telemetry) Close(ctx context.Context) error {
	var errs []error
	for _, end := range t.end {
		errs = append(errs, end(ctx))
	}
	return errors.Join(errs...)
}

// addMeters measures for the page and, if the environment asks for it, for a
// collector.
func (t *Telemetry) addMeters(ctx context.Context, about *resource.Resource) error {
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(t.Page), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return err
	}
	options := []sdkmetric.Option{sdkmetric.WithReader(reader), sdkmetric.WithResource(about)}
	if isExported("METRICS", false) {
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return err
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
	}
	meters := sdkmetric.NewMeterProvider(options...)
	t.Meters, t.end = meters, append(t.end, meters.Shutdown)
	return nil
}

// NewResource describes the program to those who get its telemetry.
func NewResource(ctx context.Context, service, version string) (*resource.Resource, error) {
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceVersion(version)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return about, nil
}

// isExported reports whether the environment wants a signal sent: by the name of
// an exporter or, with byEndpoint, by an endpoint alone.
func isExported(signal string, byEndpoint bool) bool {
	switch os.Getenv("OTEL_" + signal + "_EXPORTER") {
	case "otlp":
		return true
	case "":
		return byEndpoint && HasEndpoint(signal)
	}
	return false
}

// HasEndpoint reports whether the environment has the endpoint of a signal:
// TRACES, METRICS or LOGS.
func HasEndpoint(signal string) bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}
