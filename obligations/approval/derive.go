package approval

import (
	"encoding/binary"
	"errors"
	"slices"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Some buckets are missing, or have other keys, in files of other versions. Each transaction
// therefore stores its number. If the number of the last transaction is missing, another version
// wrote the file, and these buckets are rebuilt.

// keyLast names the form of the buckets. Versions without a list of standing approvals store their
// transactions as "transaction.3", those without announcements as "transaction.2". Versions without priorities, which list requests in another order, store them as
// "transaction".
var keyLast = []byte("transaction.4")

// update runs a transaction and stores its number.
func update(db *bolt.DB, f func(txn) error) error {
	return db.Update(func(tx *bolt.Tx) error {
		if err := f(txn{tx}); err != nil {
			return err
		}
		return tx.Bucket(bucketLast).Put(keyLast, binary.BigEndian.AppendUint64(nil, uint64(tx.ID())))
	})
}

// isOurs reports whether this version wrote the last transaction.
func (t txn) isOurs() bool {
	b := t.Bucket(bucketLast)
	if b == nil {
		return false
	}
	last := b.Get(keyLast)
	return len(last) == 8 && binary.BigEndian.Uint64(last)+1 == uint64(t.ID())
}

// isDerived reports whether an index entry belongs to a bucket that is rebuilt.
func isDerived(e indexEntry) bool {
	return slices.ContainsFunc([][]byte{bucketPending, bucketNotices, bucketListed, bucketAnnouncements, bucketMessages, bucketStanding}, func(name []byte) bool {
		return string(name) == string(e.bucket)
	})
}

// derive rebuilds buckets from tasks.
func (t txn) derive() error {
	for _, name := range [][]byte{bucketKept, bucketPending, bucketNotices, bucketListed, bucketAnnouncements, bucketMessages, bucketStanding} {
		if err := t.DeleteBucket(name); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
			return err
		}
		if _, err := t.CreateBucket(name); err != nil {
			return err
		}
	}
	return t.Bucket(bucketTasks).ForEach(func(_, value []byte) error {
		r, err := decodeRequest(value)
		if err != nil {
			return err
		}
		for _, e := range derived(r) {
			if !isDerived(e) {
				continue
			}
			if err := t.Bucket(e.bucket).Put(e.key, e.value); err != nil {
				return err
			}
		}
		return t.addBytes(r.Tenant, weight(value))
	})
}
