package snapshot

import (
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An actionIndex maps the action names of requests to Cedar actions. The name of an action without
// a namespace is its id. The name of an action in a namespace is the whole Cedar name, as in
// Tax::Action::"view", or the id alone if no other action or group has that id.
type actionIndex struct {
	Names     []string                   // the names a search can return, sorted
	named     map[string]cedar.EntityUID // nil if no action is in a namespace
	ambiguous map[string][]string        // the whole names of the actions that share an id, by id
}

func newActionIndex(s *Snapshot) actionIndex {
	known := actionsOf(s)
	x := actionIndex{}
	byID := map[string][]cedar.EntityUID{}
	for _, uid := range known {
		byID[string(uid.ID)] = append(byID[string(uid.ID)], uid)
	}
	for _, uid := range known {
		plain := cedar.NewEntityUID(actionType, uid.ID)
		if x.add(uid, byID[string(uid.ID)], s.hasAction(plain)) {
			x.Names = append(x.Names, string(uid.ID))
		} else {
			x.Names = append(x.Names, uid.String())
		}
	}
	slices.Sort(x.Names)
	return x
}

// hasAction reports whether the snapshot knows an action or group of actions.
func (s *Snapshot) hasAction(uid cedar.EntityUID) bool {
	_, stored := s.Entities.ByUID[uid]
	return stored || s.entityIndexes[actionType] != nil && s.entityIndexes[actionType].descendants[uid] != nil
}

// add adds an action and reports whether its id alone names it. same lists all actions with that
// id. taken reports whether an action or a group without a namespace has the id.
func (x *actionIndex) add(uid cedar.EntityUID, same []cedar.EntityUID, taken bool) bool {
	if uid.Type == actionType {
		return true
	}
	if x.named == nil {
		x.named, x.ambiguous = map[string]cedar.EntityUID{}, map[string][]string{}
	}
	x.named[uid.String()] = uid
	id := string(uid.ID)
	switch {
	case taken || slices.Contains(same, cedar.NewEntityUID(actionType, uid.ID)):
		return false // the id belongs to the action without a namespace
	case len(same) == 1:
		x.named[id] = uid
		return true
	}
	x.ambiguous[id] = append(x.ambiguous[id], uid.String())
	slices.Sort(x.ambiguous[id])
	return false
}

// Action returns the action that a name in a request denotes.
func (s *Snapshot) Action(name string) (cedar.EntityUID, error) {
	if s.Actions.named != nil {
		if uid, ok := s.Actions.named[name]; ok {
			return uid, nil
		}
		if several := s.Actions.ambiguous[name]; several != nil {
			return cedar.EntityUID{}, authzen.Invalid("/action/name", "could be any of %s: name one of them whole", strings.Join(several, ", "))
		}
	}
	return cedar.NewEntityUID(actionType, cedar.String(name)), nil
}

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

// Applies reports whether the schema allows any request for the action.
func Applies(a resolved.Action) bool {
	return a.AppliesTo != nil && len(a.AppliesTo.Principals) > 0 && len(a.AppliesTo.Resources) > 0
}
