package pdp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/pdp/admission"
	"github.com/policy-service/policy-service/pdp/filereload"
	"github.com/policy-service/policy-service/pdp/rates"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// NewHandlers returns what the listeners serve, with a log that is the test's
// to harm. Without a store there is no snapshot. Approved capabilities are
// issued until ctx ends.
func NewHandlers(ctx context.Context, state string, store fs.FS, limits Limits, log *decisionlog.Log, program *slog.Logger) (main, admin http.Handler, err error) {
	metrics, err := newTelemetry(Telemetry{})
	if err != nil {
		return nil, nil, err
	}
	s := &server{
		config:    Config{State: state, Log: program, Telemetry: Telemetry{Page: http.NotFoundHandler()}},
		publicURL: "https://pdp.example.com", metrics: metrics, limits: newLimiter(limits), log: log, feed: newFeed(), policies: &policyLoader{},
	}
	s.feed.log = log
	if err := s.openEngine(); err != nil {
		return nil, nil, err
	}
	if store != nil {
		if s.policies, err = loadEmbedded(context.Background(), s.engine, store); err != nil {
			return nil, nil, err
		}
	}
	metadata, err := newMetadata(s.publicURL, false)
	if err != nil {
		return nil, nil, err
	}
	m, a := newEcho(program), newEcho(program)
	s.mainRoutes(m, metadata)
	s.adminRoutes(a, &reloader{policies: s.policies, shadow: &policyLoader{}})
	go s.capabilities.run(ctx)
	return m, a, nil
}

// NewPerTenant returns what limits how often a tenant asks.
func NewPerTenant(l Limits) echo.MiddlewareFunc { return newLimiter(l).perTenant }

// NewUnread returns a listener whose clients are given no more than they read.
func NewUnread(l net.Listener) net.Listener { return smallBufferListener{l} }

// ErrTenantRate is what perTenant says of the rest.
var ErrTenantRate = errTenantRate

// NewRouter is for routes that fail as no real one does.
var NewRouter = newEcho

// NewServer is for the deadlines of the listeners.
var NewServer = newServer

// NewCall returns how PEPs are called back.
func NewCall(allowed []string, secret []byte) (func(ctx context.Context, endpoint string, body []byte) error, error) {
	off, err := newTelemetry(Telemetry{})
	if err != nil {
		return nil, err
	}
	c, err := newNotifier(allowed, secret, off)
	if err != nil {
		return nil, err
	}
	return c.call, nil
}

// Problem is what a PEP is told of an error by the Access Request API.
func Problem(err error) any { return problem(err, describe(err)) }

// ErrOverload and NewInFlight are for more requests than the service can do.
var ErrOverload = errOverload

// ErrDeadline and Within are for methods that take too long.
var ErrDeadline = admission.ErrDeadline

// Within returns a method that keeps to a deadline.
func Within(d time.Duration, call func(context.Context, *authzen.EvaluationRequest) (*authzen.Decision, error)) func(context.Context, *authzen.EvaluationRequest) (*authzen.Decision, error) {
	return func(ctx context.Context, req *authzen.EvaluationRequest) (*authzen.Decision, error) {
		answer := within(&admission.Deadline{After: d}, func(ctx context.Context, _ evaluation.Call, req *authzen.EvaluationRequest) (*authzen.Decision, error) {
			return call(ctx, req)
		})
		return answer(ctx, evaluation.Call{}, req)
	}
}

// NewInFlight returns what limits how many requests are worked on.
func NewInFlight(l Limits) echo.MiddlewareFunc {
	limits := newLimiter(l)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !limits.queue.Acquire(c.Request().Context(), c.Param(paramTenant)) {
				return errOverload
			}
			defer limits.queue.Release()
			return next(c)
		}
	}
}

// NewMeasured returns how a request is measured.
func NewMeasured(to Telemetry) (echo.MiddlewareFunc, error) {
	metrics, err := newTelemetry(to)
	if err != nil {
		return nil, err
	}
	return metrics.serve, nil
}

// WatchClock watches a clock of the test's.
func WatchClock(ctx context.Context, look <-chan time.Time, read func() (time.Time, time.Duration), log *decisionlog.Log, program *slog.Logger) error {
	return watchClock(ctx, look, read, noteStep(log, program))
}

// NewCertificate returns how the main listener gets its certificate, by a clock.
func NewCertificate(cert, key string, log *slog.Logger, now func() time.Time) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	c, err := filereload.NewCertificate(cert, key, filereload.Config{Log: log, Now: now})
	return c.GetCertificate, err
}

// SendSyslog sends a checkpoint to a syslog server, whose certificate one of
// the roots has signed.
func SendSyslog(ctx context.Context, url string, roots *x509.CertPool, c *decisionlog.Checkpoint) error {
	s, err := newSyslog(url)
	if err != nil {
		return err
	}
	s.tls.RootCAs = roots
	return s.send(ctx, c)
}

// NewMemory returns a budget of bytes.
func NewMemory(most int64) (take func(who string, n int64) bool, give func(who string, n int64)) {
	m := admission.NewMemoryBudget(most)
	return m.Reserve, m.Release
}

// NewWork returns what reads a request of a path and has it worked on.
func NewWork(l Limits) func(path, body string, work func()) error {
	limits := newLimiter(l)
	return func(path, body string, work func()) error {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
		var request any = new(authzen.EvaluationRequest)
		switch path {
		case authzen.PathEvaluations:
			request = new(authzen.EvaluationsRequest)
		case authzen.PathSearchAction:
			request = new(authzen.ActionSearchRequest)
		}
		admitted, err := limits.decode(echo.New().NewContext(r, httptest.NewRecorder()), defaultMaxBody, request)
		if err != nil {
			return err
		}
		defer admitted.release()
		work()
		return nil
	}
}

// Readiness says on /readyz how a policy store that is watched is, at a time.
func Readiness(state string, store *policystore.Store, now func() time.Time) (http.Handler, error) {
	log, err := decisionlog.Open(state, decisionlog.Config{})
	if err != nil {
		return nil, err
	}
	engine := evaluation.NewEngine(log, evaluation.Config{})
	archive := snapshot.Archive{"a.cedar": []byte("@id(\"a\") permit (principal, action, resource);\n")}
	if _, err := engine.Reload(context.Background(), evaluation.Change{Archive: archive, Cause: causeStart}); err != nil {
		return nil, err
	}
	e := newEcho(slog.New(slog.DiscardHandler))
	e.GET("/readyz", serveReady(engine, &reloader{policies: &policyLoader{store: store, now: now}}, log, authenticator{}))
	return e, nil
}

// NewCounter returns what counts the decisions of an entry that is on disk, without exported metrics.
func NewCounter() (count func(*decisionlog.Entry), err error) {
	off, err := newTelemetry(Telemetry{})
	return func(e *decisionlog.Entry) { off.recorded(context.Background(), e) }, err
}

// NewReplayRoutes returns the routes of replays, whose work calls rest again and again, and what ends
// them with the service.
func NewReplayRoutes(log *decisionlog.Log, store fs.FS, rest func(context.Context) error) (http.Handler, func(context.Context) error, error) {
	engine := evaluation.NewEngine(log, evaluation.Config{})
	if _, err := loadEmbedded(context.Background(), engine, store); err != nil {
		return nil, nil, err
	}
	out, e := slog.New(slog.DiscardHandler), newEcho(slog.New(slog.DiscardHandler))
	r := newReplays(engine, log, out, func() *pacer {
		return NewPacer(func(ctx context.Context, _ time.Duration) error { return rest(ctx) })
	})
	e.POST(PathReplays, r.post)
	e.GET(PathReplays+"/:"+paramID, r.get)
	e.DELETE(PathReplays+"/:"+paramID, r.delete)
	return e, r.drain, nil
}

// NewPacer returns a pacer by whose clock each look takes a millisecond, in which a decision was made.
func NewPacer(sleep func(context.Context, time.Duration) error) *pacer {
	now, answers := time.Now(), int64(0)
	return &pacer{
		answers: func() int64 { answers++; return answers },
		now:     func() time.Time { now = now.Add(time.Millisecond); return now },
		sleep:   sleep,
		turn:    make(chan struct{}, 1),
	}
}

// NewPacers returns pacers that share a turn, by the clock. Between two looks of each, a decision was made.
func NewPacers(n int) (all []*pacer) {
	turn := make(chan struct{}, 1)
	for range n {
		p := NewPacer(sleepFor)
		p.now, p.turn = time.Now, turn
		all = append(all, p)
	}
	return all
}

// NewIdlePacer is NewPacer without decisions.
func NewIdlePacer(sleep func(context.Context, time.Duration) error) *pacer {
	p := NewPacer(sleep)
	p.answers = func() int64 { return 7 }
	return p
}

// Rest calls rest.
func (p *pacer) Rest(ctx context.Context) error { return p.rest(ctx) }

// Unrecorded tells since when a log does not take every entry.
type Unrecorded struct{ t telemetry }

// Refuse counts a request whose decision the log did not take, and Answer one whose decision it took.
func (u *Unrecorded) Refuse() { u.t.failed(decisionlog.ErrUnavailable) }
func (u *Unrecorded) Answer() { u.t.lastHour.Decided(time.Now(), 0, rates.Counts{Allowed: 1}) }

func (u *Unrecorded) Since() time.Time { return u.t.failingSince() }
