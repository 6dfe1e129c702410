package capability

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"
)

// repetitionWindow is how long after a use the same call counts as its repetition. It covers the
// retries of PEPs and of proxies.
const repetitionWindow = time.Minute

// A Use is a decision in the log that spent or repeated a use, or took a proof.
type Use struct {
	Index  uint64 // of the log entry
	Tenant string
	ID     string // of the capability
	Call   string // digest of the call; "" matches no repetition
	Proof  string // id of the proof that it took; "" for none
	Unused bool   // it took a proof and no use
	Time   time.Time
}

// A counter counts the uses of one capability. Check and take are one step.
type counter struct {
	mu     sync.Mutex
	most   int
	ended  bool // revoked or expired: no use is given
	counts uses
}

// uses are the uses of one capability up to some moment.
type uses struct {
	Used    int                  `json:"used"`
	Recent  map[string]time.Time `json:"recent,omitempty"` // calls that a repetition may follow
	pruneAt int                  // number of recent calls at which old ones are deleted
}

func newCounter(most int) *counter { return &counter{most: most} }

// add counts a call, and reports false for a repetition.
func (u *uses) add(call string, at time.Time) bool {
	if u.repeats(call, at) {
		return false
	}
	u.Used++
	if call == "" {
		return true
	}
	if len(u.Recent) >= u.pruneAt {
		u.prune(at)
	}
	u.Recent[call] = at
	return true
}

// prune deletes calls that can no longer be repeated.
func (u *uses) prune(now time.Time) {
	kept := map[string]time.Time{}
	for call, at := range u.Recent {
		if now.Sub(at) < repetitionWindow {
			kept[call] = at
		}
	}
	u.Recent, u.pruneAt = kept, 2*len(kept)+64
}

func (u *uses) repeats(call string, at time.Time) bool {
	earlier, ok := u.Recent[call]
	return ok && call != "" && at.Sub(earlier).Abs() < repetitionWindow
}

// left returns the number of uses left to a call. The repetition of one has the use that it repeats.
func (c *counter) left(call string, at time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := max(c.most-c.counts.Used, 0)
	if c.counts.repeats(call, at) {
		left++
	}
	return left
}

// hasLeft reports whether there is a use for a call, or it repeats one. The caller holds c.mu.
func (c *counter) hasLeft(call string, at time.Time) bool {
	return !c.ended && (c.counts.Used < c.most || c.counts.repeats(call, at))
}

func (c *counter) used() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts.Used
}

func (c *counter) setEnded(ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = ended
}

// set replaces the uses, at a start.
func (c *counter) set(u *uses) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts = uses{Used: u.Used}
	for call, at := range u.Recent {
		if c.counts.Recent == nil {
			c.counts.Recent = map[string]time.Time{}
		}
		c.counts.Recent[call] = at
	}
}

// A logReader counts the uses in the log. It reads each entry once. A start also reads the entries whose
// proofs may still be presented.
type logReader struct {
	mu      sync.Mutex
	marks   []mark           // of recent snapshots, the oldest first
	next    uint64           // index of the first entry that was not read
	counts  map[string]*uses // by capability
	changed map[string]bool  // counts that are not stored
	stored  uint64           // next, as stored
	again   time.Time        // when the counts are stored again
}

// A mark is the size of the log at a time: the proofs of all entries before it were taken before.
type mark struct {
	Next uint64    `json:"next"`
	Time time.Time `json:"time"`
}

// addMark adds the mark of a snapshot, and deletes those that a start after it does not need.
func (l *logReader) addMark(now time.Time) {
	l.marks = append(l.marks, mark{l.next, now})
	for len(l.marks) > 1 && now.Sub(l.marks[1].Time) > generation {
		l.marks = l.marks[1:]
	}
}

// proofsFrom returns the index from which the log may have proofs that can still be presented. A file
// without marks is of a version that took none.
func (l *logReader) proofsFrom(now time.Time) uint64 {
	from := l.next
	for _, m := range slices.Backward(l.marks) {
		if from = min(from, m.Next); now.Sub(m.Time) > generation {
			break
		}
	}
	return from
}

// due reports whether the last snapshot is old, and begins the time of the next one.
func (l *logReader) due(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.again) {
		return false
	}
	l.again = now.Add(snapshotEvery)
	return true
}

// readUses counts the uses in the log since the last call. The caller holds s.log.mu.
func (s *Service) readUses(ctx context.Context) error {
	if s.config.UsesSince == nil {
		return nil
	}
	end := s.logSize()
	if end != nil {
		s.log.next = min(s.log.next, *end) // a crash may have cost the log entries that were not waited for
	}
	if end != nil && !s.usesUnread() {
		s.log.next = *end
		return nil
	}
	from := s.log.next
	if !s.started && s.index.hasKeys() {
		from = s.log.proofsFrom(s.clock.last())
	}
	var read []Use
	err := s.config.UsesSince(ctx, from, func(u Use) error {
		if u.Index >= from && (end == nil || u.Index < *end) {
			read = append(read, u)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read uses of capabilities: %w", err)
	}
	for _, u := range read {
		s.restoreProof(u)
		if u.Index >= s.log.next {
			s.log.next = u.Index + 1
			s.countUse(u)
		}
	}
	if end != nil {
		s.log.next = *end
	}
	return nil
}

// logSize returns the number of entries in the log, or nil if it is unknown.
func (s *Service) logSize() *uint64 {
	if s.config.LogSize == nil {
		return nil
	}
	size := s.config.LogSize()
	return &size
}

// usesUnread reports whether the log may have uses that were not read. Every use is taken before its
// entry is in the log, so there are none if as many were read as were taken. At a start nothing is
// known of them.
func (s *Service) usesUnread() bool {
	return !s.started && s.index.hasKeys() || slices.ContainsFunc(s.index.limited(), func(e *entry) bool {
		return !s.started || e.uses.used() != s.log.of(e.ID).Used
	})
}

// restoreProof takes the proof that an entry of the log took, at a start.
func (s *Service) restoreProof(u Use) {
	id, ok := parseProofID(u.Proof)
	e := s.index.get(u.ID)
	if !ok || s.started || e == nil || e.Tenant != u.Tenant {
		return
	}
	s.proofs.restore(id, holderOf(e.Tenant, e.Holder), s.clock.last())
}

// countUse counts a use that the log has.
func (s *Service) countUse(u Use) {
	s.clock.observe(u.Time)
	e := s.index.get(u.ID)
	if e == nil || e.Tenant != u.Tenant || u.Unused {
		return
	}
	for _, of := range s.counted(e) {
		if s.log.of(of.ID).add(u.Call, u.Time) {
			s.log.changed[of.ID] = true
		}
	}
}

// of returns the counted uses of a capability.
func (l *logReader) of(id string) *uses {
	if l.counts[id] == nil {
		l.counts[id] = &uses{}
	}
	return l.counts[id]
}

// snapshot stores the uses in the log up to now, so that the next start reads only later entries.
func (s *Service) snapshot(ctx context.Context) error {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if err := s.readUses(ctx); err != nil {
		return err
	}
	for id := range s.log.counts {
		if s.index.get(id) == nil { // deleted, with its stored uses
			delete(s.log.counts, id)
			delete(s.log.changed, id)
		}
	}
	if s.index.empty() && s.log.next == s.log.stored && len(s.log.changed) == 0 {
		return nil // nothing depends on the time either
	}
	return s.storeUses()
}

// storeUses stores the uses that were read. The caller holds s.log.mu.
func (s *Service) storeUses() error {
	now := s.moment()
	s.log.addMark(now)
	if err := s.db.Update(func(tx *bolt.Tx) error { return s.log.store(tx, now) }); err != nil {
		return fmt.Errorf("store uses of capabilities: %w", err)
	}
	s.log.stored, s.log.changed = s.log.next, map[string]bool{}
	return nil
}

// Keys of the bucket log.
var (
	keyNext  = []byte("next")
	keyTime  = []byte("time")
	keyMarks = []byte("marks")
)

// store writes the index, the time and the counts that have changed.
func (l *logReader) store(tx *bolt.Tx, now time.Time) error {
	for id := range l.changed {
		l.counts[id].prune(now)
		value, err := json.Marshal(l.counts[id])
		if err != nil {
			return err
		}
		if err := tx.Bucket(bucketUses).Put([]byte(id), value); err != nil {
			return err
		}
	}
	marks, err := json.Marshal(l.marks)
	if err != nil {
		return err
	}
	if err := tx.Bucket(bucketLog).Put(keyMarks, marks); err != nil {
		return err
	}
	if err := tx.Bucket(bucketLog).Put(keyTime, now.AppendFormat(nil, time.RFC3339Nano)); err != nil {
		return err
	}
	return tx.Bucket(bucketLog).Put(keyNext, binary.BigEndian.AppendUint64(nil, l.next))
}

// load reads what store wrote, and returns its time.
func (l *logReader) load(tx *bolt.Tx) (at time.Time, err error) {
	next := tx.Bucket(bucketLog).Get(keyNext)
	if next == nil {
		return at, nil
	}
	if len(next) != 8 || at.UnmarshalText(tx.Bucket(bucketLog).Get(keyTime)) != nil {
		return at, fmt.Errorf("read index of the log: it is %x", next)
	}
	l.next = binary.BigEndian.Uint64(next)
	l.stored = l.next
	if marks := tx.Bucket(bucketLog).Get(keyMarks); marks != nil {
		if err := json.Unmarshal(marks, &l.marks); err != nil {
			return at, fmt.Errorf("read marks of the log: %w", err)
		}
	}
	return at, tx.Bucket(bucketUses).ForEach(func(id, value []byte) error {
		u := &uses{}
		if err := json.Unmarshal(value, u); err != nil {
			return fmt.Errorf("read uses of %s: %w", id, err)
		}
		l.counts[string(id)] = u
		return nil
	})
}
