package admission

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"
)

// overloadWait is how long the head of a queue may wait before the wait counts as
// overload. A shorter wait is a burst.
const overloadWait = 50 * time.Millisecond

// A fairQueue bounds how many requests run at once. The others wait in one queue
// for each tenant, and the queues are served round-robin: a tenant that sends
// more waits longer. A request that finds all places taken evicts the oldest
// request of the longest queue.
//
// Under overload the queues are LIFO, because in FIFO order every answer would be
// late, and the concurrency limit falls to the smallest value that keeps the
// throughput (hill climbing, see concurrencyLimit). A request that has waited
// long runs only where nothing else does. It is not rejected early: to reject
// costs nearly as much as to answer, and a rejected client retries.
//
// TestOverload models it: at three times the capacity p50 is 3 ms instead of 20,
// and the p99 of a tenant that sends little is 17 ms instead of 45.
type FairQueue struct {
	capacity int           // of all queues together
	wait     time.Duration // the longest a request waits

	mu            sync.Mutex
	concurrency   concurrencyLimit // its max is the number of slots
	free          int              // slots
	waiting       int
	queues        []*tenantQueue // that are not empty; the first is served next
	overloadSince time.Time      // the start of the last overload
	overloadUntil time.Time      // its end, unless it is seen again before
}

// NewFairQueue returns a queue of so many slots and so many waiting requests, each
// for so long.
func NewFairQueue(most, room int, wait time.Duration) FairQueue {
	return FairQueue{capacity: room, wait: wait, concurrency: newConcurrencyLimit(most), free: most}
}

// A tenantQueue holds the waiting requests of a tenant, the oldest first.
type tenantQueue struct {
	tenant string
	list.List
}

// A waiter tells a waiting request whether it may run.
type waiter struct {
	arrived  time.Time
	admitted chan bool
}

// Acquire waits for a slot and reports whether there is one. There is none for a
// request that was evicted, has waited too long, or was cancelled. The caller
// releases its slot.
func (f *FairQueue) Acquire(ctx context.Context, tenant string) bool {
	f.mu.Lock()
	if f.free > 0 && (f.waiting == 0 || f.working() < f.concurrency.limit || time.Now().After(f.overloadUntil)) {
		f.free--
		f.mu.Unlock()
		return true
	}
	l, place := f.enqueue(tenant)
	f.mu.Unlock()

	patience := time.NewTimer(f.wait)
	defer patience.Stop()
	mine := place.Value.(waiter).admitted
	select {
	case has := <-mine:
		return has
	case <-patience.C:
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case has := <-mine: // meanwhile
		return has
	default:
		f.remove(l, place)
		return false
	}
}

// enqueue appends a request to its tenant's queue.
func (f *FairQueue) enqueue(tenant string) (*tenantQueue, *list.Element) {
	i := slices.IndexFunc(f.queues, func(l *tenantQueue) bool { return l.tenant == tenant })
	if i < 0 {
		i = len(f.queues)
		f.queues = append(f.queues, &tenantQueue{tenant: tenant})
	}
	l := f.queues[i]
	place := l.PushBack(waiter{time.Now(), make(chan bool, 1)})
	f.waiting++
	if f.waiting > f.capacity {
		longest := slices.MaxFunc(f.queues, func(a, b *tenantQueue) int { return a.Len() - b.Len() })
		f.notify(longest, longest.Front(), false)
	}
	return l, place
}

// Load returns the number of running and of waiting requests.
func (f *FairQueue) Load() (working, waiting int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.working(), f.waiting
}

func (f *FairQueue) working() int { return f.concurrency.max - f.free }

// Release frees a slot and admits the next request.
func (f *FairQueue) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == 0 {
		f.free++
		return
	}
	now := time.Now()
	if !now.After(f.overloadUntil) {
		f.concurrency.observe(now, f.overloadSince)
	}
	for i, l := range f.queues {
		next := l.Front()
		if waitedFor(next, now) > overloadWait {
			f.markOverload(now)
			next = l.Back()
		}
		if now.After(f.overloadUntil) || f.concurrency.admits(f.working()-1, waitedFor(next, now)) {
			f.queues = append(slices.Delete(f.queues, i, i+1), l)
			f.notify(l, next, true)
			return
		}
	}
	f.free++ // for the next to arrive
}

// markOverload starts an overload, or prolongs it.
func (f *FairQueue) markOverload(now time.Time) {
	if now.After(f.overloadUntil) {
		f.overloadSince = now
	}
	f.overloadUntil = now.Add(overloadWait)
}

// waitedFor returns how long a waiter has waited.
func waitedFor(place *list.Element, now time.Time) time.Duration {
	return now.Sub(place.Value.(waiter).arrived)
}

// notify admits or evicts a waiter.
func (f *FairQueue) notify(l *tenantQueue, place *list.Element, has bool) {
	place.Value.(waiter).admitted <- has
	f.remove(l, place)
}

// remove takes a waiter out of its queue, and removes the queue if it is empty.
func (f *FairQueue) remove(l *tenantQueue, place *list.Element) {
	l.Remove(place)
	f.waiting--
	if l.Len() == 0 {
		f.queues = slices.DeleteFunc(f.queues, func(other *tenantQueue) bool { return other == l })
	}
}
