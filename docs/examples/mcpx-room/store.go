package main

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"
)

// A Store keeps calls and access policies over a restart. Each change is on disk when its method
// returns.
type Store struct{ db *bbolt.DB }

var (
	bucketCalls    = []byte("calls")
	bucketPolicies = []byte("policies")
)

func openStore(file string) (*Store, error) {
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{bucketCalls, bucketPolicies} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	return &Store{db}, err
}

func (s *Store) load() (map[callKey]*call, map[policyKey]*accessPolicy, error) {
	calls, policies := make(map[callKey]*call), make(map[policyKey]*accessPolicy)
	err := s.db.View(func(tx *bbolt.Tx) error {
		err := tx.Bucket(bucketCalls).ForEach(func(_, text []byte) error {
			c := &call{}
			err := json.Unmarshal(text, c)
			calls[c.key()] = c
			return err
		})
		if err != nil {
			return err
		}
		return tx.Bucket(bucketPolicies).ForEach(func(_, text []byte) error {
			p := &accessPolicy{}
			err := json.Unmarshal(text, p)
			policies[p.key()] = p
			return err
		})
	})
	return calls, policies, err
}

func (s *Store) put(c *call) error { return s.set(bucketCalls, c.key(), c) }

func (s *Store) putPolicy(p *accessPolicy) error { return s.set(bucketPolicies, p.key(), p) }

func (s *Store) remove(c *call) error {
	return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketCalls).Delete(fmt.Appendf(nil, "%q", c.key())) })
}

func (s *Store) set(bucket []byte, key, value any) error {
	return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(fmt.Appendf(nil, "%q", key), encode(value)) })
}
