package snapshot

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
)

// A candidateSet is a superset of the entities for which a condition can be true, as positions in an
// entityIndex.
type candidateSet struct {
	all       bool    // every entity of the index; positions is unused
	positions []int32 // ascending
}

var (
	allCandidates = candidateSet{all: true}
	noCandidates  = candidateSet{}
)

// intersect returns a candidate set for the conjunction of two: the smaller one is sufficient.
func intersect(a, b candidateSet) candidateSet {
	if a.all || !b.all && len(b.positions) < len(a.positions) {
		return b
	}
	return a
}

// union returns a candidate set for the disjunction of several.
func union(bounds ...candidateSet) candidateSet {
	var lists [][]int32
	for _, b := range bounds {
		if b.all {
			return allCandidates
		}
		if len(b.positions) > 0 {
			lists = append(lists, b.positions)
		}
	}
	if len(lists) == 1 {
		return candidateSet{positions: lists[0]}
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	return candidateSet{positions: slices.Compact(all)}
}

// A prefilter narrows the entities for which the policies can permit a request whose principal or
// resource is unknown. It uses stored data only. It cannot exclude an entity that the request itself
// describes.
type prefilter struct {
	*entityIndex
	unknown types.String // the unknown variable: principal or resource
	query   *Query       // the known part of the request
}

// permitted returns the candidates that some permit can match.
func (b *prefilter) permitted(p *policies) candidateSet {
	var all []candidateSet
	for _, ordinal := range b.relevant(p) {
		if !p.Ordered[ordinal].Permits() {
			continue
		}
		satisfied := b.policy(p.Ordered[ordinal])
		if all = append(all, satisfied); satisfied.all {
			break
		}
	}
	return union(all...)
}

// relevant returns the positions of the policies whose scope some entity can satisfy.
func (b *prefilter) relevant(p *policies) []int32 {
	r := b.query.Request
	action, principal, resource := b.query.Node(r.Action), b.query.Node(r.Principal), b.query.Node(r.Resource)
	if b.unknown == "resource" {
		return p.index.find(&action, &principal, nil, nil)
	}
	return p.reverse.find(&action, &resource, nil, nil)
}

// policy returns the candidates of one policy: those of any test of its scope, intersected with those
// of each condition.
func (b *prefilter) policy(p *Policy) candidateSet {
	if computesGroup(p.Syntax) {
		return b.scope(p.Scope)
	}
	rest, possible := eval.PartialPolicy(b.environment(), (*xast.Policy)(p.conditions.AST()))
	if !possible {
		return noCandidates
	}
	all := b.scope(p.Scope)
	for conjunct := range cedarsyntax.EachConjunct(rest) {
		all = intersect(all, b.condition(conjunct))
	}
	return all
}

// computesGroup reports whether a policy has "is T in" with a group that is not a literal.
// PartialPolicy treats an error in such a group as an error of the policy, even though the group does
// not matter for an entity of another type.
func computesGroup(p *xast.Policy) (computes bool) {
	for _, condition := range p.Conditions {
		xast.Inspect(xast.NewNode(condition.Body), func(n xast.IsNode) bool {
			if is, ok := n.(xast.NodeTypeIsIn); ok {
				_, literal := cedarsyntax.EntityLiteral(is.Entity)
				computes = computes || !literal
			}
			return !computes
		})
	}
	return computes
}

// environment returns the known part of the request. The unknown entity is a variable.
func (b *prefilter) environment() eval.Env {
	r := b.query.Request
	env := eval.Env{Principal: r.Principal, Action: r.Action, Resource: r.Resource, Context: r.Context, Entities: b.query}
	if b.unknown == "resource" {
		env.Resource = eval.Variable(b.unknown)
	} else {
		env.Principal = eval.Variable(b.unknown)
	}
	return env
}

func (b *prefilter) scope(s cedarsyntax.Scope) candidateSet {
	tests := s.Principals
	if b.unknown == "resource" {
		tests = s.Resources
	}
	all := make([]candidateSet, len(tests))
	for i, test := range tests {
		all[i] = b.test(test)
	}
	return union(all...)
}

func (b *prefilter) test(test xast.IsScopeNode) candidateSet {
	switch t := test.(type) {
	case xast.ScopeTypeEq:
		return b.single(t.Entity)
	case xast.ScopeTypeIn:
		return b.inGroup(t.Entity)
	case xast.ScopeTypeIs:
		return b.ofType(t.Type)
	case xast.ScopeTypeIsIn:
		return intersect(b.ofType(t.Type), b.inGroup(t.Entity))
	}
	return allCandidates
}

func (b *prefilter) single(uid cedar.EntityUID) candidateSet {
	if ordinal, ok := b.position(uid); ok {
		return candidateSet{positions: []int32{ordinal}}
	}
	return noCandidates
}

func (b *prefilter) inGroup(group cedar.EntityUID) candidateSet {
	return union(b.single(group), candidateSet{positions: b.descendants[group]})
}

func (b *prefilter) ofType(t cedar.EntityType) candidateSet {
	if len(b.uids) > 0 && b.uids[0].Type == t {
		return allCandidates
	}
	return noCandidates
}

// condition returns the candidates of a conjunct. It returns all candidates if it cannot narrow them.
func (b *prefilter) condition(n xast.IsNode) candidateSet {
	switch n := n.(type) {
	case xast.NodeValue:
		if n.Value == types.False {
			return noCandidates
		}
	case xast.NodeTypeAnd:
		return intersect(b.condition(n.Left), b.condition(n.Right))
	case xast.NodeTypeOr:
		return union(b.condition(n.Left), b.condition(n.Right))
	case xast.NodeTypeIs:
		if b.isUnknown(n.Left) {
			return b.ofType(n.EntityType)
		}
	case xast.NodeTypeIsIn:
		if group, ok := cedarsyntax.EntityLiteral(n.Entity); ok && b.isUnknown(n.Left) {
			return intersect(b.ofType(n.EntityType), b.inGroup(group))
		}
	case xast.NodeTypeIn:
		return b.membership(n.Left, n.Right)
	case xast.NodeTypeEquals:
		return intersect(b.equals(n.Left, n.Right), b.equals(n.Right, n.Left))
	case xast.NodeTypeAccess:
		return b.equals(n, xast.NodeValue{Value: types.True})
	case xast.NodeTypeContains:
		return intersect(b.contains(n.Left, n.Right), b.elementOf(n.Right, n.Left))
	case xast.NodeTypeContainsAny:
		return intersect(b.containsAny(n.Left, n.Right), b.containsAny(n.Right, n.Left))
	case xast.NodeTypeExtensionCall:
		if _, fails := eval.ToPartialError(n); fails {
			return noCandidates
		}
	}
	return allCandidates
}

// membership returns the candidates of "left in right".
func (b *prefilter) membership(left, right xast.IsNode) candidateSet {
	if b.isUnknown(left) {
		return b.unionOf(right, func(v cedar.Value) candidateSet {
			if group, ok := v.(cedar.EntityUID); ok {
				return b.inGroup(group)
			}
			return noCandidates
		})
	}
	member, ok := cedarsyntax.EntityLiteral(left)
	name, reads := b.attribute(right)
	if !ok || !reads {
		return allCandidates
	}
	var all []candidateSet
	for _, group := range slices.Concat(b.query.Node(member).Ancestors, []cedar.EntityUID{member}) {
		all = append(all, b.lookup(b.values, name, group), b.lookup(b.elements, name, group))
	}
	return union(all...)
}

// equals returns the candidates of a variable or an attribute compared with a literal.
func (b *prefilter) equals(n, literal xast.IsNode) candidateSet {
	value, ok := literal.(xast.NodeValue)
	if !ok {
		return allCandidates
	}
	return b.equalTo(n, value.Value)
}

// equalTo returns the candidates for which a variable or an attribute has a value.
func (b *prefilter) equalTo(n xast.IsNode, value cedar.Value) candidateSet {
	if uid, ok := value.(cedar.EntityUID); ok && b.isUnknown(n) {
		return b.single(uid)
	}
	if name, ok := b.attribute(n); ok {
		return b.lookup(b.values, name, value)
	}
	return allCandidates
}

// contains returns the candidates whose set attribute contains a literal.
func (b *prefilter) contains(set, element xast.IsNode) candidateSet {
	name, reads := b.attribute(set)
	value, literal := element.(xast.NodeValue)
	if !reads || !literal {
		return allCandidates
	}
	return b.lookup(b.elements, name, value.Value)
}

// elementOf returns the candidates for which a variable or an attribute is in a literal set.
func (b *prefilter) elementOf(n, set xast.IsNode) candidateSet {
	if _, reads := b.attribute(n); !reads && !b.isUnknown(n) {
		return allCandidates
	}
	return b.unionOf(set, func(v cedar.Value) candidateSet { return b.equalTo(n, v) })
}

// containsAny returns the candidates whose set attribute shares an element with a literal set.
func (b *prefilter) containsAny(set, literal xast.IsNode) candidateSet {
	name, reads := b.attribute(set)
	if !reads {
		return allCandidates
	}
	return b.unionOf(literal, func(v cedar.Value) candidateSet { return b.lookup(b.elements, name, v) })
}

// unionOf returns the candidates for a literal or, for a set, for any of its elements.
func (b *prefilter) unionOf(n xast.IsNode, holds func(cedar.Value) candidateSet) candidateSet {
	literal, ok := n.(xast.NodeValue)
	if !ok {
		return allCandidates
	}
	set, ok := literal.Value.(cedar.Set)
	if !ok {
		return holds(literal.Value)
	}
	var all []candidateSet
	for element := range set.All() {
		all = append(all, holds(element))
	}
	return union(all...)
}

// lookup returns the entities that an index lists under a value of an attribute.
func (b *prefilter) lookup(filed map[types.String]map[any][]int32, name types.String, value cedar.Value) candidateSet {
	key, ok := lookupKey(value)
	if !ok || filed[name] == nil {
		return allCandidates
	}
	return candidateSet{positions: filed[name][key]}
}

func (b *prefilter) isUnknown(n xast.IsNode) bool {
	variable, ok := n.(xast.NodeTypeVariable)
	return ok && variable.Name == b.unknown
}

// attribute returns the name of an attribute that n reads of the unknown entity.
func (b *prefilter) attribute(n xast.IsNode) (name types.String, ok bool) {
	access, ok := n.(xast.NodeTypeAccess)
	if !ok || !b.isUnknown(access.Arg) {
		return "", false
	}
	return access.Value, true
}
