package evaluation

import (
	"github.com/cedar-policy/cedar-go"

	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// attributeRead returns the attribute that an expression is part of or asks for,
// and whose it is: a variable's or context.action's.
func attributeRead(n xast.IsNode) (owner, name string, ok bool) {
	variable, names := steps(pathOf(n))
	switch {
	case len(names) == 0:
		return "", "", false
	case variable == "context" && names[0] == contextAction && len(names) > 1:
		return ownerAction, names[1], true
	}
	return string(variable), names[0], true
}

// ownerAction is where policies find the action's properties.
const ownerAction = "context." + contextAction

// A vocabulary is every name that means something to a snapshot.
type vocabulary struct {
	types  map[cedar.EntityType]bool
	ids    map[cedar.EntityType][]string // stored, or named by a policy
	stored map[cedar.EntityType]bool     // types of which entities are stored
	read   map[string]map[string]bool    // attributes that policies read, by what has them
}

func (s *Snapshot) vocabulary() vocabulary {
	v := vocabulary{
		types:  map[cedar.EntityType]bool{},
		ids:    map[cedar.EntityType][]string{},
		stored: map[cedar.EntityType]bool{},
		read:   map[string]map[string]bool{},
	}
	for uid := range s.store.entities {
		v.name(uid)
		v.stored[uid.Type] = true
	}
	for _, p := range s.policies.ordered {
		v.policy(p.syntax)
	}
	for name := range s.subjectTypes {
		v.types[name] = true
	}
	if s.schema != nil {
		v.types = map[cedar.EntityType]bool{}
		for name := range s.shapes.entities {
			v.types[name] = true
		}
	}
	return v
}

func (v *vocabulary) name(uid cedar.EntityUID) {
	v.types[uid.Type] = true
	v.ids[uid.Type] = append(v.ids[uid.Type], string(uid.ID))
}

func (v *vocabulary) policy(p *xast.Policy) {
	for _, uid := range literals(p) {
		v.name(uid)
	}
	for _, test := range []xast.IsScopeNode{p.Principal, p.Resource} {
		switch t := test.(type) {
		case xast.ScopeTypeIs:
			v.types[t.Type] = true
		case xast.ScopeTypeIsIn:
			v.types[t.Type] = true
		}
	}
	for _, clause := range p.Conditions {
		xast.Inspect(xast.NewNode(clause.Body), func(n xast.IsNode) bool {
			v.expression(n)
			return true
		})
	}
}

func (v *vocabulary) expression(n xast.IsNode) {
	switch n := n.(type) {
	case xast.NodeTypeIs:
		v.types[n.EntityType] = true
	case xast.NodeTypeIsIn:
		v.types[n.EntityType] = true
	}
	if owner, name, ok := attributeRead(n); ok {
		if v.read[owner] == nil {
			v.read[owner] = map[string]bool{}
		}
		v.read[owner][name] = true
	}
}
