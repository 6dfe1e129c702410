package admission

import (
	"sync"

	"golang.org/x/time/rate"
)

// RateLimits are how often tenants may ask: a token bucket for each.
type RateLimits struct {
	limit rate.Limit

	mu      sync.Mutex
	buckets map[string]*rate.Limiter // full ones are forgotten sooner or later
}

const (
	// maxBuckets is how many tenants that have asked of late are told apart.
	maxBuckets = 10_000
	// swept is how many buckets are looked at whenever there is a new one. It is
	// more than one, so that fewer and fewer of them are full.
	swept = 4
)

// NewRateLimits returns limits of so many requests a second; nil for 0, which is no
// limit.
func NewRateLimits(limit rate.Limit) *RateLimits {
	if limit == 0 {
		return nil
	}
	return &RateLimits{limit: limit, buckets: map[string]*rate.Limiter{}}
}

// burst is how many requests of one tenant may come at once: a second's worth,
// but of more than 256 that many, or an eighth if this is more. While a burst
// lasts others feel no rate.
func burst(perSecond rate.Limit) int {
	const many = 256
	return int(max(1, min(perSecond, many), perSecond/8))
}

// Allow takes one request of a tenant into account.
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

// sweep forgets full buckets among a few that chance picks: a new one is the
// same as they are.
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

// UnknownTenants is the name of all tenants together that there are no policies for. No
// tenant can have it.
const UnknownTenants = "*"
