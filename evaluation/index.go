package evaluation

import (
	"iter"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// An index finds the policies whose scope a request satisfies without trying
// the others: by action, then principal, then resource. A policy it does not
// find evaluates to false and cannot error, because a scope names entities and
// nothing else; so leaving it out changes neither decision, reasons nor errors.
type index struct {
	actions level[level[level[[]int32]]] // ordinals of policies, in the order of their ids
}

// A level maps the tests of one dimension of a scope to what lies below.
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

// A node is an entity and everything above it.
type node struct {
	uid       cedar.EntityUID
	ancestors []cedar.EntityUID
}

// each calls visit for every test of the level that n passes. A nil node is
// one that is not known: it may pass any.
func (l *level[T]) each(n *node, visit func(*T)) {
	if l.any != nil {
		visit(l.any)
	}
	if n == nil {
		l.tests(visit)
		return
	}
	look(l.equal, n.uid, visit)
	look(l.is, n.uid.Type, visit)
	if len(l.in) > 0 {
		look(l.in, n.uid, visit)
		for _, group := range n.ancestors {
			look(l.in, group, visit)
		}
	}
	if len(l.isIn) > 0 {
		look(l.isIn, typedGroup{n.uid.Type, n.uid}, visit)
		for _, group := range n.ancestors {
			look(l.isIn, typedGroup{n.uid.Type, group}, visit)
		}
	}
}

// tests calls visit for every test of the level that names something.
func (l *level[T]) tests(visit func(*T)) {
	every(l.equal, visit)
	every(l.in, visit)
	every(l.is, visit)
	every(l.isIn, visit)
}

func every[K comparable, T any](m map[K]*T, visit func(*T)) {
	for _, below := range m {
		visit(below)
	}
}

func look[K comparable, T any](m map[K]*T, key K, visit func(*T)) {
	if len(m) == 0 {
		return
	}
	if below, ok := m[key]; ok {
		visit(below)
	}
}

// below returns what lies below a test, making it when there is nothing yet.
func (l *level[T]) below(scope xast.IsScopeNode) *T {
	switch s := scope.(type) {
	case xast.ScopeTypeEq:
		return grow(&l.equal, s.Entity)
	case xast.ScopeTypeIn:
		return grow(&l.in, s.Entity)
	case xast.ScopeTypeIs:
		return grow(&l.is, s.Type)
	case xast.ScopeTypeIsIn:
		return grow(&l.isIn, typedGroup{s.Type, s.Entity})
	}
	if l.any == nil {
		l.any = new(T)
	}
	return l.any
}

func grow[K comparable, T any](m *map[K]*T, key K) *T {
	if *m == nil {
		*m = map[K]*T{}
	}
	if (*m)[key] == nil {
		(*m)[key] = new(T)
	}
	return (*m)[key]
}

// add files a policy under every way to satisfy its scope.
func (x *index) add(ordinal int32, s scope) {
	for _, action := range s.actions {
		principals := x.actions.below(action)
		for _, principal := range s.principals {
			resources := principals.below(principal)
			for _, resource := range s.resources {
				found := resources.below(resource)
				*found = append(*found, ordinal)
			}
		}
	}
}

// find appends to into the ordinals of the policies whose scope the request
// satisfies, each once, in order. Of a request that is not known whole, a nil
// node stands for what is not.
func (x *index) find(action, principal, resource *node, into []int32) []int32 {
	x.actions.each(action, func(principals *level[level[[]int32]]) {
		principals.each(principal, func(resources *level[[]int32]) {
			resources.each(resource, func(ordinals *[]int32) {
				into = append(into, *ordinals...)
			})
		})
	})
	slices.Sort(into)
	return slices.Compact(into)
}

// candidates are the policies that a request must be held against. It is a
// cedar.PolicyIterator.
type candidates struct {
	policies []*policy
	ordinals []int32
}

func (c *candidates) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, ordinal := range c.ordinals {
			p := c.policies[ordinal]
			if !yield(p.id, p.conditions) {
				return
			}
		}
	}
}

// withoutScope compiles a policy's conditions alone, for a policy that the
// index has found: its scope holds.
func withoutScope(p *xast.Policy) *cedar.Policy {
	stripped := *p
	all := xast.Scope{}.All()
	stripped.Principal, stripped.Action, stripped.Resource = all, all, all
	return cedar.NewPolicyFromAST((*ast.Policy)(&stripped))
}
