package approval

import (
	"encoding/binary"
	"errors"
	"slices"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Some buckets are not in the files of every version, or have other keys there.
// Who closes a file says so by the number of that transaction. If the next one is
// not that of who opens it, the service broke off, or another version has had the
// file, and these buckets are made anew.

// isDerived reports whether an index entry is of a bucket that is made anew.
func isDerived(e indexEntry) bool {
	return slices.ContainsFunc([][]byte{bucketPending, bucketNotices, bucketListed}, func(name []byte) bool {
		return string(name) == string(e.bucket)
	})
}

var keyClosed = []byte("transaction")

// closeStore closes a file, and says that it is whole.
func closeStore(db *bolt.DB) error {
	err := db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketClosed).Put(keyClosed, binary.BigEndian.AppendUint64(nil, uint64(tx.ID())))
	})
	return errors.Join(err, db.Close())
}

// wasClosed reports whether the last transaction of a file was that of who closed
// it.
func (t txn) wasClosed() bool {
	b := t.Bucket(bucketClosed)
	if b == nil {
		return false
	}
	last := b.Get(keyClosed)
	return len(last) == 8 && binary.BigEndian.Uint64(last)+1 == uint64(t.ID())
}

// derive makes buckets from tasks.
func (t txn) derive() error {
	for _, name := range [][]byte{bucketKept, bucketPending, bucketNotices, bucketListed} {
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
		return t.keep(r.Tenant, weight(value))
	})
}
