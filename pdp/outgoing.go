package pdp

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// An outgoing transport creates a span for each request that the service sends. It propagates the
// span to the server (W3C Trace Context).
type outgoing struct {
	name   string // name of the spans
	tracer trace.Tracer
	next   http.RoundTripper
}

func (t *telemetry) outgoing(name string, next http.RoundTripper) http.RoundTripper {
	return outgoing{name, t.tracer, next}
}

func (o outgoing) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := o.tracer.Start(r.Context(), o.name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("server.address", r.URL.Hostname())))
	defer span.End()
	if !span.SpanContext().IsValid() {
		return o.next.RoundTrip(r)
	}
	r = r.Clone(ctx)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	response, err := o.next.RoundTrip(r)
	if err != nil {
		span.SetStatus(codes.Error, "no answer")
		return nil, err
	}
	span.SetAttributes(attribute.Int("http.response.status_code", response.StatusCode))
	if response.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, "")
	}
	return response, nil
}
