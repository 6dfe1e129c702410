package pdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/pdp/admission"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

var (
	// errOverload rejects requests beyond the capacity of the service, before their
	// bodies are decoded.
	errOverload = errors.New("the service is overloaded: retry later")
	// errTenantRate rejects requests over the rate limit of a tenant.
	errTenantRate = errors.New("the tenant is over its request rate")
)

// Limits bound the load that the service accepts. A zero field has the default.
type Limits struct {
	Connections int           // to the main listener; 4096. Further ones wait to be accepted
	PerAddress  int           // connections from one address; half of Connections. This host has no limit
	InFlight    int           // concurrent requests; 256
	BodyMemory  int64         // bytes of bodies read and processed at once; 128 MiB
	Searches    int           // searches and large batches using a processor at once; half the number of processors
	Queue       int           // waiting requests; 4096
	Wait        time.Duration // maximum wait; 750 ms, which is below the timeouts of PEPs
	TenantRate  float64       // requests a second of one tenant; the burst is as large, but above 256 only 256 or an eighth; 0 for no limit
	Deadline    time.Duration // of a decision; 2 s
}

const (
	defaultConnections = 4096
	defaultDeadline    = 2 * time.Second
	defaultBodyMemory  = 128 << 20
)

// checkBody rejects a memory budget that can never hold the largest body. While a
// body is read, the previous buffer, at most as large, is also held, and one
// caller has at most half of the budget.
func (l Limits) checkBody(largest int64) error {
	memory := cmp.Or(l.BodyMemory, defaultBodyMemory)
	if largest <= (memory/2-admission.RequestBytes-1)/2 {
		return nil
	}
	at := []string{"max_body"}
	if largest == defaultMaxBody {
		at = []string{"max_body_memory"}
	}
	return &yamldoc.SettingError{Path: []string{"max_body"}, At: at, Reason: fmt.Sprintf(
		"%d bytes are more than a fourth of max_body_memory, %d, less %d: a body of that size would always be answered 503. Lower max_body, or raise max_body_memory to %d",
		largest, memory, 2*(admission.RequestBytes+1), 4*largest+2*(admission.RequestBytes+1)+2)}
}

// A limiter enforces Limits.
type limiter struct {
	queue      admission.FairQueue
	searches   admission.FairQueue // of searches that have a slot in scans or wait for one
	heavy      admission.FairQueue
	scans      admission.FairQueue // of searches that use a processor
	logQueries admission.FairQueue // of queries of the log that use a processor
	memory     *admission.MemoryBudget
	deadline   *admission.Deadline

	known   func(tenant string) bool // nil if every name is known
	rates   *admission.RateLimits    // nil for no limit
	delayed chan struct{}            // one token for each rejection that delayRejection holds
}

func newLimiter(l Limits) *limiter {
	inFlight, room, wait := cmp.Or(l.InFlight, 256), cmp.Or(l.Queue, 4096), cmp.Or(l.Wait, 750*time.Millisecond)
	memory := cmp.Or(l.BodyMemory, defaultBodyMemory)
	return &limiter{
		queue:      admission.NewFairQueue(inFlight, room, wait),
		searches:   admission.NewFairQueue(max(1, inFlight/8), room, wait),
		heavy:      admission.NewFairQueue(maxHeavy(memory, inFlight), room, wait),
		scans:      admission.NewFairQueue(cmp.Or(l.Searches, max(1, runtime.NumCPU()/2)), room, wait),
		logQueries: admission.NewStreamQueue(max(1, runtime.NumCPU()/2)),
		memory:     admission.NewMemoryBudget(memory),
		deadline:   &admission.Deadline{After: cmp.Or(l.Deadline, defaultDeadline)},

		rates:   admission.NewRateLimits(rate.Limit(l.TenantRate)),
		delayed: make(chan struct{}, cmp.Or(l.Queue, 4096)),
	}
}

// decode reads the body of a request, waits for a slot, and decodes the body into
// v. A slow sender holds no slot. Unless it returns an error, the caller must end
// the admission.
func (l *limiter) decode(c echo.Context, maxBody int64, v any) (admitted runningRequest, err error) {
	tenant, err := tenantOf(c)
	if err != nil {
		return admitted, err
	}
	ctx := c.Request().Context()
	who := cmp.Or(l.tenantKey(tenant), callerFrom(ctx).ID)
	mine := admission.Reservation{Budget: l.memory, Owner: who}
	if err := mine.Reserve(admission.RequestBytes); err != nil {
		return admitted, err
	}
	admitted = runningRequest{limits: l, reservation: mine}
	err = withBody(c, maxBody, &admitted.reservation, func(body []byte) error { return admitted.acquire(ctx, body, v) })
	if err != nil {
		admitted.reservation.Release(admitted.reservation.Bytes)
		return runningRequest{}, err
	}
	return admitted, nil
}

// perTenant rejects requests over the tenant's rate limit.
func (l *limiter) perTenant(next echo.HandlerFunc) echo.HandlerFunc {
	if l.rates == nil {
		return next
	}
	return func(c echo.Context) error {
		tenant, err := tenantOf(c)
		if err == nil && !l.allow(tenant) {
			l.delayRejection(c.Request().Context())
			err = errTenantRate
		}
		if err != nil {
			return err
		}
		return next(c)
	}
}

// rejectDelay is the mean delay of a rejection over the rate limit. The actual
// delay is up to half longer or shorter.
const rejectDelay = 250 * time.Millisecond

// delayRejection delays a rejection. A rejection takes a third of the time of an
// answer, so clients that retry at once would slow others down. The delay is
// random, so that clients that came together do not return together.
func (l *limiter) delayRejection(ctx context.Context) {
	select {
	case l.delayed <- struct{}{}:
	default:
		return
	}
	defer func() { <-l.delayed }()
	patience := time.NewTimer(rejectDelay/2 + rand.N(rejectDelay))
	defer patience.Stop()
	select {
	case <-patience.C:
	case <-ctx.Done():
	}
}

// admit rejects a request whose body names another tenant than its caller's, or
// that is over the rate limit.
func (l *limiter) admit(ctx context.Context, tenant string) error {
	switch {
	case !callerFrom(ctx).MayAsk(tenant):
		return callers.ErrForbidden
	case !l.allow(tenant):
		return errTenantRate
	}
	return nil
}

// tenantKey returns the key of a tenant's limits. All tenants without policies
// share one key, because clients can invent names.
func (l *limiter) tenantKey(tenant string) string {
	if tenant == "" || l.known == nil || l.known(tenant) {
		return tenant
	}
	return admission.UnknownTenants
}

// hasPolicies returns a function that reports whether an engine has policies for
// a tenant.
func hasPolicies(engine *evaluation.Engine) func(tenant string) bool {
	return func(tenant string) bool {
		store := engine.Snapshots()
		if store == nil {
			return false
		}
		_, err := store.For(tenant)
		return err == nil
	}
}

// allow takes one request of a tenant from its rate limit.
func (l *limiter) allow(tenant string) bool {
	return l.rates == nil || l.rates.Allow(l.tenantKey(tenant))
}
