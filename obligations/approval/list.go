package approval

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Query selects requests. The zero Query selects all.
type Query struct {
	Tenants []string           // nil is every one
	Status  authzen.TaskStatus // "" is every one
	After   string             // a [Listed.Token] of an earlier list: what comes behind that
}

// A Listed is a request in a list.
type Listed struct {
	*Request
	Token string // of its place
}

// ErrPage is a Query.After that is no place in a list.
var ErrPage = errors.New("the token is not one of a page")

// listBatch is how many places of a list are looked up at once.
const listBatch = 100

// List yields the requests that q selects: the escalated first, then the oldest.
// It reads them one after the other and holds nothing meanwhile, so that neither
// a decision nor a request waits for who reads a list; what changes while it is
// read may be left out of it, or be in it as it is by then.
func (s *Service) List(ctx context.Context, q Query) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		after, err := base64.RawURLEncoding.DecodeString(q.After)
		if err != nil || len(after) > 0 && len(after) <= placeSize {
			yield(Listed{}, ErrPage)
			return
		}
		for {
			places, err := s.places(ctx, q, after)
			if err != nil {
				yield(Listed{}, err)
				return
			}
			for _, place := range places {
				r, err := s.told(ctx, string(place[placeSize:]))
				if errors.Is(err, ErrUnknownTask) || err == nil && q.Status != "" && r.Status() != q.Status {
					continue // since
				}
				if !yield(Listed{r, base64.RawURLEncoding.EncodeToString(place)}, err) || err != nil {
					return
				}
			}
			if len(places) < listBatch {
				return
			}
			after = places[len(places)-1]
		}
	}
}

// places returns the next places that q selects.
func (s *Service) places(ctx context.Context, q Query, after []byte) (next [][]byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	tenants, statuses := q.Tenants, []authzen.TaskStatus{q.Status}
	if tenants == nil {
		tenants = []string{everyTenant}
	}
	if q.Status == "" {
		statuses = TaskStatuses
	}
	err = s.db.View(func(tx *bolt.Tx) error {
		for _, tenant := range tenants {
			for _, status := range statuses {
				next = append(next, txn{tx}.places(listPrefix(tenant, status), after)...)
			}
		}
		return nil
	})
	slices.SortFunc(next, bytes.Compare)
	next = slices.CompactFunc(next, bytes.Equal) // of a tenant that is named twice
	return next[:min(len(next), listBatch)], err
}

// places returns the places with a prefix behind one of them.
func (t txn) places(prefix, after []byte) (next [][]byte) {
	c := t.Bucket(bucketListed).Cursor()
	key, _ := c.Seek(slices.Concat(prefix, after))
	for ; bytes.HasPrefix(key, prefix) && len(next) < listBatch; key, _ = c.Next() {
		if place := key[len(prefix):]; !bytes.Equal(place, after) {
			next = append(next, slices.Clone(place))
		}
	}
	return next
}

// told returns a request of which all that happened to it is in the log. Only
// for one that something is happening to now does it wait for that.
func (s *Service) told(ctx context.Context, id string) (r *Request, err error) {
	recorded := false
	err = s.db.View(func(tx *bolt.Tx) (err error) {
		if recorded, err = (txn{tx}).isRecorded(id); recorded {
			r, err = txn{tx}.request(id)
		}
		return err
	})
	if err != nil || recorded {
		return r, err
	}
	return s.Request(ctx, id)
}

// isRecorded reports whether no record of a task is in the outbox.
func (t txn) isRecorded(id string) (bool, error) {
	c := t.Bucket(bucketOutbox).Cursor()
	for key, value := c.First(); key != nil; key, value = c.Next() {
		var r struct {
			Body struct {
				Task string `json:"task"`
			} `json:"body"`
		}
		if err := json.Unmarshal(value, &r); err != nil {
			return false, fmt.Errorf("read record: %w", err)
		}
		if r.Body.Task == id {
			return false, nil
		}
	}
	return true, nil
}

// TaskStatuses are those that a request can have.
var TaskStatuses = []authzen.TaskStatus{
	authzen.TaskPending, authzen.TaskApproved, authzen.TaskDenied, authzen.TaskExpired, authzen.TaskCancelled, authzen.TaskPartial,
}

// everyTenant stands for all tenants in the index. No tenant can have the name.
const everyTenant = "*"

// listPrefix begins the places of the requests of a status, of a tenant or of
// every one.
func listPrefix(tenant string, status authzen.TaskStatus) []byte {
	return fmt.Appendf(nil, "%s\x00%s\x00", tenant, status)
}

// placeSize is how much of a place is before the id of its task.
const placeSize = 9

// place is where a request is in a list: the escalated are first, then the
// oldest.
func (r *Request) place() []byte {
	late := byte(1)
	if r.Escalated {
		late = 0
	}
	return append(binary.BigEndian.AppendUint64([]byte{late}, uint64(r.Submitted.UnixNano())), r.ID...)
}

// listed are the index entries by which a request is listed.
func (r *Request) listed() []indexEntry {
	entry := func(tenant string) indexEntry {
		return indexEntry{bucketListed, append(listPrefix(tenant, r.Status()), r.place()...), nil}
	}
	return []indexEntry{entry(r.Tenant), entry(everyTenant)}
}
