package admission

import "time"

// A concurrencyLimit is how many requests run at once under overload: as few as
// keep the throughput, because each waits for all that run with it. The right
// number depends on the disk, the policies and the processors, so the limit is
// found by hill climbing: it is halved while the rate of answers stays, and
// doubled where the rate rises.
type concurrencyLimit struct {
	max, limit int
	stale      time.Duration // a request that has waited longer runs only when nothing else does

	overload  time.Time // its start
	from      time.Time // start of the window in which answers are counted
	ended     int       // answers in the window
	rate      float64   // answers a second of the window before
	previous  int       // limit before the step being tried; 0 for none
	step      step      // the last one
	restUntil time.Time // no step before that
}

// A step doubles or halves the limit.
type step bool

const (
	more  step = true
	fewer step = false
)

const (
	minConcurrency  = 24
	adjustWindow    = 100 * time.Millisecond // and at least as many answers as the limit
	restAfterRevert = 3 * time.Second        // after a step that was reverted
	keepRatio       = 0.95                   // of the rate, with half the limit
	gainRatio       = 1.15                   // times the rate, with twice the limit
	minQueueWait    = 20 * time.Millisecond  // or twice the time of a request
)

func newConcurrencyLimit(most int) concurrencyLimit {
	return concurrencyLimit{max: most, limit: most, stale: minQueueWait, step: more}
}

// admits reports whether a request that has waited for so long runs beside others.
func (c *concurrencyLimit) admits(others int, waited time.Duration) bool {
	return others < c.limit && (waited <= c.stale || others == 0)
}

// observe counts the end of one request, in the overload that began at episode.
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

// adjust reverts a step that did not pay, or takes the next one: in the same
// direction while it pays, and then in the other.
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

// revert takes back the step being tried.
func (c *concurrencyLimit) revert() {
	if c.previous != 0 {
		c.previous, c.limit = 0, c.previous
	}
}
