package admission

import (
	"sync"

	"golang.org/x/time/rate"
)

// RateLimits limits the request rate of each tenant with a token bucket.
type RateLimits struct {
	limit rate.Limit

	mu      sync.Mutex
	buckets map[string]*rate.Limiter // full buckets are removed sooner or later
}

const (
	// maxBuckets is the number of tenants that have separate buckets.
	maxBuckets = 10_000
	// swept is the number of buckets that each new bucket checks. It is more than
	// one, so that the number of full buckets falls.
	swept = 4
)

// NewRateLimits returns limits of limit requests a second, or nil for 0, which
// means no limit.
func NewRateLimits(limit rate.Limit) *RateLimits {
	if limit == 0 {
		return nil
	}
	return &RateLimits{limit: limit, buckets: map[string]*rate.Limiter{}}
}

// burst returns how many requests of one tenant may arrive at once: the requests
// of a second up to 256, and above that 256 or an eighth, whichever is more.
// During a burst other tenants are not protected by the rate.
func burst(perSecond rate.Limit) int {
	const many = 256
	return int(max(1, min(perSecond, many), perSecond/8))
}

// Allow takes a token from the tenant's bucket and reports whether there was one.
func (r *RateLimits) Allow(tenant string) bool { return r.bucket(tenant).Allow() }

func (r *RateLimits) bucket(tenant string) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.buckets[tenant]; b != nil {
		return b
	}
	r.sweep()
	if len(r.buckets) >= maxBuckets {
		tenant = UnknownTenants
	}
	b := r.buckets[tenant]
	if b == nil {
		b = rate.NewLimiter(r.limit, burst(r.limit))
		r.buckets[tenant] = b
	}
	return b
}

// sweep removes the full buckets among a few random ones. A full bucket equals a
// new one.
func (r *RateLimits) sweep() {
	looked := 0
	for tenant, b := range r.buckets {
		if b.Tokens() >= float64(b.Burst()) {
			delete(r.buckets, tenant)
		}
		if looked++; looked == swept {
			return
		}
	}
}

// UnknownTenants is the common name of all tenants without policies. It is not a
// valid tenant name.
const UnknownTenants = "*"
