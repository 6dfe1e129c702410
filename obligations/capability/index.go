package capability

import (
	"cmp"
	"crypto"
	"slices"
	"sync"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A holder is a subject of a tenant.
type holder struct{ tenant, kind, id string }

func holderOf(tenant string, s authzen.Subject) holder { return holder{tenant, s.Type, s.ID} }

// An entry is a capability in memory. An entry never changes, except its uses.
type entry struct {
	*Capability
	arguments *argumentRule    // nil for any
	public    crypto.PublicKey // of the holder; nil unless it is bound to a key
	uses      *counter         // nil if uses are not counted
	size      int64            // bytes it counts for
}

// newEntry returns the entry of a capability. If it continues an earlier one, it has that one's uses.
func newEntry(c *Capability, size int64, earlier *entry) *entry {
	e := &entry{Capability: c, size: size, arguments: newArgumentRule(&c.Constraints)}
	if c.Key != nil {
		e.public, _ = publicKey(c.Key.JWK)
	}
	switch {
	case !c.limited():
	case earlier != nil:
		e.uses = earlier.uses
	default:
		e.uses = newCounter(c.Constraints.MaxUses)
	}
	return e
}

// usable reports whether the entry may cover a request: an active one, and one that has just taken its
// last use, for the repetitions of that call.
func (e *entry) usable() bool { return e.State == Active || e.State == Exhausted }

// An index has all capabilities whose records are in the log. Its lists are replaced and never
// modified.
type index struct {
	mu       sync.RWMutex
	all      map[string]*entry   // by id
	held     map[holder][]*entry // usable ones: earliest end first, then lowest id
	tasks    map[string]string   // task → id of the one that waits, or waited, for it
	approved map[string]string   // approval → id of the one that was issued with it
	keys     map[string]string   // Idempotency-Key → id
	counts   map[holder]map[State]int
	live     map[string]int // by tenant
	stored   map[string]int64
	storedIn int64 // bytes of all tenants
}

func newIndex() *index {
	return &index{
		all: map[string]*entry{}, held: map[holder][]*entry{}, tasks: map[string]string{}, approved: map[string]string{}, keys: map[string]string{},
		counts: map[holder]map[State]int{}, live: map[string]int{}, stored: map[string]int64{},
	}
}

// get returns the entry of an id, or nil.
func (x *index) get(id string) *entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.all[id]
}

// empty reports whether there is no capability.
func (x *index) empty() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.all) == 0
}

// heldBy returns the usable entries of a holder.
func (x *index) heldBy(h holder) []*entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.held[h]
}

// byTask returns the entry of a task, or nil.
func (x *index) byTask(task string) *entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.all[x.tasks[task]]
}

// byApproval returns the entry that was issued with an approval, or nil.
func (x *index) byApproval(id string) *entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.all[x.approved[id]]
}

// byKey returns the entry of an idempotency key, or nil.
func (x *index) byKey(key []byte) *entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.all[x.keys[string(key)]]
}

// liveOf returns the live entries of a holder, by id.
func (x *index) liveOf(h holder) (found []*entry) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, e := range x.all {
		if e.live() && holderOf(e.Tenant, e.Holder) == h {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *entry) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// countOf returns how many capabilities a holder has in a state, and its tenant in live ones.
func (x *index) countOf(h holder, s State) (of, tenant int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.counts[h][s], x.live[h.tenant]
}

// active returns how many capabilities are active.
func (x *index) active() (n int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, of := range x.counts {
		n += of[Active]
	}
	return n
}

// bytesOf returns the bytes stored for a tenant, and for all.
func (x *index) bytesOf(tenant string) (of, all int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.stored[tenant], x.storedIn
}

// hasKeys reports whether there is an entry that is bound to a key.
func (x *index) hasKeys() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, e := range x.all {
		if e.Key != nil {
			return true
		}
	}
	return false
}

// limited returns the entries whose uses are counted.
func (x *index) limited() (found []*entry) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, e := range x.all {
		if e.uses != nil {
			found = append(found, e)
		}
	}
	return found
}

// put replaces the entry of an id. nil deletes it.
func (x *index) put(id string, is *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if was := x.all[id]; was != nil {
		x.remove(was)
	}
	if is != nil {
		x.add(is)
	}
}

func (x *index) add(e *entry) {
	h := holderOf(e.Tenant, e.Holder)
	x.all[e.ID] = e
	if e.Task != "" && !e.DecideBy.IsZero() {
		x.tasks[e.Task] = e.ID
	}
	for _, id := range e.ApprovalIDs {
		x.approved[id] = e.ID
	}
	if e.Idempotency != nil {
		x.keys[string(e.Idempotency)] = e.ID
	}
	if e.usable() {
		list := append(slices.Clone(x.held[h]), e)
		slices.SortFunc(list, func(a, b *entry) int {
			return cmp.Or(a.Constraints.ValidUntil.Compare(b.Constraints.ValidUntil), cmp.Compare(a.ID, b.ID))
		})
		x.held[h] = list
	}
	x.count(e, 1)
	if e.uses != nil {
		e.uses.setEnded(!e.usable())
	}
}

func (x *index) remove(e *entry) {
	delete(x.all, e.ID)
	if x.tasks[e.Task] == e.ID {
		delete(x.tasks, e.Task)
	}
	for _, id := range e.ApprovalIDs {
		delete(x.approved, id)
	}
	delete(x.keys, string(e.Idempotency))
	x.release(e)
	x.count(e, -1)
}

// release removes an entry from the usable ones of its holder.
func (x *index) release(e *entry) {
	h := holderOf(e.Tenant, e.Holder)
	if !slices.Contains(x.held[h], e) {
		return
	}
	list := slices.DeleteFunc(slices.Clone(x.held[h]), func(other *entry) bool { return other == e })
	if x.held[h] = list; len(list) == 0 {
		delete(x.held, h)
	}
}

// releaseRepeated removes exhausted entries whose last call can no longer be repeated.
func (x *index) releaseRepeated(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, list := range x.held {
		for _, e := range list {
			if e.State == Exhausted && !now.Before(e.Ended.Add(2*repetitionWindow)) {
				x.release(e)
			}
		}
	}
}

// count adds n of an entry to the counts.
func (x *index) count(e *entry, n int) {
	add(x.stored, e.Tenant, int64(n)*e.size)
	x.storedIn += int64(n) * e.size
	if !e.live() {
		return
	}
	add(x.live, e.Tenant, n)
	h := holderOf(e.Tenant, e.Holder)
	if x.counts[h] == nil {
		x.counts[h] = map[State]int{}
	}
	if add(x.counts[h], e.State, n); len(x.counts[h]) == 0 {
		delete(x.counts, h)
	}
}

// add adds to a count, and deletes one of 0.
func add[K comparable, N int | int64](counts map[K]N, key K, n N) {
	if counts[key] += n; counts[key] == 0 {
		delete(counts, key)
	}
}
