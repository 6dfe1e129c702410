package approval

import (
	"encoding/binary"
	"fmt"
)

// A request is kept for a day after it has ended, so that what a tenant may have
// pending does not bound what it may have kept: a PEP can submit and cancel as
// fast as it can ask. The bytes of all requests are counted, of each tenant and
// of all.

// bytesOfAll is the key of the count of all; that of a tenant is [bytesOf] it.
var bytesOfAll = []byte("all")

func bytesOf(tenant string) []byte { return append([]byte("tenant\x00"), tenant...) }

// indexWeight is about what the index entries of a request take beside it.
const indexWeight = 512

// weight is how many bytes a stored request counts for.
func weight(value []byte) int64 { return int64(len(value)) + indexWeight }

// storedBytes returns how many bytes are kept, by the key of the count.
func (t txn) storedBytes(key []byte) int64 {
	value := t.Bucket(bucketKept).Get(key)
	if value == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(value))
}

// addBytes counts bytes that a tenant has more, or less.
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

// checkQuota reports a tenant that has more than it may, or all tenants together.
func (s *Service) checkQuota(tx txn, tenant string) error {
	if tx.storedBytes(bytesOf(tenant)) > s.config.MaxKept {
		return fmt.Errorf("%w: more than %d bytes of the tenant", ErrTooManyKept, s.config.MaxKept)
	}
	if tx.storedBytes(bytesOfAll) > s.config.MaxKeptAll {
		return fmt.Errorf("%w: more than %d bytes", ErrTooManyKept, s.config.MaxKeptAll)
	}
	return nil
}
