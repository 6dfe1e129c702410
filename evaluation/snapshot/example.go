package snapshot

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Example returns a request whose names the policy store knows: an action, a subject and a resource that
// are stored or that policies name. It returns nil if the store knows too few names.
func (s *Snapshot) Example() *authzen.EvaluationRequest {
	known := s.KnownNames()
	for _, ids := range known.IDs {
		slices.Sort(ids)
	}
	if s.Schema == nil {
		return s.exampleOfPolicies(&known)
	}
	for _, uid := range s.actionsByUse() {
		action := s.Schema.Actions[uid]
		subject, found := known.first(action.AppliesTo.Principals, s.maySubmit)
		if !found {
			continue
		}
		if resource, found := known.first(action.AppliesTo.Resources, anyType); found {
			return example(subject, uid, resource, action.AppliesTo.Context)
		}
	}
	return nil
}

// actionsByUse lists the actions that a request can name, those that most policies name first.
func (s *Snapshot) actionsByUse() []cedar.EntityUID {
	used := map[cedar.EntityUID]int{}
	for _, p := range s.Policies.Ordered {
		for _, uid := range cedarsyntax.EntityLiterals(p.Syntax) {
			used[uid]++
		}
	}
	all := actionsOf(s)
	slices.SortStableFunc(all, func(a, b cedar.EntityUID) int { return used[b] - used[a] })
	return all
}

// exampleOfPolicies is Example without a schema: what the first policies that permit name.
func (s *Snapshot) exampleOfPolicies(known *Names) *authzen.EvaluationRequest {
	for _, p := range s.Policies.Ordered {
		actions := slices.DeleteFunc(scopeEntities(p.Syntax.Action), func(uid cedar.EntityUID) bool { return !slices.Contains(actionsOf(s), uid) })
		if !p.Permits() || len(actions) == 0 {
			continue
		}
		subject, hasSubject := known.inScope(p.Syntax.Principal, s.maySubmit)
		resource, hasResource := known.inScope(p.Syntax.Resource, anyType)
		if hasSubject && !hasResource {
			resource, hasResource = known.first(known.types(), func(t cedar.EntityType) bool { return t != subject.Type })
		}
		if hasSubject && hasResource {
			return example(subject, actions[0], resource, nil)
		}
	}
	return nil
}

func anyType(cedar.EntityType) bool { return true }

// maySubmit reports whether config.yaml permits subjects of a type.
func (s *Snapshot) maySubmit(t cedar.EntityType) bool {
	return s.SubjectTypes == nil || s.SubjectTypes[t]
}

// types lists the types of entities that are no actions, in order.
func (v *Names) types() (all []cedar.EntityType) {
	for t := range v.IDs {
		if !cedarsyntax.IsActionType(t) {
			all = append(all, t)
		}
	}
	slices.Sort(all)
	return all
}

// first returns the first known entity of the first of the types that has one and is permitted. It
// prefers types with stored entities.
func (v *Names) first(types []cedar.EntityType, permitted func(cedar.EntityType) bool) (uid cedar.EntityUID, found bool) {
	for _, stored := range []bool{true, false} {
		for _, t := range types {
			if permitted(t) && v.Stored[t] == stored && len(v.IDs[t]) > 0 {
				return cedar.NewEntityUID(t, cedar.String(v.IDs[t][0])), true
			}
		}
	}
	return uid, false
}

// inScope returns a known entity for the scope of a policy.
func (v *Names) inScope(scope xast.IsScopeNode, permitted func(cedar.EntityType) bool) (uid cedar.EntityUID, found bool) {
	switch scope := scope.(type) {
	case xast.ScopeTypeEq:
		return scope.Entity, permitted(scope.Entity.Type)
	case xast.ScopeTypeIs:
		return v.first([]cedar.EntityType{scope.Type}, permitted)
	case xast.ScopeTypeIsIn:
		return v.first([]cedar.EntityType{scope.Type}, permitted)
	}
	return uid, false
}

// scopeEntities lists the entities that the scope of a policy names.
func scopeEntities(scope xast.IsScopeNode) []cedar.EntityUID {
	switch scope := scope.(type) {
	case xast.ScopeTypeEq:
		return []cedar.EntityUID{scope.Entity}
	case xast.ScopeTypeInSet:
		return slices.Clone(scope.Entities)
	}
	return nil
}

// example returns a request with the required members of the context.
func example(subject, action, resource cedar.EntityUID, context resolved.RecordType) *authzen.EvaluationRequest {
	r := &authzen.EvaluationRequest{}
	r.Subject.Type, r.Subject.ID = string(subject.Type), string(subject.ID)
	r.Action.Name = string(action.ID)
	r.Resource.Type, r.Resource.ID = string(resource.Type), string(resource.ID)
	if members := exampleOf(context); len(members) > 0 {
		r.Context, _ = json.Marshal(members, json.Deterministic(true)) // holds plain values alone
	}
	return r
}

// exampleOf returns values for the required members of a record. It leaves out types that JSON has no
// plain value for.
func exampleOf(record resolved.RecordType) map[string]any {
	members := map[string]any{}
	for name, attribute := range record {
		if attribute.Optional {
			continue
		}
		switch t := attribute.Type.(type) {
		case resolved.StringType:
			members[string(name)] = "example"
		case resolved.LongType:
			members[string(name)] = 1
		case resolved.BoolType:
			members[string(name)] = true
		case resolved.SetType:
			members[string(name)] = []any{}
		case resolved.RecordType:
			members[string(name)] = exampleOf(t)
		}
	}
	return members
}
