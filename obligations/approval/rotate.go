package approval

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"
)

// keyGrace is how long a key verifies after it stopped signing. It exceeds the lifetime of every
// signature.
const keyGrace = 90 * 24 * time.Hour

// rotate loads the signing keys, creates a new one if the newest is old, and deletes those whose
// signatures have all expired.
func (s *Service) rotate() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if len(s.keys) > 0 && now.Before(s.keys[0].Made.Add(s.config.RotateKeys)) {
		return nil
	}
	return update(s.db, func(tx txn) error {
		ring, err := readKeys(tx.Tx)
		if err != nil {
			return err
		}
		if len(ring) == 0 || !now.Before(ring[0].Made.Add(s.config.RotateKeys)) {
			key, err := newSigningKey(now)
			if err != nil {
				return err
			}
			if err := putKey(tx.Tx, key); err != nil {
				return err
			}
			ring = append(keyRing{key}, ring...)
		}
		s.keys = slices.DeleteFunc(ring, func(k signingKey) bool {
			return now.After(k.Made.Add(s.config.RotateKeys + keyGrace))
		})
		return nil
	})
}

// readKeys returns the keys, newest first.
func readKeys(tx *bolt.Tx) (keyRing, error) {
	var ring keyRing
	err := tx.Bucket(bucketSigning).ForEach(func(id, value []byte) error {
		var key signingKey
		if err := json.Unmarshal(value, &key); err != nil {
			return fmt.Errorf("read signing key %s: %w", id, err)
		}
		ring = append(ring, key)
		return nil
	})
	slices.SortFunc(ring, func(a, b signingKey) int { return b.Made.Compare(a.Made) })
	return ring, err
}

func putKey(tx *bolt.Tx, key signingKey) error {
	value, err := json.Marshal(key)
	if err != nil {
		return fmt.Errorf("encode signing key: %w", err)
	}
	return tx.Bucket(bucketSigning).Put([]byte(key.ID), value)
}
