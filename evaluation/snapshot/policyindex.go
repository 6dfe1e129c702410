package snapshot

import (
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
)

// A policyIndex finds the policies whose scope a request satisfies: by action, then principal, then
// resource. Every other policy evaluates to false and cannot error, because a scope consists of
// entity literals only. Skipping it changes neither decision, reasons nor errors.
type policyIndex struct {
	actions level[level[level[[]int32]]] // positions of policies, in the order of their ids
}

// A level maps the tests of one dimension of a scope to the next dimension.
type level[T any] struct {
	any   *T
	equal map[cedar.EntityUID]*T
	in    map[cedar.EntityUID]*T
	is    map[cedar.EntityType]*T
	isIn  map[typedGroup]*T
}

type typedGroup struct {
	entityType cedar.EntityType
	group      cedar.EntityUID
}

// visitMatching calls visit for every test of the level that n passes. A nil n is unknown and may pass
// any test.
func (l *level[T]) visitMatching(n *ResolvedEntity, visit func(*T)) {
	if l.any != nil {
		visit(l.any)
	}
	if n == nil {
		l.visitNamed(visit)
		return
	}
	visitKey(l.equal, n.UID, visit)
	visitKey(l.is, n.UID.Type, visit)
	if len(l.in) > 0 {
		visitKey(l.in, n.UID, visit)
		for _, group := range n.Ancestors {
			visitKey(l.in, group, visit)
		}
	}
	if len(l.isIn) > 0 {
		visitKey(l.isIn, typedGroup{n.UID.Type, n.UID}, visit)
		for _, group := range n.Ancestors {
			visitKey(l.isIn, typedGroup{n.UID.Type, group}, visit)
		}
	}
}

// visitNamed calls visit for every test of the level that names an entity or a type.
func (l *level[T]) visitNamed(visit func(*T)) {
	visitAll(l.equal, visit)
	visitAll(l.in, visit)
	visitAll(l.is, visit)
	visitAll(l.isIn, visit)
}

func visitAll[K comparable, T any](m map[K]*T, visit func(*T)) {
	for _, below := range m {
		visit(below)
	}
}

func visitKey[K comparable, T any](m map[K]*T, key K, visit func(*T)) {
	if len(m) == 0 {
		return
	}
	if below, ok := m[key]; ok {
		visit(below)
	}
}

// child returns the value for a test, and creates it if it is missing.
func (l *level[T]) child(scope xast.IsScopeNode) *T {
	switch s := scope.(type) {
	case xast.ScopeTypeEq:
		return getOrAdd(&l.equal, s.Entity)
	case xast.ScopeTypeIn:
		return getOrAdd(&l.in, s.Entity)
	case xast.ScopeTypeIs:
		return getOrAdd(&l.is, s.Type)
	case xast.ScopeTypeIsIn:
		return getOrAdd(&l.isIn, typedGroup{s.Type, s.Entity})
	}
	if l.any == nil {
		l.any = new(T)
	}
	return l.any
}

func getOrAdd[K comparable, T any](m *map[K]*T, key K) *T {
	if *m == nil {
		*m = map[K]*T{}
	}
	if (*m)[key] == nil {
		(*m)[key] = new(T)
	}
	return (*m)[key]
}

// add adds a policy under every combination of tests that satisfies its scope.
func (x *policyIndex) add(ordinal int32, s cedarsyntax.Scope) {
	for _, action := range s.Actions {
		principals := x.actions.child(action)
		for _, principal := range s.Principals {
			resources := principals.child(principal)
			for _, resource := range s.Resources {
				found := resources.child(resource)
				*found = append(*found, ordinal)
			}
		}
	}
}

// find appends to into the positions of the policies whose scope the request satisfies, in order and
// without duplicates. A nil argument is an unknown entity.
func (x *policyIndex) find(action, principal, resource *ResolvedEntity, into []int32) []int32 {
	x.actions.visitMatching(action, func(principals *level[level[[]int32]]) {
		principals.visitMatching(principal, func(resources *level[[]int32]) {
			resources.visitMatching(resource, func(ordinals *[]int32) {
				into = append(into, *ordinals...)
			})
		})
	})
	slices.Sort(into)
	return slices.Compact(into)
}

// policies holds the policies in the order of their ids. They are evaluated in this order, so that the
// same request always has the same reasons.
type policies struct {
	Ordered []*Policy
	ByID    map[cedar.PolicyID]*Policy
	index   policyIndex
	reverse policyIndex // by action, then resource, then principal
}

func newPolicies(all []*Policy) policies {
	slices.SortFunc(all, func(a, b *Policy) int { return strings.Compare(string(a.ID), string(b.ID)) })
	out := policies{Ordered: all, ByID: make(map[cedar.PolicyID]*Policy, len(all))}
	for i, p := range all {
		out.ByID[p.ID] = p
		p.Scope = cedarsyntax.ScopeOf(p.Syntax)
		out.index.add(int32(i), p.Scope)
		out.reverse.add(int32(i), p.Scope.Reversed())
	}
	return out
}

// policyCandidates holds the policies to evaluate for a request. It is a cedar.PolicyIterator.
type policyCandidates struct {
	policies  []*Policy
	Positions []int32
}

// All yields the policies with their ids.
func (c *policyCandidates) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, ordinal := range c.Positions {
			p := c.policies[ordinal]
			if !yield(p.ID, p.conditions) {
				return
			}
		}
	}
}

// withoutScope compiles only a policy's conditions. Use it for policies that the index found, whose
// scope holds.
func withoutScope(p *xast.Policy) *cedar.Policy {
	stripped := *p
	all := xast.Scope{}.All()
	stripped.Principal, stripped.Action, stripped.Resource = all, all, all
	return cedar.NewPolicyFromAST((*ast.Policy)(&stripped))
}
