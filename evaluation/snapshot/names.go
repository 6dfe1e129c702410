package snapshot

import (
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
)

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

// actionsOf lists the actions that a request can name, without groups: the schema's or, without a
// schema, those that policies and entities name.
func actionsOf(s *Snapshot) []cedar.EntityUID {
	known := map[cedar.EntityUID]bool{}
	if s.Schema != nil {
		for uid, action := range s.Schema.Actions {
			if Applies(action) {
				known[uid] = true
			}
		}
		return slices.SortedFunc(maps.Keys(known), CompareUID)
	}
	note := func(uid cedar.EntityUID) {
		if cedarsyntax.IsActionType(uid.Type) {
			known[uid] = true
		}
	}
	for uid := range s.Entities.ByUID {
		note(uid)
	}
	for _, p := range s.Policies.Ordered {
		for _, uid := range cedarsyntax.EntityLiterals(p.Syntax) {
			note(uid)
		}
	}
	for name, population := range s.entityIndexes {
		if cedarsyntax.IsActionType(name) {
			for group := range population.descendants {
				delete(known, group)
			}
		}
	}
	return slices.SortedFunc(maps.Keys(known), CompareUID)
}

// hasAction reports whether the snapshot knows an action or group of actions.
func (s *Snapshot) hasAction(uid cedar.EntityUID) bool {
	_, stored := s.Entities.ByUID[uid]
	return stored || s.entityIndexes[actionType] != nil && s.entityIndexes[actionType].descendants[uid] != nil
}
