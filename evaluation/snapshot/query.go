package snapshot

import (
	"github.com/cedar-policy/cedar-go"

	"github.com/policy-service/policy-service/obligations"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Query is a request in Cedar terms. It is also the entity store of one evaluation: the properties in
// the request, merged with the stored entities.
type Query struct {
	evaluation *authzen.EvaluationRequest // the request as sent
	Request    cedar.Request
	Support    obligations.Support
	Approved   string // template of the approval that stands, or ""
	Denied     string // why no policy needs to be asked, or ""

	Store *entityStore
	own   [2]entity // subject and resource, if the request has properties of them
	owned int
}

// Get implements cedar.EntityGetter.
func (q *Query) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	e, ok := q.Entity(uid)
	return e.Entity, ok
}

// Entity returns an entity as the query sees it, and whether it exists.
func (q *Query) Entity(uid cedar.EntityUID) (entity, bool) {
	for i := range q.owned {
		if q.own[i].UID == uid {
			return q.own[i], true
		}
	}
	e, ok := q.Store.ByUID[uid]
	return e, ok
}

// Node returns an entity with its ancestors, for the policy index.
func (q *Query) Node(uid cedar.EntityUID) ResolvedEntity {
	e, _ := q.Entity(uid)
	return ResolvedEntity{uid, e.Ancestors}
}

// Candidates returns the policies to evaluate for the query.
func (p *policies) Candidates(q *Query) *policyCandidates {
	action, principal, resource := q.Node(q.Request.Action), q.Node(q.Request.Principal), q.Node(q.Request.Resource)
	return &policyCandidates{p.Ordered, p.index.find(&action, &principal, &resource, nil)}
}
