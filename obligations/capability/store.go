package capability

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/outbox"
	"github.com/policy-service/policy-service/obligations/recordfile"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Names of buckets; see the package comment.
var (
	bucketCapabilities = []byte("capabilities")
	bucketListed       = []byte("listed")
	bucketDue          = []byte("due")
	bucketUses         = []byte("uses")
	bucketLog          = []byte("log")
)

// openStore opens the file and creates missing buckets.
func openStore(path string) (*bolt.DB, error) {
	return recordfile.Open(path, func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error {
			return recordfile.CreateBuckets(tx, bucketCapabilities, bucketListed, bucketDue, bucketUses, bucketLog, outbox.Bucket)
		})
	})
}

// loadIndex reads all capabilities.
func (s *Service) loadIndex(tx *bolt.Tx) error {
	return tx.Bucket(bucketCapabilities).ForEach(func(id, value []byte) error {
		c := &Capability{}
		if err := json.Unmarshal(value, c); err != nil {
			return fmt.Errorf("read capability %s: %w", id, err)
		}
		s.clock.observe(latest(c.Created, c.Issued, c.Ended))
		s.index.put(c.ID, newEntry(c, weight(value), nil))
		return nil
	})
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// indexWeight is the approximate size in bytes of the index entries of a capability.
const indexWeight = 1024

// weight returns the bytes that a stored capability counts for.
func weight(value []byte) int64 { return int64(len(value)) + indexWeight }

// A txn is a transaction on the buckets.
type txn struct {
	*bolt.Tx
	s *Service
}

// put replaces a capability and its index entries, and records the event. was is nil for a new one.
func (t txn) put(was *entry, is *Capability, e event, at time.Time) error {
	if was != nil {
		if err := t.removeKeys(was.Capability); err != nil {
			return err
		}
	}
	value, err := json.Marshal(is, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode capability: %w", err)
	}
	size := weight(value)
	if was == nil {
		if err := t.s.checkQuota(is.Tenant, size); err != nil {
			return err
		}
	}
	for _, key := range keysOf(is) {
		if err := t.Bucket(key.bucket).Put(key.key, nil); err != nil {
			return err
		}
	}
	if err := t.Bucket(bucketCapabilities).Put([]byte(is.ID), value); err != nil {
		return err
	}
	t.stage(is.ID, newEntry(is, size, was))
	return outbox.Append(t.Tx, transition(is, e, at))
}

// delete deletes a capability that ended long ago.
func (t txn) delete(was *entry) error {
	if err := t.removeKeys(was.Capability); err != nil {
		return err
	}
	t.stage(was.ID, nil)
	return errors.Join(t.Bucket(bucketUses).Delete([]byte(was.ID)), t.Bucket(bucketCapabilities).Delete([]byte(was.ID)))
}

func (t txn) removeKeys(c *Capability) error {
	for _, key := range keysOf(c) {
		if err := t.Bucket(key.bucket).Delete(key.key); err != nil {
			return err
		}
	}
	return nil
}

// stage changes the index after the commit, when the record is in the log.
func (t txn) stage(id string, e *entry) {
	s := t.s
	t.OnCommit(func() { s.staged = append(s.staged, staged{id, e}) })
}

// checkQuota returns ErrTooManyStored if a further capability exceeds the quota of the tenant or of
// all tenants.
func (s *Service) checkQuota(tenant string, more int64) error {
	of, all := s.index.bytesOf(tenant)
	if of+more > s.config.MaxStored {
		return fmt.Errorf("%w: more than %d bytes of the tenant", ErrTooManyStored, s.config.MaxStored)
	}
	if all+more > s.config.MaxStoredAll {
		return fmt.Errorf("%w: more than %d bytes", ErrTooManyStored, s.config.MaxStoredAll)
	}
	return nil
}

type indexKey struct{ bucket, key []byte }

// keysOf returns the keys of the index entries of a capability.
func keysOf(c *Capability) []indexKey {
	keys := []indexKey{{bucketDue, dueKey(c.due(), c.ID)}}
	for _, scope := range []string{c.Tenant, everyTenant, heldScope(c.Tenant, c.Holder), heldScope(everyTenant, c.Holder)} {
		keys = append(keys, indexKey{bucketListed, append(listPrefix(scope, c.State), c.place()...)})
	}
	return keys
}

func dueKey(at time.Time, id string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(at.Unix())), id...)
}

// everyTenant is the scope of all tenants. It is not a valid tenant name.
const everyTenant = "*"

// heldScope returns the scope of a holder's capabilities.
func heldScope(tenant string, h authzen.Subject) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", h.Type, h.ID))
	return tenant + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// listPrefix returns the prefix of positions of capabilities with a state, in a scope.
func listPrefix(scope string, state State) []byte {
	return fmt.Appendf(nil, "%s\x00%s\x00", scope, state)
}

// placeSize is the length of a position before the id, in bytes.
const placeSize = 8

// place returns the position of a capability in a list: the oldest first.
func (c *Capability) place() []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(c.Created.UnixNano())), c.ID...)
}

// overdue returns at most most entries that are due.
func (t txn) overdue(now time.Time, most int) (found []*entry) {
	c := t.Bucket(bucketDue).Cursor()
	until := dueKey(now.Add(time.Second), "")
	for key, _ := c.First(); key != nil && bytes.Compare(key, until) < 0 && len(found) < most; key, _ = c.Next() {
		if e := t.s.index.get(string(key[8:])); e != nil {
			found = append(found, e)
		}
	}
	return found
}
