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
	// errOverload is more than the service can do in time. It is said before a
	// body is decoded.
	errOverload = errors.New("there is too much to do: ask again")
	// errTenantRate is more than one tenant may ask for.
	errTenantRate = errors.New("the tenant is over its request rate")
)

// Limits bound what the service takes on. A zero is the default.
type Limits struct {
	Connections int           // to the main listener; 4096. Others wait to be accepted
	PerAddress  int           // of them from one address; half of them, and any number from this host
	InFlight    int           // requests that are worked on at once; 256
	BodyMemory  int64         // bytes of bodies that are read and worked on at once; 128 MiB
	Searches    int           // searches and large batches that use a processor at once; half as many as there are processors
	Queue       int           // requests that wait for that; 4096
	Wait        time.Duration // for how long at most; 750 ms, which is less than PEPs wait for an answer
	TenantRate  float64       // requests of one tenant a second; as many at once, but of more than 256 only 256 or an eighth; 0 is any number
	Deadline    time.Duration // of a decision; 2 s
}

const (
	defaultConnections = 4096
	defaultDeadline    = 2 * time.Second
	defaultBodyMemory  = 128 << 20
)

// checkBody refuses a memory in which the largest body never fits. While it is read
// the buffer before, of its size at most, is there, too, and one caller has half of
// the memory.
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

// limiter keeps to limits.
type limiter struct {
	queue    admission.FairQueue
	searches admission.FairQueue // of those that have a turn
	heavy    admission.FairQueue
	scans    admission.FairQueue // of searches that use a processor
	memory   *admission.MemoryBudget
	deadline *admission.Deadline

	known   func(tenant string) bool // nil for every name
	rates   *admission.RateLimits    // nil for none
	delayed chan struct{}            // one for each request that restrain keeps
}

func newLimiter(l Limits) *limiter {
	inFlight, room, wait := cmp.Or(l.InFlight, 256), cmp.Or(l.Queue, 4096), cmp.Or(l.Wait, 750*time.Millisecond)
	memory := cmp.Or(l.BodyMemory, defaultBodyMemory)
	return &limiter{
		queue:    admission.NewFairQueue(inFlight, room, wait),
		searches: admission.NewFairQueue(max(1, inFlight/8), room, wait),
		heavy:    admission.NewFairQueue(maxHeavy(memory, inFlight), room, wait),
		scans:    admission.NewFairQueue(cmp.Or(l.Searches, max(1, runtime.NumCPU()/2)), room, wait),
		memory:   admission.NewMemoryBudget(memory),
		deadline: &admission.Deadline{After: cmp.Or(l.Deadline, defaultDeadline)},

		rates:   admission.NewRateLimits(rate.Limit(l.TenantRate)),
		delayed: make(chan struct{}, cmp.Or(l.Queue, 4096)),
	}
}

// decode reads the body of a request and, when it is its turn, decodes it into v.
// Who sends slowly keeps nobody waiting. Unless there is an error, the caller
// ends what was admitted.
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

// perTenant turns a tenant away that asks too often.
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

// rejectDelay is how long a tenant that asks too often waits to be told, more or
// less by half.
const rejectDelay = 250 * time.Millisecond

// delayRejection keeps a request for a while. To be turned away takes a third of the
// time of an answer: who is told at once, and asks again at once, takes that from
// others. Those who came together do not leave together: they would come back so.
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

// admit turns away a request whose body names a tenant that is not its caller's,
// or that asks too often.
func (l *limiter) admit(ctx context.Context, tenant string) error {
	switch {
	case !callerFrom(ctx).MayAsk(tenant):
		return callers.ErrForbidden
	case !l.allow(tenant):
		return errTenantRate
	}
	return nil
}

// tenantKey is the name by which a tenant is told apart from others. Anybody can make
// up names: those that there are no policies for are one.
func (l *limiter) tenantKey(tenant string) string {
	if tenant == "" || l.known == nil || l.known(tenant) {
		return tenant
	}
	return admission.UnknownTenants
}

// hasPolicies returns whether an engine has policies for a tenant's requests.
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

// allow takes one request of a tenant into account.
func (l *limiter) allow(tenant string) bool {
	return l.rates == nil || l.rates.Allow(l.tenantKey(tenant))
}
