package pdp

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"
)

// standing is how long requests may wait without a break before that is overload
// and no burst.
const standing = 100 * time.Millisecond

// Turns let so many requests be worked on at once. The others wait, each
// tenant's in a line of its own, and the lines take turns: a tenant that asks
// more than others waits longer than they do. When there is no room left, a
// newcomer takes the place of who has waited longest in the longest line.
//
// In overload the newest of a line is next: most of those who are answered are
// answered as soon as ever. In the order of their coming all would be answered
// too late. The others wait, which costs nothing; to turn them away sooner would
// cost nearly as much as to answer them, and have them ask again.
type turns struct {
	room int           // for requests that wait
	wait time.Duration // for how long at most

	all int // that there are

	mu      sync.Mutex
	free    int // of them
	waiting int
	since   time.Time // when the first of those who wait came
	lines   []*line   // that are not empty; the next turn is the first's
}

// A line is those of a tenant who wait, the oldest first.
type line struct {
	tenant string
	list.List
}

// A turn tells a request that waits whether it is worked on.
type turn chan bool

// take waits for a turn. There is none for a request that had to make room for
// others, has waited too long, or is gone. Who has one gives it back.
func (t *turns) take(ctx context.Context, tenant string) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	l, place := t.join(tenant)
	t.mu.Unlock()

	patience := time.NewTimer(t.wait)
	defer patience.Stop()
	mine := place.Value.(turn)
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
	if t.waiting == 0 {
		t.since = time.Now()
	}
	i := slices.IndexFunc(t.lines, func(l *line) bool { return l.tenant == tenant })
	if i < 0 {
		i = len(t.lines)
		t.lines = append(t.lines, &line{tenant: tenant})
	}
	l := t.lines[i]
	place := l.PushBack(make(turn, 1))
	t.waiting++
	if t.waiting > t.room {
		longest := slices.MaxFunc(t.lines, func(a, b *line) int { return a.Len() - b.Len() })
		t.call(longest, longest.Front(), false)
	}
	return l, place
}

// overload reports whether requests have waited for long without a break.
func (t *turns) overload() bool { return time.Since(t.since) > standing }

// load is how many requests are worked on, and how many wait.
func (t *turns) load() (working, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all - t.free, t.waiting
}

// give ends a turn, and with it begins the next.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == 0 {
		t.free++
		return
	}
	l := t.lines[0]
	next := l.Front()
	if t.overload() {
		next = l.Back()
	}
	t.lines = append(t.lines[1:], l)
	t.call(l, next, true)
}

// call tells one of a line whether it has a turn.
func (t *turns) call(l *line, place *list.Element, has bool) {
	place.Value.(turn) <- has
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
