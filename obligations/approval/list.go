package approval

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/outbox"
	"github.com/policy-service/policy-service/obligations/recordfile"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Query selects requests. The zero Query selects all.
type Query struct {
	Tenants []string           // nil means all
	Status  authzen.TaskStatus // "" means all
	Decided bool               // only those that are not pending
	// For selects those on which this person may decide, or with Others those on which the person may
	// not, as a hint ([Service.Allowed]). Such a list may yield places without a request.
	For    *Approver
	Others bool
	After  string // [Listed.Token] of an earlier list; the result begins after it
}

// A Listed is a request in a list.
type Listed struct {
	*Request         // nil at a place that the query does not select; see [Query.For]
	Token    string  // token of its position
	Allowed  Allowed // of the person of the query, if it has one
}

// ErrPage means that Query.After is not a position in a list.
var ErrPage = recordfile.ErrPage

// List yields the requests that q selects: first escalated ones, then by priority, then the oldest; after
// them those that are decided, the newest first. It reads one at a
// time without holding a lock, so it delays no vote and no submission. A request that changes
// meanwhile may be missing, or appear in its new state.
func (s *Service) List(ctx context.Context, q Query) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		index := recordfile.Index{DB: s.db, Bucket: bucketListed, Position: placeSize}
		for place, err := range index.List(ctx, q.prefixes(), q.After) {
			one := Listed{Token: place.Token}
			switch {
			case err != nil:
			case q.For != nil:
				one.Request, one.Allowed, err = s.allowedListed(ctx, &q, place.ID)
			default:
				one.Request, err = s.recordedRequest(ctx, place.ID)
			}
			if errors.Is(err, ErrUnknownTask) || err == nil && one.Request != nil && !q.selects(one.Request.Status()) {
				continue // changed since
			}
			if !yield(one, err) || err != nil {
				return
			}
		}
	}
}

// prefixes returns the prefixes of positions that q selects.
func (q *Query) prefixes() (all [][]byte) {
	tenants, statuses := q.Tenants, []authzen.TaskStatus{q.Status}
	if tenants == nil {
		tenants = []string{everyTenant}
	}
	if q.Status == "" {
		statuses = slices.DeleteFunc(slices.Clone(TaskStatuses), func(s authzen.TaskStatus) bool { return !q.selects(s) })
	}
	for _, tenant := range tenants {
		for _, status := range statuses {
			all = append(all, listPrefix(tenant, status))
		}
	}
	return all
}

// selects reports whether q selects requests of a status.
func (q *Query) selects(status authzen.TaskStatus) bool {
	return (q.Status == "" || status == q.Status) && !(q.Decided && status == authzen.TaskPending)
}

// recordedRequest returns a request whose records are all in the log.
func (s *Service) recordedRequest(ctx context.Context, id string) (*Request, error) {
	stored, err := s.recordedBytes(ctx, id)
	if err != nil {
		return nil, err
	}
	return decodeRequest(stored)
}

// recordedBytes returns a stored request whose records are all in the log. It waits only if a record of
// this request is still in the outbox.
func (s *Service) recordedBytes(ctx context.Context, id string) (stored []byte, err error) {
	recorded := false
	read := func(tx txn) error {
		stored = slices.Clone(tx.Bucket(bucketTasks).Get([]byte(id)))
		if stored == nil {
			return ErrUnknownTask
		}
		return nil
	}
	err = s.db.View(func(tx *bolt.Tx) (err error) {
		if recorded, err = (txn{tx}).isRecorded(id); recorded {
			err = read(txn{tx})
		}
		return err
	})
	if err != nil || recorded {
		return stored, err
	}
	return stored, s.view(ctx, read)
}

// isRecorded reports whether no record of a task is in the outbox.
func (t txn) isRecorded(id string) (bool, error) {
	for r, err := range outbox.Records(t.Tx) {
		if err != nil {
			return false, err
		}
		var body struct {
			Task string `json:"task"`
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			return false, fmt.Errorf("read record: %w", err)
		}
		if body.Task == id {
			return false, nil
		}
	}
	return true, nil
}

// TaskStatuses lists the statuses of requests.
var TaskStatuses = []authzen.TaskStatus{
	authzen.TaskPending, authzen.TaskApproved, authzen.TaskDenied, authzen.TaskExpired, authzen.TaskCancelled, authzen.TaskPartial,
}

// everyTenant is the index key of all tenants. It is not a valid tenant name.
const everyTenant = "*"

// listPrefix returns the prefix of positions of requests with a status, of one tenant or of all.
func listPrefix(tenant string, status authzen.TaskStatus) []byte {
	return fmt.Appendf(nil, "%s\x00%s\x00", tenant, status)
}

// placeSize is the length of a position before the task id, in bytes.
const placeSize = 9

// place returns the position of a request in a list. Pending ones have the order in which they are to be
// decided. The newest of the others is the first.
func (r *Request) place() []byte {
	rank, at := r.rank(), uint64(r.Submitted.UnixNano())
	if r.Status() != authzen.TaskPending {
		rank, at = decidedRank, ^at
	}
	return append(binary.BigEndian.AppendUint64([]byte{rank}, at), r.ID...)
}

// decidedRank is after the ranks of all pending requests.
const decidedRank = 0xff

// listed returns the index entries for lists.
func (r *Request) listed() []indexEntry {
	entry := func(tenant string) indexEntry {
		return indexEntry{bucketListed, append(listPrefix(tenant, r.Status()), r.place()...), nil}
	}
	return []indexEntry{entry(r.Tenant), entry(everyTenant)}
}
