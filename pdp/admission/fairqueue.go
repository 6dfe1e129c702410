package admission

import (
	"container/list"
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// overloadWait is how long the head of a queue may wait before the wait counts as
// overload. A shorter wait is a burst.
const overloadWait = 50 * time.Millisecond

// A FairQueue bounds how many requests run at once. The others wait in one queue
// for each tenant. The queues are served round-robin, so a tenant that sends more
// waits longer. A request that arrives when the queues are full evicts the oldest
// request of the longest queue.
//
// Under overload the queues are LIFO, because in FIFO order every answer would be
// late. The concurrency limit falls to the smallest value that keeps the
// throughput (hill climbing, see concurrencyLimit). A request that has waited
// long runs only if no other does. It is not rejected early: a rejection costs
// nearly as much as an answer, and a rejected client retries.
//
// TestOverload models this: at three times the capacity p50 is 3 ms instead of 20
// ms. The p99 of a tenant that sends little is 17 ms instead of 45 ms.
type FairQueue struct {
	capacity int           // maximum number of waiting requests in all queues
	wait     time.Duration // maximum time that a request waits
	overload time.Duration // how long the head of a queue may wait before the wait counts as overload

	mu            sync.Mutex
	concurrency   concurrencyLimit // its max is the number of slots
	free          int              // number of free slots
	waiting       int
	queues        []*tenantQueue // non-empty queues; the first is served next
	overloadSince time.Time      // the start of the last overload
	overloadUntil time.Time      // end of the overload, unless it is detected again before
}

// NewFairQueue returns a queue with most slots. At most room requests wait, each
// for at most wait.
func NewFairQueue(most, room int, wait time.Duration) FairQueue {
	return FairQueue{capacity: room, wait: wait, overload: overloadWait, concurrency: newConcurrencyLimit(most), free: most}
}

// NewStreamQueue returns a queue with most slots for answers that give up their
// slot and ask for it again until they end. They wait in FIFO order for as long
// as their context lasts.
func NewStreamQueue(most int) FairQueue {
	return FairQueue{capacity: math.MaxInt, wait: math.MaxInt64, overload: math.MaxInt64, concurrency: newConcurrencyLimit(most), free: most}
}

// A tenantQueue holds the waiting requests of a tenant, oldest first.
type tenantQueue struct {
	tenant string
	list.List
}

// A waiter is a waiting request and the channel that admits or evicts it.
type waiter struct {
	arrived  time.Time
	admitted chan bool
}

// Acquire waits for a slot and reports whether it got one. It reports false for a
// request that was evicted, waited too long, or was canceled. The caller must
// release its slot.
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
	case has := <-mine: // decided since the timer or the context ended
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
		if waitedFor(next, now) > f.overload {
			f.markOverload(now)
			next = l.Back()
		}
		if now.After(f.overloadUntil) || f.concurrency.admits(f.working()-1, waitedFor(next, now)) {
			f.queues = append(slices.Delete(f.queues, i, i+1), l)
			f.notify(l, next, true)
			return
		}
	}
	f.free++ // for the next request
}

// markOverload starts or extends an overload.
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

// remove removes a waiter from its queue, and an empty queue from the list.
func (f *FairQueue) remove(l *tenantQueue, place *list.Element) {
	l.Remove(place)
	f.waiting--
	if l.Len() == 0 {
		f.queues = slices.DeleteFunc(f.queues, func(other *tenantQueue) bool { return other == l })
	}
}
