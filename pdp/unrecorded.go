package pdp

import "time"

// unrecordedHold is for how long the log counts as failing after the last request whose decision it did
// not take. On a full disk, small entries still fit into space that the log has already, and large ones do
// not: without a hold, the state would change with each request.
const unrecordedHold = 30 * time.Second

// An unrecorded is a run of requests whose decisions the log did not take.
type unrecorded struct {
	since   time.Time // of the first
	last    time.Time
	answers int64 // number of answers to PEPs before the last
}

// failing reports whether the run goes on: the log has taken no entry since, or not for long enough. A nil
// run does not.
func (u *unrecorded) failing(now time.Time, answers int64) bool {
	return u != nil && (u.answers == answers || now.Sub(u.last) < unrecordedHold)
}

// next returns the run with a further request, or a new one.
func (u *unrecorded) next(now time.Time, answers int64) *unrecorded {
	run := &unrecorded{now, now, answers}
	if u.failing(now, answers) {
		run.since = u.since
	}
	return run
}

// failingSince returns since when the log does not take every entry, or the zero time.
func (t *telemetry) failingSince() time.Time {
	if run := t.unrecorded.Load(); run.failing(time.Now(), t.lastHour.Answers()) {
		return run.since
	}
	return time.Time{}
}
