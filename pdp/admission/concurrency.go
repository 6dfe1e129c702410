package admission

import "time"

// A concurrencyLimit is the number of requests that run at once under overload.
// It is the smallest number that keeps the throughput, because every running
// request delays the others. The best number depends on disk, policies and
// processors, so hill climbing finds it. The limit is halved while the rate of
// answers stays the same, and doubled while the rate rises.
type concurrencyLimit struct {
	max, limit int
	stale      time.Duration // a request that has waited longer runs only if no other does

	overload  time.Time // start of the overload
	from      time.Time // start of the window in which answers are counted
	ended     int       // answers in the window
	rate      float64   // answers a second of the window before
	previous  int       // limit before the step being tried; 0 for none
	step      step      // last step
	restUntil time.Time // time before which no step is taken
}

// A step doubles or halves the limit.
type step bool

const (
	more  step = true
	fewer step = false
)

const (
	minConcurrency  = 24
	adjustWindow    = 100 * time.Millisecond // at least; the window also needs as many answers as the limit
	restAfterRevert = 3 * time.Second        // pause after a step was reverted
	keepRatio       = 0.95                   // a halved limit must keep this fraction of the rate
	gainRatio       = 1.15                   // a doubled limit must raise the rate by this factor
	minQueueWait    = 20 * time.Millisecond  // or twice the duration of a request, if that is longer
)

func newConcurrencyLimit(most int) concurrencyLimit {
	return concurrencyLimit{max: most, limit: most, stale: minQueueWait, step: more}
}

// admits reports whether a request that has waited for this long may run beside
// others.
func (c *concurrencyLimit) admits(others int, waited time.Duration) bool {
	return others < c.limit && (waited <= c.stale || others == 0)
}

// observe counts one completed request in the overload that began at episode.
func (c *concurrencyLimit) observe(now, episode time.Time) {
	if episode != c.overload {
		c.revert()
		c.overload, c.from, c.ended = episode, now, 0
		return
	}
	c.ended++
	took := now.Sub(c.from)
	if took < adjustWindow || c.ended < c.limit {
		return
	}
	c.stale = max(minQueueWait, 2*took*time.Duration(c.limit)/time.Duration(c.ended))
	rate := float64(c.ended) / took.Seconds()
	c.adjust(rate, now)
	c.rate, c.from, c.ended = rate, now, 0
}

// adjust reverts a step that brought no gain. Otherwise it takes the next step,
// and changes direction when the previous one brought none.
func (c *concurrencyLimit) adjust(rate float64, now time.Time) {
	if c.previous != 0 && (c.step == more && rate < gainRatio*c.rate || c.step == fewer && rate < keepRatio*c.rate) {
		c.revert()
		c.restUntil = now.Add(restAfterRevert)
	}
	if now.Before(c.restUntil) {
		return
	}
	if c.previous == 0 {
		c.step = !c.step
	}
	next := max(c.limit/2, min(minConcurrency, c.max))
	if c.step == more {
		next = min(2*c.limit, c.max)
	}
	if c.previous = 0; next != c.limit {
		c.previous, c.limit = c.limit, next
	}
}

// revert undoes the step being tried.
func (c *concurrencyLimit) revert() {
	if c.previous != 0 {
		c.previous, c.limit = 0, c.previous
	}
}
