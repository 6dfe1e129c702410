package cedarsyntax

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// A Scope is the key under which the policy index stores a policy. In each dimension, the
// request must pass at least one of the tests.
type Scope struct {
	Principals, Actions, Resources []xast.IsScopeNode
}

// ScopeOf returns a policy's scope, narrowed by the tests of principal, action and resource in
// its conditions. It uses only conditions that precede anything that can error. A request that
// fails such a test makes the policy false without an error, as the scope would.
func ScopeOf(p *xast.Policy) Scope {
	s := Scope{
		Principals: []xast.IsScopeNode{p.Principal},
		Actions:    ActionTests(p.Action),
		Resources:  []xast.IsScopeNode{p.Resource},
	}
	for conjunct := range EachConjunct(p) {
		variable, tests := entityTests(conjunct)
		switch variable {
		case "principal":
			s.Principals = narrow(s.Principals, tests)
		case "action":
			s.Actions = narrow(s.Actions, tests)
		case "resource":
			s.Resources = narrow(s.Resources, tests)
		}
		if !cannotError(conjunct) {
			break
		}
	}
	if len(s.Principals)*len(s.Actions)*len(s.Resources) > maxTests {
		s.Principals, s.Resources = []xast.IsScopeNode{p.Principal}, []xast.IsScopeNode{p.Resource}
	}
	return s
}

// Reversed swaps principals and resources.
func (s Scope) Reversed() Scope {
	return Scope{Principals: s.Resources, Actions: s.Actions, Resources: s.Principals}
}

// maxTests limits the combinations of tests under which the index stores one policy.
const maxTests = 256

// ActionTests splits "action in [a, b]" into one test for each action.
func ActionTests(scope xast.IsScopeNode) []xast.IsScopeNode {
	set, ok := scope.(xast.ScopeTypeInSet)
	if !ok {
		return []xast.IsScopeNode{scope}
	}
	tests := make([]xast.IsScopeNode, len(set.Entities))
	for i, entity := range set.Entities {
		tests[i] = xast.ScopeTypeIn{Entity: entity}
	}
	return tests
}

// narrow replaces the tests of an unrestricted dimension by those of a condition. A dimension
// that the scope already restricts keeps its tests, which are sufficient.
func narrow(tests, condition []xast.IsScopeNode) []xast.IsScopeNode {
	if len(condition) == 0 || len(tests) != 1 {
		return tests
	}
	switch t := tests[0].(type) {
	case xast.ScopeTypeAll:
		return condition
	case xast.ScopeTypeIs:
		return narrowType(t, condition)
	}
	return tests
}

// narrowType combines "is T" with groups to "is T in group".
func narrowType(t xast.ScopeTypeIs, condition []xast.IsScopeNode) []xast.IsScopeNode {
	narrowed := make([]xast.IsScopeNode, len(condition))
	for i, test := range condition {
		in, ok := test.(xast.ScopeTypeIn)
		if !ok {
			return []xast.IsScopeNode{t}
		}
		narrowed[i] = xast.ScopeTypeIsIn{Type: t.Type, Entity: in.Entity}
	}
	return narrowed
}

// EachConjunct yields the conjuncts of a policy's conditions, in Cedar's order of evaluation.
func EachConjunct(p *xast.Policy) func(yield func(xast.IsNode) bool) {
	return func(yield func(xast.IsNode) bool) {
		for _, condition := range p.Conditions {
			body := condition.Body
			if condition.Condition == xast.ConditionUnless {
				body = xast.Not(xast.NewNode(body)).AsIsNode()
			}
			if !visitConjuncts(body, yield) {
				return
			}
		}
	}
}

func visitConjuncts(n xast.IsNode, yield func(xast.IsNode) bool) bool {
	if and, ok := n.(xast.NodeTypeAnd); ok {
		return visitConjuncts(and.Left, yield) && visitConjuncts(and.Right, yield)
	}
	return yield(n)
}

// entityTests returns the tests of a conjunct that compares one of the request's entities with
// literals: principal == E, principal in E, principal in [E, F], principal is T, principal is T in
// E, or an || of these on one variable. For any other conjunct the variable is empty.
func entityTests(n xast.IsNode) (variable types.String, tests []xast.IsScopeNode) {
	switch n := n.(type) {
	case xast.NodeTypeOr:
		left, leftTests := entityTests(n.Left)
		right, rightTests := entityTests(n.Right)
		if left == right {
			return left, slices.Concat(leftTests, rightTests)
		}
	case xast.NodeTypeEquals:
		if entity, ok := EntityLiteral(n.Right); ok {
			return EntityVariable(n.Left), []xast.IsScopeNode{xast.ScopeTypeEq{Entity: entity}}
		}
		if entity, ok := EntityLiteral(n.Left); ok {
			return EntityVariable(n.Right), []xast.IsScopeNode{xast.ScopeTypeEq{Entity: entity}}
		}
	case xast.NodeTypeIn:
		if tests := groupTests(n.Right); len(tests) > 0 {
			return EntityVariable(n.Left), tests
		}
	case xast.NodeTypeIsIn:
		if entity, ok := EntityLiteral(n.Entity); ok {
			return EntityVariable(n.Left), []xast.IsScopeNode{xast.ScopeTypeIsIn{Type: n.EntityType, Entity: entity}}
		}
	case xast.NodeTypeIs:
		return EntityVariable(n.Left), []xast.IsScopeNode{xast.ScopeTypeIs{Type: n.EntityType}}
	}
	return "", nil
}

// groupTests returns the tests for the right side of "in": an entity or a set of entities. It
// returns nil for anything else.
func groupTests(n xast.IsNode) []xast.IsScopeNode {
	elements := []xast.IsNode{n}
	if set, ok := n.(xast.NodeTypeSet); ok {
		elements = set.Elements
	}
	tests := make([]xast.IsScopeNode, len(elements))
	for i, element := range elements {
		entity, ok := EntityLiteral(element)
		if !ok {
			return nil
		}
		tests[i] = xast.ScopeTypeIn{Entity: entity}
	}
	return tests
}

// EntityLiteral returns the entity if the expression is an entity literal.
func EntityLiteral(n xast.IsNode) (cedar.EntityUID, bool) {
	value, ok := n.(xast.NodeValue)
	if !ok {
		return cedar.EntityUID{}, false
	}
	entity, ok := value.Value.(cedar.EntityUID)
	return entity, ok
}

// EntityVariable returns the name of a variable that holds an entity, or "".
func EntityVariable(n xast.IsNode) types.String {
	if v, ok := n.(xast.NodeTypeVariable); ok && v.Name != "context" {
		return v.Name
	}
	return ""
}

// cannotError reports whether a conjunct evaluates to a boolean for every request. These are
// tests of the request's entities, presence tests of their attributes or the context's, boolean
// literals, and combinations of these with !, && and ||.
func cannotError(n xast.IsNode) bool {
	switch n := n.(type) {
	case xast.NodeValue:
		_, boolean := n.Value.(types.Boolean)
		return boolean
	case xast.NodeTypeHas:
		_, variable := n.Arg.(xast.NodeTypeVariable)
		return variable
	case xast.NodeTypeNot:
		return cannotError(n.Arg)
	case xast.NodeTypeAnd:
		return cannotError(n.Left) && cannotError(n.Right)
	case xast.NodeTypeOr:
		return cannotError(n.Left) && cannotError(n.Right)
	}
	variable, _ := entityTests(n)
	return variable != ""
}

// EntityLiterals lists the entities that a policy names.
func EntityLiterals(p *xast.Policy) []cedar.EntityUID {
	var all []cedar.EntityUID
	tests := append(ActionTests(p.Action), p.Principal, p.Resource)
	for _, test := range tests {
		switch t := test.(type) {
		case xast.ScopeTypeEq:
			all = append(all, t.Entity)
		case xast.ScopeTypeIn:
			all = append(all, t.Entity)
		case xast.ScopeTypeIsIn:
			all = append(all, t.Entity)
		}
	}
	for _, condition := range p.Conditions {
		xast.Inspect(xast.NewNode(condition.Body), func(n xast.IsNode) bool {
			if entity, ok := EntityLiteral(n); ok {
				all = append(all, entity)
			}
			return true
		})
	}
	return all
}
