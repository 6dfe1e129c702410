package snapshot

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
)

// An actionIndex maps the action names of requests to Cedar actions. The name of an action without
// a namespace is its id. The name of an action in a namespace is the whole Cedar name, as in
// Tax::Action::"view", or the id alone if no other action or group has that id.
type actionIndex struct {
	Names     []string                   // the names a search can return, sorted
	named     map[string]cedar.EntityUID // nil if no action is in a namespace
	ambiguous map[string][]string        // the whole names of the actions that share an id, by id
}

// newActionIndex returns the index of the known actions. taken reports whether an action or a group
// has a name.
func newActionIndex(known []cedar.EntityUID, taken func(cedar.EntityUID) bool) actionIndex {
	x := actionIndex{}
	byID := map[string][]cedar.EntityUID{}
	for _, uid := range known {
		byID[string(uid.ID)] = append(byID[string(uid.ID)], uid)
	}
	for _, uid := range known {
		plain := cedar.NewEntityUID(actionType, uid.ID)
		if x.add(uid, byID[string(uid.ID)], taken(plain)) {
			x.Names = append(x.Names, string(uid.ID))
		} else {
			x.Names = append(x.Names, uid.String())
		}
	}
	slices.Sort(x.Names)
	return x
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

// Applies reports whether the schema allows any request for the action.
func Applies(a resolved.Action) bool {
	return a.AppliesTo != nil && len(a.AppliesTo.Principals) > 0 && len(a.AppliesTo.Resources) > 0
}
