package approval

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/outbox"
	"github.com/policy-service/policy-service/obligations/recordfile"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Names of buckets; see the package comment.
var (
	bucketTasks     = []byte("tasks")
	bucketApprovals = []byte("approvals")
	bucketPending   = []byte("pending")
	bucketDue       = []byte("due")
	bucketKeys      = []byte("keys")
	bucketTokens    = []byte("tokens")
	bucketSigning   = []byte("signing")
	bucketNotices   = []byte("notices")
	bucketKept      = []byte("kept")
	bucketListed    = []byte("listed")

	bucketAnnouncements = []byte("announcements")
	bucketMessages      = []byte("messages")
	bucketStanding      = []byte("standing")
	bucketHistory       = []byte("history")

	bucketChanges = []byte("changes")

	bucketLast = []byte("last")
)

// openStore opens the file and creates missing buckets.
func openStore(path string) (*bolt.DB, error) {
	return recordfile.Open(path, func(db *bolt.DB) error {
		return update(db, func(tx txn) error {
			ours := tx.isOurs()
			err := recordfile.CreateBuckets(tx.Tx, bucketTasks, bucketApprovals, bucketPending, bucketDue, bucketKeys, bucketTokens, outbox.Bucket, bucketSigning, bucketNotices, bucketAnnouncements, bucketMessages, bucketStanding, bucketHistory, bucketChanges, bucketLast)
			if err != nil || ours {
				return err
			}
			return tx.derive()
		})
	})
}

// A txn is a transaction on the buckets.
type txn struct{ *bolt.Tx }

// request returns the request of a task.
func (t txn) request(id string) (*Request, error) {
	value := t.Bucket(bucketTasks).Get([]byte(id))
	if value == nil {
		return nil, ErrUnknownTask
	}
	return decodeRequest(value)
}

func decodeRequest(value []byte) (*Request, error) {
	var r Request
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	return &r, nil
}

// approved returns the request of an approval, and the index of its item.
func (t txn) approved(id string) (*Request, int, error) {
	task, index, found := bytes.Cut(t.Bucket(bucketApprovals).Get([]byte(id)), []byte{0})
	if !found {
		return nil, 0, ErrUnknownApproval
	}
	i, err := strconv.Atoi(string(index))
	if err != nil {
		return nil, 0, fmt.Errorf("read approval: %w", err)
	}
	r, err := t.request(string(task))
	return r, i, err
}

// put replaces a request and its index entries. was is nil for a new request; is is nil to delete
// it.
func (t txn) put(was, is *Request) error {
	for _, e := range derived(was) {
		if err := t.Bucket(e.bucket).Delete(e.key); err != nil {
			return err
		}
	}
	for _, e := range derived(is) {
		if err := t.Bucket(e.bucket).Put(e.key, e.value); err != nil {
			return err
		}
	}
	if err := t.countChange(cmp.Or(is, was).Tenant); err != nil {
		return err
	}
	tasks := t.Bucket(bucketTasks)
	if was != nil {
		if err := t.addBytes(was.Tenant, -weight(tasks.Get([]byte(was.ID)))); err != nil {
			return err
		}
	}
	if is == nil {
		return tasks.Delete([]byte(was.ID))
	}
	value, err := json.Marshal(is)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	if err := t.addBytes(is.Tenant, weight(value)); err != nil {
		return err
	}
	return tasks.Put([]byte(is.ID), value)
}

type indexEntry struct{ bucket, key, value []byte }

// derived returns the index entries of a request.
func derived(r *Request) []indexEntry {
	if r == nil {
		return nil
	}
	entries := append(r.listed(), indexEntry{bucketDue, dueKey(r.due(), r.ID), nil})
	if r.Status() == authzen.TaskPending {
		entries = append(entries, indexEntry{bucketPending, append(pendingPrefix(r.Tenant, &r.Caller), r.ID...), nil})
	}
	if r.Notice != nil {
		entries = append(entries, callbackEntry(r))
	}
	entries = append(append(entries, r.messageEntries()...), r.standingEntries()...)
	for i, item := range r.Items {
		if item.Approval != nil {
			entries = append(entries, indexEntry{bucketApprovals, []byte(item.Approval.ID), fmt.Appendf(nil, "%s\x00%d", r.ID, i)})
		}
	}
	if r.Idempotency != nil {
		entries = append(entries, indexEntry{bucketKeys, r.Idempotency, append(slices.Clone(r.Submission), r.ID...)})
	}
	return entries
}

func dueKey(at time.Time, id string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(at.Unix())), id...)
}

// pendingPrefix returns the prefix of the pending keys of a tenant or of one of its callers.
// Callers are hashed, because their names may contain a zero byte. Tenant names may not.
func pendingPrefix(tenant string, caller *string) []byte {
	prefix := append([]byte(tenant), 0)
	if caller != nil {
		sum := sha256.Sum256([]byte(*caller))
		prefix = append(prefix, sum[:]...)
	}
	return prefix
}

// count counts pending requests, up to most.
func (t txn) count(prefix []byte, most int) (n int) {
	c := t.Bucket(bucketPending).Cursor()
	for key, _ := c.Seek(prefix); bytes.HasPrefix(key, prefix) && n < most; key, _ = c.Next() {
		n++
	}
	return n
}

// known returns the task of an idempotency key, or "".
func (t txn) known(key, submission []byte) (string, error) {
	if key == nil {
		return "", nil
	}
	value := t.Bucket(bucketKeys).Get(key)
	if value == nil {
		return "", nil
	}
	if !bytes.Equal(value[:sha256.Size], submission) {
		return "", ErrDuplicate
	}
	return string(value[sha256.Size:]), nil
}

// consume records the use of a binding token.
func (t txn) consume(id string, expires int64) error {
	tokens := t.Bucket(bucketTokens)
	if tokens.Get([]byte(id)) != nil {
		return fmt.Errorf("%w: it was submitted before", ErrBinding)
	}
	return tokens.Put([]byte(id), binary.BigEndian.AppendUint64(nil, uint64(expires)))
}

// forget deletes expired binding tokens, which prove nothing.
func (t txn) forget(now time.Time) error {
	c := t.Bucket(bucketTokens).Cursor()
	for id, expires := c.First(); id != nil; id, expires = c.Next() {
		if binary.BigEndian.Uint64(expires) <= uint64(now.Unix()) {
			if err := c.Delete(); err != nil {
				return err
			}
		}
	}
	return nil
}

// overdue returns at most most requests that a sweep must process.
func (t txn) overdue(now time.Time, most int) ([]*Request, error) {
	return t.dueBefore(bucketDue, now, most)
}

// dueBefore returns at most most requests of an index by time that are due.
func (t txn) dueBefore(bucket []byte, now time.Time, most int) ([]*Request, error) {
	var found []*Request
	c := t.Bucket(bucket).Cursor()
	until := dueKey(now.Add(time.Second), "")
	for key, _ := c.First(); key != nil && bytes.Compare(key, until) < 0 && len(found) < most; key, _ = c.Next() {
		r, err := t.request(string(key[8:]))
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, nil
}
