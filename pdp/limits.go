package pdp

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"
)

var (
	// errOverload is more than the service can do in time. It is said before a
	// body is read.
	errOverload = errors.New("there is too much to do: ask again")
	// errTenantRate is more than one tenant may ask for.
	errTenantRate = errors.New("the tenant asks too often")
)

// Limits bound what the service takes on. A zero is the default.
type Limits struct {
	InFlight   int           // requests that are worked on at once; 1024
	Queue      int           // requests that wait for that; 4096
	Wait       time.Duration // for how long at most; 1 s
	TenantRate float64       // requests of one tenant a second, over one second; 0 is any number
}

// limiter keeps to limits.
type limiter struct {
	slots   chan struct{}
	waiting atomic.Int64
	queue   int64
	wait    time.Duration

	rate    rate.Limit // 0 is none
	mu      sync.Mutex
	tenants map[string]*rate.Limiter
}

// maxTenants is how many tenants are told apart. The rest are one, so that
// names that are made up take up no room.
const maxTenants = 10_000

func newLimiter(l Limits) *limiter {
	return &limiter{
		slots:   make(chan struct{}, orDefault(l.InFlight, 1024)),
		queue:   int64(orDefault(l.Queue, 4096)),
		wait:    orDefault(l.Wait, time.Second),
		rate:    rate.Limit(l.TenantRate),
		tenants: map[string]*rate.Limiter{},
	}
}

// inFlight has a request wait for its turn, or turns it away.
func (l *limiter) inFlight(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !l.enter(c.Request().Context().Done()) {
			return errOverload
		}
		defer func() { <-l.slots }()
		return next(c)
	}
}

// enter waits for a slot. There is none for a request that finds the queue full,
// has waited too long, or is gone.
func (l *limiter) enter(gone <-chan struct{}) bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	if l.waiting.Add(1) > l.queue {
		l.waiting.Add(-1)
		return false
	}
	defer l.waiting.Add(-1)
	patience := time.NewTimer(l.wait)
	defer patience.Stop()
	select {
	case l.slots <- struct{}{}:
		return true
	case <-patience.C:
	case <-gone:
	}
	return false
}

// perTenant turns a tenant away that asks too often.
func (l *limiter) perTenant(next echo.HandlerFunc) echo.HandlerFunc {
	if l.rate == 0 {
		return next
	}
	return func(c echo.Context) error {
		tenant, err := tenantOf(c)
		if err == nil && !l.allow(tenant) {
			err = errTenantRate
		}
		if err != nil {
			return err
		}
		return next(c)
	}
}

// allow takes one request of a tenant into account.
func (l *limiter) allow(tenant string) bool {
	if l.rate == 0 {
		return true
	}
	l.mu.Lock()
	if l.tenants[tenant] == nil && len(l.tenants) >= maxTenants {
		tenant = ""
	}
	bucket := l.tenants[tenant]
	if bucket == nil {
		bucket = rate.NewLimiter(l.rate, max(1, int(l.rate)))
		l.tenants[tenant] = bucket
	}
	l.mu.Unlock()
	return bucket.Allow()
}
