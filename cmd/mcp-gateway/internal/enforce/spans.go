package enforce

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// Attributes of spans. Those of MCP and of generative AI are semantic conventions
// of OpenTelemetry.
const (
	attributeServer  = attribute.Key("mcp_gateway.server")
	attributeOutcome = attribute.Key("mcp_gateway.outcome")
	attributeMethod  = attribute.Key("mcp.method.name")
	attributeTool    = attribute.Key("gen_ai.tool.name")
	attributeError   = attribute.Key("error.type")
)

// outcomeAnswered is the outcome of a call that the gateway answers by itself, and
// outcomeRefused that of a refused call. The others are those of [Trail].
const (
	outcomeAnswered = "answered"
	outcomeRefused  = "refused"
)

// otherMethod names the spans of methods that the protocol does not define, because
// clients can invent names.
const otherMethod = "other"

// startSpan starts the span of a call, in the trace that the client names. The PDP
// and the server get spans below it as their parents.
func (g *Gate) startSpan(ctx context.Context, call *Call) (context.Context, trace.Span) {
	if g.cfg.Tracer == nil {
		return withTrace(ctx, call.TraceParent), noop.Span{}
	}
	method := call.Message.Method
	if !wire.IsDefined(method) {
		method = otherMethod
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceParentName: call.TraceParent})
	ctx, span := g.cfg.Tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attributeServer.String(call.Server), attributeMethod.String(method)))
	return call.propagate(ctx), span
}

// propagate makes the span in ctx the parent of what the PDP and the server do for
// the call. It replaces a traceparent in _meta (SEP-414), too.
func (c *Call) propagate(ctx context.Context) context.Context {
	if c.TraceParent = traceParentOf(ctx); c.TraceParent == "" {
		return ctx
	}
	if c.Params.Meta.TraceParent != "" {
		if m, err := c.Message.WithTraceParent(c.TraceParent); err == nil {
			_ = c.replace(m) // it has been read before
		}
	}
	return withTrace(ctx, c.TraceParent)
}

// traceParentOf returns the traceparent of the span in ctx (W3C Trace Context), or
// "".
func traceParentOf(ctx context.Context) string {
	carrier := make(propagation.MapCarrier)
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceParentName]
}

const traceParentName = "traceparent"

// startChild starts a span below that in ctx, if that one is recorded. The caller
// ends it.
func startChild(ctx context.Context, name string) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, noop.Span{}
	}
	return parent.TracerProvider().Tracer(instrumentation).Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
}

// instrumentation is the scope of the gateway's spans.
const instrumentation = "github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"

// finishWith ends the span of a call with its disposition: at once, or with the
// response of the server, for which it starts a span of its own.
func finishWith(ctx context.Context, span trace.Span, call *Call, d *Disposition) *Disposition {
	switch {
	case !span.IsRecording():
		return d
	case d.Forward == nil:
		endSpan(span, outcomeAnswered)
		return d
	}
	if call.Tool != nil {
		span.SetName(call.Message.Method + " " + call.Params.Name)
		span.SetAttributes(attributeTool.String(call.Params.Name))
	}
	ctx, forwarding := startChild(ctx, "forward")
	isCall := d.Forward == call.Message // and not a request of the gateway's own in its place
	call.propagate(ctx)
	if isCall {
		d.Forward = call.Message
	}
	finish := d.Finish
	d.Finish = func(finishing context.Context, response *wire.Message) *wire.Message {
		outcome := End(call, response)
		endSpan(forwarding, outcome)
		defer endSpan(span, outcome)
		return finish(withTrace(trace.ContextWithSpan(finishing, span), call.TraceParent), response)
	}
	return d
}

func endSpan(span trace.Span, outcome string) {
	span.SetAttributes(attributeOutcome.String(outcome))
	if outcome == Unknown {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// refuse ends the span of a refused call.
func refuse(span trace.Span, reason string) {
	span.SetAttributes(attributeError.String(reason))
	endSpan(span, outcomeRefused)
}
