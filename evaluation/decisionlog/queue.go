package decisionlog

import (
	"sync"
	"time"
)

// A pending entry is accepted and not yet in the segment.
type pending struct {
	tail  []byte      // its line, without the index
	done  chan error  // receives the outcome; nil if nobody waits
	later func(error) // is called with the outcome; nil unless the entry came with [Log.AppendLater]
}

// A queue passes entries to a single consumer goroutine.
type queue struct {
	mu      sync.Mutex
	entries []*pending
	total   int64 // number of entries ever put
	closed  bool
	wake    chan struct{} // has a token when entries may be available
	alarm   *time.Timer   // puts the token there; nil unless putLater has set it
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// put adds entries and returns the length of the queue. A closed queue takes none and put returns
// 0.
func (q *queue) put(batch ...*pending) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0
	}
	q.entries = append(q.entries, batch...)
	q.total += int64(len(batch))
	notify(q.wake)
	return len(q.entries)
}

// putLater adds an entry for which the consumer does not wake at once: it takes the entry with
// others, or after the delay. A closed queue takes none and putLater returns 0.
func (q *queue) putLater(p *pending, delay time.Duration) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0
	}
	q.entries = append(q.entries, p)
	q.total++
	if q.alarm == nil {
		q.alarm = time.AfterFunc(delay, func() { notify(q.wake) })
	}
	return len(q.entries)
}

// take removes and returns all entries. It reports whether more may come.
func (q *queue) take() (batch []*pending, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch, q.entries = q.entries, nil
	if q.alarm != nil {
		q.alarm.Stop()
		q.alarm = nil
	}
	return batch, !q.closed
}

// close closes the queue. Remaining entries can still be taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	notify(q.wake)
}

// accepted returns the number of entries ever put.
func (q *queue) accepted() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// notify puts a token in a channel of capacity one, unless it has one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
