package capability

import (
	"bytes"
	"context"
	"encoding/base64"
	"iter"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Query selects capabilities. The zero Query selects all.
type Query struct {
	Tenants []string         // nil means all
	Holder  *authzen.Subject // type and id; nil means all
	State   State            // "" means all
	Server  string           // with a tool of this server; "" means all
	Caller  *string          // PEP that asked for it; nil means all
	After   string           // [Listed.Token] of an earlier list; the result begins after it
}

// A Listed is a capability in a list.
type Listed struct {
	*Capability
	Token string // token of its position
}

// listBatch is the number of positions that one transaction reads.
const listBatch = 100

// List yields the capabilities that q selects, the oldest first. It holds no lock, so it delays no
// transition. A capability that changes meanwhile may be missing, or appear in its new state.
func (s *Service) List(ctx context.Context, q Query) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		after, err := base64.RawURLEncoding.DecodeString(q.After)
		if err != nil || len(after) > 0 && len(after) <= placeSize {
			yield(Listed{}, ErrPage)
			return
		}
		if err := s.outbox.Settle(ctx); err != nil {
			yield(Listed{}, err)
			return
		}
		for {
			places, err := s.places(ctx, q, after)
			if err != nil {
				yield(Listed{}, err)
				return
			}
			for _, place := range places {
				e := s.index.get(string(place[placeSize:]))
				if e != nil && q.selects(e.Capability) && !yield(Listed{e.answer(), base64.RawURLEncoding.EncodeToString(place)}, nil) {
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

// selects reports whether a query selects a capability, whose holder and tenant it selects.
func (q *Query) selects(c *Capability) bool {
	return (q.State == "" || c.State == q.State) && (q.Server == "" || c.hasServer(q.Server)) && (q.Caller == nil || c.Caller == *q.Caller)
}

// scopes returns the scopes that a query selects.
func (q *Query) scopes() []string {
	tenants := q.Tenants
	if tenants == nil {
		tenants = []string{everyTenant}
	}
	if q.Holder == nil {
		return tenants
	}
	var scopes []string
	for _, tenant := range tenants {
		scopes = append(scopes, heldScope(tenant, *q.Holder))
	}
	return scopes
}

// places returns the next positions that q selects.
func (s *Service) places(ctx context.Context, q Query, after []byte) (next [][]byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	states := []State{q.State}
	if q.State == "" {
		states = States
	}
	err = s.db.View(func(tx *bolt.Tx) error {
		for _, scope := range q.scopes() {
			for _, state := range states {
				next = append(next, places(tx, listPrefix(scope, state), after)...)
			}
		}
		return nil
	})
	slices.SortFunc(next, bytes.Compare)
	next = slices.CompactFunc(next, bytes.Equal) // the query may name a tenant twice
	return next[:min(len(next), listBatch)], err
}

// places returns the positions with a prefix, after one of them.
func places(tx *bolt.Tx, prefix, after []byte) (next [][]byte) {
	c := tx.Bucket(bucketListed).Cursor()
	key, _ := c.Seek(slices.Concat(prefix, after))
	for ; bytes.HasPrefix(key, prefix) && len(next) < listBatch; key, _ = c.Next() {
		if place := key[len(prefix):]; !bytes.Equal(place, after) {
			next = append(next, slices.Clone(place))
		}
	}
	return next
}
