package approval

import (
	"encoding/binary"
	"fmt"
)

// A request stays stored for a day after it has ended. A limit on pending
// requests therefore does not bound storage, because a PEP can submit and cancel
// at any rate. The quota counts the bytes of all requests, for each tenant and in
// total.

// bytesOfAll is the key of the total. The key of a tenant is [bytesOf] it.
var bytesOfAll = []byte("all")

func bytesOf(tenant string) []byte { return append([]byte("tenant\x00"), tenant...) }

// indexWeight is the approximate size in bytes of a request's index entries.
const indexWeight = 512

// weight returns the bytes that a stored request counts for.
func weight(value []byte) int64 { return int64(len(value)) + indexWeight }

// storedBytes returns the bytes stored under the key of a count.
func (t txn) storedBytes(key []byte) int64 {
	value := t.Bucket(bucketKept).Get(key)
	if value == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(value))
}

// addBytes adds more, which may be negative, to the counts of a tenant and of all
// tenants.
func (t txn) addBytes(tenant string, more int64) error {
	for _, key := range [][]byte{bytesOfAll, bytesOf(tenant)} {
		n := t.storedBytes(key) + more
		if n <= 0 {
			if err := t.Bucket(bucketKept).Delete(key); err != nil {
				return err
			}
			continue
		}
		if err := t.Bucket(bucketKept).Put(key, binary.BigEndian.AppendUint64(nil, uint64(n))); err != nil {
			return err
		}
	}
	return nil
}

// checkQuota returns [ErrTooManyKept] if the tenant, or all tenants together,
// exceed their quota.
func (s *Service) checkQuota(tx txn, tenant string) error {
	if tx.storedBytes(bytesOf(tenant)) > s.config.MaxKept {
		return fmt.Errorf("%w: more than %d bytes of the tenant", ErrTooManyKept, s.config.MaxKept)
	}
	if tx.storedBytes(bytesOfAll) > s.config.MaxKeptAll {
		return fmt.Errorf("%w: more than %d bytes", ErrTooManyKept, s.config.MaxKeptAll)
	}
	return nil
}
