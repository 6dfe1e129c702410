package policystore

import "time"

const (
	quiet    = 100 * time.Millisecond // time without changes before the store is read
	maxDelay = time.Second            // longest wait after the first hint
)

// A delay combines many hints into one event. C delivers when the store has had no hint for the quiet
// time, or when the first hint is maxDelay old.
type delay struct {
	C     <-chan time.Time
	timer *time.Timer
	first time.Time // time of the first hint; zero without one
}

func newDelay() *delay {
	timer := time.NewTimer(maxDelay)
	timer.Stop()
	return &delay{C: timer.C, timer: timer}
}

func (d *delay) hint() {
	if d.first.IsZero() {
		d.first = time.Now()
	}
	d.timer.Reset(min(quiet, maxDelay-time.Since(d.first)))
}

// over reports whether the first hint is maxDelay old.
func (d *delay) over() bool { return !d.first.IsZero() && time.Since(d.first) >= maxDelay }

// done discards the hints.
func (d *delay) done() {
	d.timer.Stop()
	d.first = time.Time{}
}
