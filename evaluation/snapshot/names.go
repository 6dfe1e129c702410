package snapshot

import (
	"github.com/cedar-policy/cedar-go"
	"github.com/policy-service/policy-service/evaluation/cedarsyntax"

	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// AttributeRead returns the attribute that an expression belongs to or tests for presence, and its
// owner: a variable or context.action.
func AttributeRead(n xast.IsNode) (owner, name string, ok bool) {
	variable, names := cedarsyntax.PathSteps(cedarsyntax.PathOf(n))
	switch {
	case len(names) == 0:
		return "", "", false
	case variable == "context" && names[0] == ContextAction && len(names) > 1:
		return OwnerAction, names[1], true
	}
	return string(variable), names[0], true
}

// OwnerAction is the expression by which policies read the action's properties.
const OwnerAction = "context." + ContextAction

// Names holds every name that a snapshot knows.
type Names struct {
	Types  map[cedar.EntityType]bool
	IDs    map[cedar.EntityType][]string // stored, or named by a policy
	Stored map[cedar.EntityType]bool     // types that have stored entities
	Read   map[string]map[string]bool    // attributes that policies read, by owner
}

// KnownNames returns every name that the snapshot knows.
func (s *Snapshot) KnownNames() Names {
	v := Names{
		Types:  map[cedar.EntityType]bool{},
		IDs:    map[cedar.EntityType][]string{},
		Stored: map[cedar.EntityType]bool{},
		Read:   map[string]map[string]bool{},
	}
	for uid := range s.Entities.ByUID {
		v.addEntity(uid)
		v.Stored[uid.Type] = true
	}
	for _, p := range s.Policies.Ordered {
		v.addPolicy(p.Syntax)
	}
	for name := range s.SubjectTypes {
		v.Types[name] = true
	}
	if s.Schema != nil {
		v.Types = map[cedar.EntityType]bool{}
		for name := range s.Shapes.Entities {
			v.Types[name] = true
		}
	}
	return v
}

func (v *Names) addEntity(uid cedar.EntityUID) {
	v.Types[uid.Type] = true
	v.IDs[uid.Type] = append(v.IDs[uid.Type], string(uid.ID))
}

func (v *Names) addPolicy(p *xast.Policy) {
	for _, uid := range cedarsyntax.EntityLiterals(p) {
		v.addEntity(uid)
	}
	for _, test := range []xast.IsScopeNode{p.Principal, p.Resource} {
		switch t := test.(type) {
		case xast.ScopeTypeIs:
			v.Types[t.Type] = true
		case xast.ScopeTypeIsIn:
			v.Types[t.Type] = true
		}
	}
	for _, clause := range p.Conditions {
		xast.Inspect(xast.NewNode(clause.Body), func(n xast.IsNode) bool {
			v.addExpression(n)
			return true
		})
	}
}

func (v *Names) addExpression(n xast.IsNode) {
	switch n := n.(type) {
	case xast.NodeTypeIs:
		v.Types[n.EntityType] = true
	case xast.NodeTypeIsIn:
		v.Types[n.EntityType] = true
	}
	if owner, name, ok := AttributeRead(n); ok {
		if v.Read[owner] == nil {
			v.Read[owner] = map[string]bool{}
		}
		v.Read[owner][name] = true
	}
}
