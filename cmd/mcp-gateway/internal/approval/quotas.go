package approval

import (
	"errors"

	"go.etcd.io/bbolt"
)

// errTooMany means that as many calls wait as may.
var errTooMany = errors.New("too many calls wait")

// quotas bound the calls that wait, of each caller and altogether. The store
// counts them, because other processes add calls, too.
type quotas struct{ perCaller, limit int }

// check fails with errTooMany if no further call of an owner may wait.
func (q quotas) check(s *store, tx *bbolt.Tx, owner string) error {
	total, ofOwner := 0, 0
	err := s.each(tx, func(r *record) error {
		if r.State == asking || r.State == waiting {
			if total++; r.owner() == owner {
				ofOwner++
			}
		}
		return nil
	})
	if err == nil && (total >= q.limit || ofOwner >= q.perCaller) {
		err = errTooMany
	}
	return err
}

// Waiting returns how many calls wait.
func (s *Service) Waiting() (n int, err error) {
	err = s.store.all(func(r *record) error {
		if r.State == asking || r.State == waiting {
			n++
		}
		return nil
	})
	return n, err
}
