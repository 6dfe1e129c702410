package pdp

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"
)

// standing is how long the first of a line may wait before that is overload and
// no burst.
const standing = 50 * time.Millisecond

// Turns let so many requests be worked on at once. The others wait, each
// tenant's in a line of its own, and the lines take turns: a tenant that asks
// more than others waits longer than they do. When there is no room left, a
// newcomer takes the place of who has waited longest in the longest line.
//
// In overload the newest of a line is next, and as few are worked on at once as
// are enough: most of those who are answered are answered as soon as ever. In
// the order of their coming all would be answered too late. Who has waited for
// long has a turn only where there is nothing else to do. The others wait, which
// costs nothing; to turn them away sooner would cost nearly as much as to answer
// them, and have them ask again.
type turns struct {
	room int           // for requests that wait
	wait time.Duration // for how long at most

	mu      sync.Mutex
	pace    pace // of which most is how many turns there are
	free    int  // of them
	waiting int
	lines   []*line   // that are not empty; the next turn is the first's
	since   time.Time // when the last overload began
	until   time.Time // and until when it lasts if nothing is seen of it any more
}

func newTurns(most, room int, wait time.Duration) turns {
	return turns{room: room, wait: wait, pace: newPace(most), free: most}
}

// A line is those of a tenant who wait, the oldest first.
type line struct {
	tenant string
	list.List
}

// A turn tells a request that waits whether it is worked on.
type turn struct {
	came time.Time
	mine chan bool
}

// take waits for a turn. There is none for a request that had to make room for
// others, has waited too long, or is gone. Who has one gives it back.
func (t *turns) take(ctx context.Context, tenant string) bool {
	t.mu.Lock()
	if t.free > 0 && (t.waiting == 0 || t.working() < t.pace.now || time.Now().After(t.until)) {
		t.free--
		t.mu.Unlock()
		return true
	}
	l, place := t.join(tenant)
	t.mu.Unlock()

	patience := time.NewTimer(t.wait)
	defer patience.Stop()
	mine := place.Value.(turn).mine
	select {
	case has := <-mine:
		return has
	case <-patience.C:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case has := <-mine: // meanwhile
		return has
	default:
		t.leave(l, place)
		return false
	}
}

// join puts a request at the end of its tenant's line.
func (t *turns) join(tenant string) (*line, *list.Element) {
	i := slices.IndexFunc(t.lines, func(l *line) bool { return l.tenant == tenant })
	if i < 0 {
		i = len(t.lines)
		t.lines = append(t.lines, &line{tenant: tenant})
	}
	l := t.lines[i]
	place := l.PushBack(turn{time.Now(), make(chan bool, 1)})
	t.waiting++
	if t.waiting > t.room {
		longest := slices.MaxFunc(t.lines, func(a, b *line) int { return a.Len() - b.Len() })
		t.call(longest, longest.Front(), false)
	}
	return l, place
}

// load is how many requests are worked on, and how many wait.
func (t *turns) load() (working, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.working(), t.waiting
}

func (t *turns) working() int { return t.pace.most - t.free }

// give ends a turn, and with it begins the next.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == 0 {
		t.free++
		return
	}
	now := time.Now()
	if !now.After(t.until) {
		t.pace.note(now, t.since)
	}
	for i, l := range t.lines {
		next := l.Front()
		if waits(next, now) > standing {
			t.overload(now)
			next = l.Back()
		}
		if now.After(t.until) || t.pace.begins(t.working()-1, waits(next, now)) {
			t.lines = append(slices.Delete(t.lines, i, i+1), l)
			t.call(l, next, true)
			return
		}
	}
	t.free++ // for who comes
}

// overload notes that there is one.
func (t *turns) overload(now time.Time) {
	if now.After(t.until) {
		t.since = now
	}
	t.until = now.Add(standing)
}

// waits is how long one of a line has waited.
func waits(place *list.Element, now time.Time) time.Duration {
	return now.Sub(place.Value.(turn).came)
}

// call tells one of a line whether it has a turn.
func (t *turns) call(l *line, place *list.Element, has bool) {
	place.Value.(turn).mine <- has
	t.leave(l, place)
}

// leave takes a request out of its line, and a line that is empty out of the
// others.
func (t *turns) leave(l *line, place *list.Element) {
	l.Remove(place)
	t.waiting--
	if l.Len() == 0 {
		t.lines = slices.DeleteFunc(t.lines, func(other *line) bool { return other == l })
	}
}
