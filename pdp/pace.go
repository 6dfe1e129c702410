package pdp

import "time"

// A pace is how many requests are worked on at once in overload: as few as are
// enough, for each waits for all that were begun with it. How many that is
// depends on the disk, the policies and the processors, so it is tried out: half
// as many are enough if as many are answered, and twice as many are worth it if
// more are.
type pace struct {
	most, now int
	stale     time.Duration // who has waited for longer has to wait until nobody is worked on

	episode time.Time // when the overload began
	from    time.Time // when the window began in which answers are counted
	ended   int       // in it
	rate    float64   // of the window before, a second
	was     int       // before the step that is tried in this window; 0 without one
	step    step      // tried last
	rest    time.Time // nothing is tried before
}

// A step is to twice as many or to half as many.
type step bool

const (
	more  step = true
	fewer step = false
)

const (
	paceFewest = 24
	paceWindow = 100 * time.Millisecond // and as many answers as are worked on at once
	paceRest   = 3 * time.Second        // after a step that was taken back
	paceEnough = 0.95                   // of the rate, with half as many
	paceWorth  = 1.15                   // times the rate, with twice as many
	paceStale  = 20 * time.Millisecond  // or twice as long as the work takes
)

func newPace(most int) pace {
	return pace{most: most, now: most, stale: paceStale, step: more}
}

// begins reports whether one that has waited for so long is begun with while
// others are worked on.
func (p *pace) begins(others int, waited time.Duration) bool {
	return others < p.now && (waited <= p.stale || others == 0)
}

// note takes the end of one request's work into account, in an overload that
// began then.
func (p *pace) note(now, episode time.Time) {
	if episode != p.episode {
		p.undo()
		p.episode, p.from, p.ended = episode, now, 0
		return
	}
	p.ended++
	took := now.Sub(p.from)
	if took < paceWindow || p.ended < p.now {
		return
	}
	p.stale = max(paceStale, 2*took*time.Duration(p.now)/time.Duration(p.ended))
	rate := float64(p.ended) / took.Seconds()
	p.judge(rate, now)
	p.rate, p.from, p.ended = rate, now, 0
}

// judge takes back a step that was none to take, or makes the next: in the same
// direction while that is right, and then in the other.
func (p *pace) judge(rate float64, now time.Time) {
	if p.was != 0 && (p.step == more && rate < paceWorth*p.rate || p.step == fewer && rate < paceEnough*p.rate) {
		p.undo()
		p.rest = now.Add(paceRest)
	}
	if now.Before(p.rest) {
		return
	}
	if p.was == 0 {
		p.step = !p.step
	}
	next := max(p.now/2, min(paceFewest, p.most))
	if p.step == more {
		next = min(2*p.now, p.most)
	}
	if p.was = 0; next != p.now {
		p.was, p.now = p.now, next
	}
}

// undo takes back the step that is being tried.
func (p *pace) undo() {
	if p.was != 0 {
		p.was, p.now = 0, p.was
	}
}
