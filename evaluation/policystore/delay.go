package policystore

import "time"

const (
	quiet    = 100 * time.Millisecond // how long nothing has moved before a store is read
	maxDelay = time.Second            // how long a first hint waits for that
)

// A delay makes one moment of many hints: C delivers when there has been no
// hint for so long that the store may be quiet, or the first is too old to wait.
type delay struct {
	C     <-chan time.Time
	timer *time.Timer
	first time.Time // when the first hint came; zero while there is none
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

// over reports whether the first hint is too old to wait for more.
func (d *delay) over() bool { return !d.first.IsZero() && time.Since(d.first) >= maxDelay }

// done forgets the hints.
func (d *delay) done() {
	d.timer.Stop()
	d.first = time.Time{}
}
