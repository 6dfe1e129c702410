package pdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/pdp/admission"
	"github.com/policy-service/policy-service/schemas"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// mainRoutes registers the routes of the main listener. Requests below a tenant's path are decided
// by the tenant's policies.
func (s *server) mainRoutes(e *echo.Echo, metadata authzen.Metadata) {
	engine, approvals, auth, limits := s.engine, s.approvals, s.auth, s.limits
	maxBody := cmp.Or(s.config.MaxBody, defaultMaxBody)
	capabilities := &capabilitiesHandler{s.capabilities, limits, maxBody, s.capabilityEndpoint}
	tenant, decisionDeadline := oneTenant(limits.perTenant), limits.deadline
	evaluate, search, request := auth.with(ScopeEvaluate), auth.with(ScopeSearch), auth.with(ScopeRequest)
	for _, base := range []string{"", pathTenant} {
		e.POST(base+authzen.PathEvaluation, handle(limits, maxBody, within(decisionDeadline, engine.Evaluate)), evaluate, tenant)
		e.POST(base+authzen.PathEvaluations, handle(limits, maxBody, within(decisionDeadline, engine.Evaluations)), evaluate, tenant)
		e.POST(base+authzen.PathSearchSubject, handle(limits, maxBody, within(decisionDeadline, engine.SearchSubjects)), search, tenant)
		e.POST(base+authzen.PathSearchResource, handle(limits, maxBody, within(decisionDeadline, engine.SearchResources)), search, tenant)
		e.POST(base+authzen.PathSearchAction, handle(limits, maxBody, within(decisionDeadline, engine.SearchActions)), search, tenant)

		e.POST(base+authzen.PathRequests, serveSubmit(approvals, limits, maxBody), request, tenant)
		e.GET(base+authzen.PathRequests+"/:"+paramID, serveTask(approvals), request, tenant)
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			e.Add(method, base+authzen.PathRequests+"/:"+paramID+"/cancel", serveCancel(approvals, limits, maxBody), request, tenant)
		}
		e.POST(base+authzen.PathCapabilities, capabilities.request, request, tenant)
		e.GET(base+authzen.PathCapabilities, capabilities.list, request, tenant)
		e.GET(base+authzen.PathCapabilities+"/:"+paramID, capabilities.show, request, tenant)
		e.POST(base+authzen.PathCapabilities+"/:"+paramID+"/revoke", capabilities.revoke, request, tenant)
		e.POST(base+authzen.PathIntrospect, capabilities.introspect, evaluate, tenant)
		e.GET(base+authzen.PathRevoked, capabilities.revoked, evaluate, tenant)
		e.GET(base+authzen.PathRequestSchemas+"/:"+paramTemplate, serveRequestSchema(engine), auth.ofTenant(ScopeRequest))
		e.GET(base+authzen.PathJWKS, serveJWKS(approvals))
		e.GET(metadataPath(metadata)+base, serveMetadata(engine, metadata, auth))
	}
	e.POST(authzen.PathAuthorize, handle(limits, maxBody, within(decisionDeadline, authorize(engine, limits))), evaluate)
	e.POST(authzen.PathApprovals, serveApprovalRequest(engine, approvals, limits, maxBody), request)
	e.GET("/openapi.yaml", serveBlob("application/yaml", schemas.OpenAPI()))
}

// Base path of a tenant, and the path parameter with its name.
const (
	paramTenant = "tenant"
	pathTenant  = "/tenants/:" + paramTenant
)

// newEcho returns a router that echoes request ids with every status, formats all errors alike, and
// recovers from panics.
func newEcho(log *slog.Logger) *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = answerError(log)
	e.Pre(echoRequestID, closeAmbiguous)
	e.Use(survivePanics(log))
	return e
}

// echoRequestID returns the PEP's request identifier in the answer (AuthZEN 1.0, "Request
// Identification").
func echoRequestID(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if id := c.Request().Header.Get(echo.HeaderXRequestID); id != "" {
			c.Response().Header().Set(echo.HeaderXRequestID, id)
		}
		return next(c)
	}
}

// closeAmbiguous closes the connection after an ambiguous request. Bytes that follow it must not
// count as a request.
func closeAmbiguous(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if isAmbiguous(c.Request()) {
			c.Response().Header().Set(echo.HeaderConnection, "close")
		}
		return next(c)
	}
}

// isAmbiguous reports whether an intermediary may see the end of a request elsewhere. net/http
// hides a Content-Length next to chunks, and a Transfer-Encoding in HTTP/1.0 (RFC 9112, sections
// 6.1 and 6.3).
func isAmbiguous(r *http.Request) bool {
	return r.ProtoMajor == 1 && (len(r.TransferEncoding) > 0 || r.ProtoMinor == 0)
}

// survivePanics turns a panic into an internal error. echo's own middleware would link its unused
// template renderer into the program.
func survivePanics(log *slog.Logger) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			defer survive(log, &err)
			return next(c)
		}
	}
}

// survive turns a panic into the error of the function that defers it.
func survive(log *slog.Logger, err *error) {
	if thrown := recover(); thrown != nil {
		log.Error("panic", "error", thrown, "stack", string(debug.Stack()))
		*err = fmt.Errorf("panic: %v", thrown)
	}
}

// answerError writes the answer for an error. It aborts an answer that has begun, so that no client
// mistakes the part for the whole.
func answerError(log *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		if c.Response().Committed {
			if !isGone(err) {
				log.Error("answer broken off", "path", c.Path(), "request_id", requestID(c), "trace_id", traceID(c.Request().Context()), "error", err)
			}
			panic(http.ErrAbortHandler)
		}
		public := describe(err)
		if public.Status >= http.StatusInternalServerError && !errors.Is(err, context.Canceled) && !isCounted(err) {
			log.Error("request failed", "path", c.Path(), "status", public.Status, "request_id", requestID(c), "trace_id", traceID(c.Request().Context()), "error", err)
		}
		if r := c.Request(); errors.Is(err, admission.ErrMemory) && r.ProtoMajor == 1 {
			// Otherwise the answer would wait for the rest of the body.
			c.Response().Header().Set(echo.HeaderConnection, "close")
		}
		switch public.Status {
		case http.StatusServiceUnavailable, http.StatusTooManyRequests:
			c.Response().Header().Set(echo.HeaderRetryAfter, retryAfter)
		case http.StatusUnauthorized:
			c.Response().Header().Set(echo.HeaderWWWAuthenticate, `Bearer realm="policy-service"`)
		}
		answer := func() error { return writeJSON(c, public.Status, authzen.NewErrorResponse(*public)) }
		if hasProblems(c.Request().URL.Path) {
			answer = func() error { return writeBody(c, public.Status, mimeProblem, problem(err, public)) }
		}
		if err := answer(); err != nil {
			log.Error("answer an error", "error", err)
		}
	}
}

// isCounted reports whether metrics count a rejected request. Logging it as well would fill the
// program's log during overload.
func isCounted(err error) bool {
	return errors.Is(err, errOverload) || errors.Is(err, admission.ErrMemory) || errors.Is(err, snapshot.ErrTooLong)
}

// isGone reports whether an answer ended because the client disconnected.
func isGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded)
}

func serveBlob(contentType string, body []byte) echo.HandlerFunc {
	return func(c echo.Context) error { return c.Blob(http.StatusOK, contentType, body) }
}

// h2Buffer is the smallest receive buffer of HTTP/2, in bytes.
const h2Buffer = 64 << 10

// newServer returns a server with a timeout for every wait.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 2 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 100,
			// No memory budget covers data that was received and not read.
			MaxReceiveBufferPerConnection: h2Buffer,
			MaxReceiveBufferPerStream:     h2Buffer,
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
