package decisionlog

import "sync"

// A pending entry is one that is not in the segment.
type pending struct {
	tail []byte     // its line, without the beginning
	done chan error // receives the outcome; nil if nobody waits
}

// A queue hands entries to the one goroutine that takes them.
type queue struct {
	mu      sync.Mutex
	entries []*pending
	total   int64 // entries that were ever put
	closed  bool
	wake    chan struct{} // has a token when there may be something to take
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// put adds entries and returns how many there are now; none once the queue is
// closed.
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

// take takes all entries, and reports whether more may come.
func (q *queue) take() (batch []*pending, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch, q.entries = q.entries, nil
	return batch, !q.closed
}

// close ends the queue, of which the rest can be taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	notify(q.wake)
}

// accepted returns how many entries were ever put.
func (q *queue) accepted() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// notify puts a token in a channel that has room for one, unless it has it.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
