package evaluation

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
)

// A bound is a part of a population outside of which something is not true.
// Inside it, it may be.
type bound struct {
	everyone bool    // the whole population, and ordinals does not count
	ordinals []int32 // ascending
}

var (
	everyone = bound{everyone: true}
	nobody   = bound{}
)

// both bounds what holds in both: the smaller of the two will do.
func both(a, b bound) bound {
	if a.everyone || !b.everyone && len(b.ordinals) < len(a.ordinals) {
		return b
	}
	return a
}

// either bounds what holds in one of them.
func either(bounds ...bound) bound {
	var lists [][]int32
	for _, b := range bounds {
		if b.everyone {
			return everyone
		}
		if len(b.ordinals) > 0 {
			lists = append(lists, b.ordinals)
		}
	}
	if len(lists) == 1 {
		return bound{ordinals: lists[0]}
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	return bound{ordinals: slices.Compact(all)}
}

// A bounder bounds the entities for which the policies can permit a request
// that leaves its principal or its resource open. It goes by what is stored of
// them: an entity of which the request itself says something it cannot bound.
type bounder struct {
	*population
	open  types.String // the variable that is open: principal or resource
	query *query       // the rest of the request
}

// permitted bounds the entities that a permit can be found for.
func (b *bounder) permitted(p *policies) bound {
	var all []bound
	for _, ordinal := range b.policies(p) {
		if !p.ordered[ordinal].permits() {
			continue
		}
		satisfied := b.policy(p.ordered[ordinal])
		if all = append(all, satisfied); satisfied.everyone {
			break
		}
	}
	return either(all...)
}

// policies returns the ordinals of those whose scope some entity can satisfy.
func (b *bounder) policies(p *policies) []int32 {
	r := b.query.request
	action, principal, resource := b.query.node(r.Action), b.query.node(r.Principal), b.query.node(r.Resource)
	if b.open == "resource" {
		return p.index.find(&action, &principal, nil, nil)
	}
	return p.reverse.find(&action, &resource, nil, nil)
}

// policy bounds the entities that one policy is satisfied by: those that one
// test of its scope and every one of its conditions leaves.
func (b *bounder) policy(p *policy) bound {
	if computesGroup(p.syntax) {
		return b.scope(p.scope)
	}
	rest, possible := eval.PartialPolicy(b.environment(), (*xast.Policy)(p.conditions.AST()))
	if !possible {
		return nobody
	}
	all := b.scope(p.scope)
	for conjunct := range conjuncts(rest) {
		all = both(all, b.condition(conjunct))
	}
	return all
}

// computesGroup reports whether a policy has "is T in" with a group that is not
// written out. PartialPolicy takes an error in such a group for the policy's,
// though the group does not matter to an entity that is no T.
func computesGroup(p *xast.Policy) (computes bool) {
	for _, condition := range p.Conditions {
		xast.Inspect(xast.NewNode(condition.Body), func(n xast.IsNode) bool {
			if is, ok := n.(xast.NodeTypeIsIn); ok {
				_, literal := entityLiteral(is.Entity)
				computes = computes || !literal
			}
			return !computes
		})
	}
	return computes
}

// environment is what is known of the request. What is open is a variable.
func (b *bounder) environment() eval.Env {
	r := b.query.request
	env := eval.Env{Principal: r.Principal, Action: r.Action, Resource: r.Resource, Context: r.Context, Entities: b.query}
	if b.open == "resource" {
		env.Resource = eval.Variable(b.open)
	} else {
		env.Principal = eval.Variable(b.open)
	}
	return env
}

func (b *bounder) scope(s scope) bound {
	tests := s.principals
	if b.open == "resource" {
		tests = s.resources
	}
	all := make([]bound, len(tests))
	for i, test := range tests {
		all[i] = b.test(test)
	}
	return either(all...)
}

func (b *bounder) test(test xast.IsScopeNode) bound {
	switch t := test.(type) {
	case xast.ScopeTypeEq:
		return b.itself(t.Entity)
	case xast.ScopeTypeIn:
		return b.in(t.Entity)
	case xast.ScopeTypeIs:
		return b.is(t.Type)
	case xast.ScopeTypeIsIn:
		return both(b.is(t.Type), b.in(t.Entity))
	}
	return everyone
}

func (b *bounder) itself(uid cedar.EntityUID) bound {
	if ordinal, ok := b.ordinal(uid); ok {
		return bound{ordinals: []int32{ordinal}}
	}
	return nobody
}

func (b *bounder) in(group cedar.EntityUID) bound {
	return either(b.itself(group), bound{ordinals: b.below[group]})
}

func (b *bounder) is(t cedar.EntityType) bound {
	if len(b.uids) > 0 && b.uids[0].Type == t {
		return everyone
	}
	return nobody
}

// condition bounds the entities that a conjunct is true for. A conjunct that
// tells nothing, or nothing here, leaves everyone.
func (b *bounder) condition(n xast.IsNode) bound {
	switch n := n.(type) {
	case xast.NodeValue:
		if n.Value == types.False {
			return nobody
		}
	case xast.NodeTypeAnd:
		return both(b.condition(n.Left), b.condition(n.Right))
	case xast.NodeTypeOr:
		return either(b.condition(n.Left), b.condition(n.Right))
	case xast.NodeTypeIs:
		if b.isOpen(n.Left) {
			return b.is(n.EntityType)
		}
	case xast.NodeTypeIsIn:
		if group, ok := entityLiteral(n.Entity); ok && b.isOpen(n.Left) {
			return both(b.is(n.EntityType), b.in(group))
		}
	case xast.NodeTypeIn:
		return b.membership(n.Left, n.Right)
	case xast.NodeTypeEquals:
		return both(b.equal(n.Left, n.Right), b.equal(n.Right, n.Left))
	case xast.NodeTypeAccess:
		return b.equal(n, xast.NodeValue{Value: types.True})
	case xast.NodeTypeContains:
		return both(b.contains(n.Left, n.Right), b.oneOf(n.Right, n.Left))
	case xast.NodeTypeContainsAny:
		return both(b.shares(n.Left, n.Right), b.shares(n.Right, n.Left))
	case xast.NodeTypeExtensionCall:
		if _, fails := eval.ToPartialError(n); fails {
			return nobody
		}
	}
	return everyone
}

// membership bounds left in right.
func (b *bounder) membership(left, right xast.IsNode) bound {
	if b.isOpen(left) {
		return b.anyOf(right, func(v cedar.Value) bound {
			if group, ok := v.(cedar.EntityUID); ok {
				return b.in(group)
			}
			return nobody
		})
	}
	member, ok := entityLiteral(left)
	name, reads := b.attribute(right)
	if !ok || !reads {
		return everyone
	}
	var all []bound
	for _, group := range slices.Concat(b.query.node(member).ancestors, []cedar.EntityUID{member}) {
		all = append(all, b.find(b.values, name, group), b.find(b.elements, name, group))
	}
	return either(all...)
}

// equal bounds a variable or an attribute that is equal to a literal.
func (b *bounder) equal(n, literal xast.IsNode) bound {
	value, ok := literal.(xast.NodeValue)
	if !ok {
		return everyone
	}
	return b.being(n, value.Value)
}

// being bounds a variable or an attribute that is a value.
func (b *bounder) being(n xast.IsNode, value cedar.Value) bound {
	if uid, ok := value.(cedar.EntityUID); ok && b.isOpen(n) {
		return b.itself(uid)
	}
	if name, ok := b.attribute(n); ok {
		return b.find(b.values, name, value)
	}
	return everyone
}

// contains bounds an attribute that contains a literal.
func (b *bounder) contains(set, element xast.IsNode) bound {
	name, reads := b.attribute(set)
	value, literal := element.(xast.NodeValue)
	if !reads || !literal {
		return everyone
	}
	return b.find(b.elements, name, value.Value)
}

// oneOf bounds a variable or an attribute that is an element of a literal.
func (b *bounder) oneOf(n, set xast.IsNode) bound {
	if _, reads := b.attribute(n); !reads && !b.isOpen(n) {
		return everyone
	}
	return b.anyOf(set, func(v cedar.Value) bound { return b.being(n, v) })
}

// shares bounds an attribute that has an element in common with a literal.
func (b *bounder) shares(set, literal xast.IsNode) bound {
	name, reads := b.attribute(set)
	if !reads {
		return everyone
	}
	return b.anyOf(literal, func(v cedar.Value) bound { return b.find(b.elements, name, v) })
}

// anyOf bounds what holds for a literal or, where that is a set, for one of its
// elements.
func (b *bounder) anyOf(n xast.IsNode, holds func(cedar.Value) bound) bound {
	literal, ok := n.(xast.NodeValue)
	if !ok {
		return everyone
	}
	set, ok := literal.Value.(cedar.Set)
	if !ok {
		return holds(literal.Value)
	}
	var all []bound
	for element := range set.All() {
		all = append(all, holds(element))
	}
	return either(all...)
}

// find returns the entities of which an attribute was filed under a value.
func (b *bounder) find(filed map[types.String]map[any][]int32, name types.String, value cedar.Value) bound {
	key, ok := lookupKey(value)
	if !ok || filed[name] == nil {
		return everyone
	}
	return bound{ordinals: filed[name][key]}
}

func (b *bounder) isOpen(n xast.IsNode) bool {
	variable, ok := n.(xast.NodeTypeVariable)
	return ok && variable.Name == b.open
}

// attribute returns the name of an attribute of what is open.
func (b *bounder) attribute(n xast.IsNode) (name types.String, ok bool) {
	access, ok := n.(xast.NodeTypeAccess)
	if !ok || !b.isOpen(access.Arg) {
		return "", false
	}
	return access.Value, true
}
