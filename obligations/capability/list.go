package capability

import (
	"context"
	"iter"

	"github.com/policy-service/policy-service/obligations/recordfile"
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

// List yields the capabilities that q selects, the oldest first. It holds no lock, so it delays no
// transition. A capability that changes meanwhile may be missing, or appear in its new state.
func (s *Service) List(ctx context.Context, q Query) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		if err := s.outbox.Settle(ctx); err != nil {
			yield(Listed{}, err)
			return
		}
		index := recordfile.Index{DB: s.db, Bucket: bucketListed, Position: placeSize}
		for place, err := range index.List(ctx, q.prefixes(), q.After) {
			if err != nil {
				yield(Listed{}, err)
				return
			}
			e := s.index.get(place.ID)
			if e != nil && q.selects(e.Capability) && !yield(Listed{e.answer(), place.Token}, nil) {
				return
			}
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

// prefixes returns the prefixes of positions that q selects.
func (q *Query) prefixes() (all [][]byte) {
	states := []State{q.State}
	if q.State == "" {
		states = States
	}
	for _, scope := range q.scopes() {
		for _, state := range states {
			all = append(all, listPrefix(scope, state))
		}
	}
	return all
}
