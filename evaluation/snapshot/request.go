package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/accesspolicy"
	"github.com/policy-service/policy-service/obligations"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// NewQuery converts a request from AuthZEN to Cedar.
func (s *Snapshot) NewQuery(req *authzen.EvaluationRequest, env Environment) (*Query, error) {
	request, err := s.cedarRequest(req)
	if err != nil {
		return nil, err
	}
	principal, resource := request.Principal, request.Resource
	q := &Query{Store: s.Entities, evaluation: req, Request: request}
	if q.Denied = cmp.Or(s.refuse(request), s.refuseEntity(principal), s.refuseEntity(resource), refuseCapability(env.CapabilityDenied)); q.Denied != "" {
		return q, nil
	}
	if err := s.overlay(q, "/subject/properties", principal, req.Subject.Properties, s.Settings.Parents); err != nil {
		return nil, err
	}
	if resource == principal {
		err = s.sameEntity(q, req.Resource.Properties)
	} else {
		err = s.overlay(q, "/resource/properties", resource, req.Resource.Properties, nil)
	}
	if err != nil {
		return nil, err
	}
	return q, s.context(q, req, env)
}

// cedarRequest names the subject, the action and the resource of a request in Cedar.
func (s *Snapshot) cedarRequest(req *authzen.EvaluationRequest) (cedar.Request, error) {
	principal, err := s.uid("/subject", req.Subject)
	if err != nil {
		return cedar.Request{}, err
	}
	resource, err := s.uid("/resource", req.Resource)
	if err != nil {
		return cedar.Request{}, err
	}
	action, err := s.Action(req.Action.Name)
	return cedar.Request{Principal: principal, Action: action, Resource: resource}, err
}

// uid returns the Cedar entity that an entity of the request names. A type that is neither a Cedar type
// nor an alias is an error, because rewriting it could merge two types.
func (s *Snapshot) uid(path string, e authzen.Entity) (cedar.EntityUID, error) {
	name, err := s.Settings.entityType(e.Type)
	if err != nil {
		return cedar.EntityUID{}, authzen.Invalid(path+"/type", "is not the name of a Cedar entity type and has no alias in %s: %q", FileConfig, e.Type)
	}
	return cedar.NewEntityUID(name, cedar.String(e.ID)), nil
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

// maybeSubject reports whether subjects may have a type. The types are an allowlist, because Cedar's
// "in" is reflexive: a subject of type Role would be in every role whose name it sends.
func (s *Snapshot) maybeSubject(t cedar.EntityType) bool {
	if s.SubjectTypes != nil {
		return s.SubjectTypes[t]
	}
	return s.Schema != nil || !s.Entities.parents[t] && !s.Settings.isParentType(t)
}

// CheckSubject returns an error if no request can have that subject. path is its place in the
// message that names it.
func (s *Snapshot) CheckSubject(path string, e authzen.Subject) error {
	uid, err := s.uid(path, e)
	if err != nil {
		return err
	}
	if !s.maybeSubject(uid.Type) {
		return authzen.Invalid(path+"/type", "is not the type of a subject: %s", uid.Type)
	}
	if s.Schema == nil {
		return nil
	}
	for _, action := range s.Schema.Actions {
		if Applies(action) && slices.Contains(action.AppliesTo.Principals, uid.Type) {
			if why := s.refuseEntity(uid); why != "" {
				return authzen.Invalid(path, "cannot be a subject: %s", why)
			}
			return nil
		}
	}
	return authzen.Invalid(path+"/type", "is the subject of no action in the schema: %s", uid.Type)
}

// refuse returns why a request is denied because of its types, before any policy is evaluated, or "".
func (s *Snapshot) refuse(r cedar.Request) string {
	if !s.maybeSubject(r.Principal.Type) {
		return fmt.Sprintf("the type %s is not a subject's", r.Principal.Type)
	}
	if s.Schema == nil {
		return ""
	}
	action, ok := s.Schema.Actions[r.Action]
	switch {
	case !ok || !Applies(action):
		return fmt.Sprintf("the schema has no action %q that applies to anything", string(r.Action.ID))
	case !slices.Contains(action.AppliesTo.Principals, r.Principal.Type):
		return fmt.Sprintf("the schema has no %s as subject of %q", r.Principal.Type, string(r.Action.ID))
	case !slices.Contains(action.AppliesTo.Resources, r.Resource.Type):
		return fmt.Sprintf("the schema has no %s as resource of %q", r.Resource.Type, string(r.Action.ID))
	}
	return ""
}

// refuseEntity returns why an entity cannot be part of a request, or "".
func (s *Snapshot) refuseEntity(uid cedar.EntityUID) string {
	if s.Schema == nil {
		return ""
	}
	if err := checkEnum(s.Schema, uid); err != nil {
		return err.Error()
	}
	return ""
}

// overlay merges properties with a stored entity. The properties listed in parents may add parents.
func (s *Snapshot) overlay(q *Query, path string, uid cedar.EntityUID, raw jsontext.Value, parents map[string]string) error {
	if raw == nil {
		return nil
	}
	said, err := s.Properties(path, uid, raw, parents)
	if err == nil {
		q.own[q.owned] = s.merge(uid, said)
		q.owned++
	}
	return err
}

// sameEntity checks the properties of a resource that is also the subject. It accepts only properties
// that the subject already has. Otherwise a caller that describes resources could add attributes to
// the subject.
func (s *Snapshot) sameEntity(q *Query, raw jsontext.Value) error {
	if raw == nil {
		return nil
	}
	said, err := s.Properties("/resource/properties", q.Request.Resource, raw, nil)
	if err != nil {
		return err
	}
	known, _ := q.Get(q.Request.Principal)
	for _, name := range slices.Sorted(maps.Keys(said.Attributes)) {
		if own, ok := known.Attributes.Get(name); !ok || !own.Equal(said.Attributes[name]) {
			return authzen.Invalid(below("/resource/properties", string(name)), "must equal what is known of the subject, which the resource is")
		}
	}
	return nil
}

// entityClaims holds what a request says about an entity.
type entityClaims struct {
	Attributes cedar.RecordMap
	Parents    []cedar.EntityUID
}

// Properties reads an entity's properties. The properties listed in parents become parents of the
// listed type. They also remain attributes if the schema declares them or there is no schema.
func (s *Snapshot) Properties(path string, uid cedar.EntityUID, raw jsontext.Value, parents map[string]string) (entityClaims, error) {
	said := entityClaims{Attributes: cedar.RecordMap{}}
	r := newReader(raw, path, &s.Settings)
	defer r.close()
	r.drop = r.drop || isSupplied(uid.Type)
	shape := s.Shapes.Entities[uid.Type]
	err := r.members(func(name string) error {
		parentType, isParent := parents[name]
		var value cedar.Value
		var err error
		if _, declared := shape.member(name); isParent && !declared {
			value, err = r.value(nil)
		} else if value, err = r.member(shape, name); value != nil {
			said.Attributes[cedar.String(name)] = value
		}
		if isParent && err == nil {
			said.Parents, err = parentsIn(value, cedar.EntityType(parentType), said.Parents, r)
		}
		return err
	})
	return said, err
}

// parentsIn reads parents of type t from a string, an entity, or an array of either.
func parentsIn(value cedar.Value, t cedar.EntityType, found []cedar.EntityUID, r *reader) ([]cedar.EntityUID, error) {
	elements := []cedar.Value{value}
	if set, ok := value.(cedar.Set); ok {
		elements = set.Slice()
	}
	for _, element := range elements {
		switch id := element.(type) {
		case cedar.String:
			found = append(found, cedar.NewEntityUID(t, id))
		case cedar.EntityUID:
			found = append(found, id)
		default:
			return nil, r.invalid("must be an id or an array of ids of %s entities", t)
		}
	}
	return found, nil
}

// merge returns an entity with the properties from the request. The stored value of an attribute wins
// unless the PEP is authoritative for it. Parents from the request count only if no parent of that
// type is stored.
func (s *Snapshot) merge(uid cedar.EntityUID, said entityClaims) entity {
	merged := s.Entities.ByUID[uid]
	values := said.Attributes
	for name, value := range merged.Attributes.All() {
		if _, claimed := values[name]; !claimed || !s.Settings.pepWins(uid.Type, string(name)) {
			values[name] = value
		}
	}
	merged.UID, merged.Attributes = uid, cedar.NewRecord(values)
	if len(said.Parents) == 0 {
		return merged
	}
	all := slices.Clone(merged.Ancestors)
	for _, parent := range said.Parents {
		if !slices.ContainsFunc(merged.Ancestors, func(uid cedar.EntityUID) bool { return uid.Type == parent.Type }) {
			all = append(append(all, parent), s.Entities.ByUID[parent].Ancestors...)
		}
	}
	merged.Ancestors, merged.Parents = all, cedar.NewEntityUIDSet(all...)
	return merged
}

// context builds the Cedar context: the request's without the reserved members, with the action's
// properties, and with the time if the settings name a clock.
func (s *Snapshot) context(q *Query, req *authzen.EvaluationRequest, env Environment) error {
	shape := s.Shapes.context
	if s.Schema != nil {
		shape = s.Shapes.Contexts[q.Request.Action]
	}
	values := cedar.RecordMap{}
	if req.Context != nil {
		if err := s.readContext(q, shape, req.Context, values); err != nil {
			return err
		}
	}
	if req.Action.Properties != nil {
		if err := s.readAction(shape, req.Action, values); err != nil {
			return err
		}
	}
	if s.Settings.Clock != "" {
		values[cedar.String(s.Settings.Clock)] = types.NewDatetime(env.Time)
	}
	s.calledTool(shape, req, values)
	s.approve(q, shape, env.Approval, values)
	s.addCapability(shape, env.Capability, values)
	q.Request.Context = cedar.NewRecord(values)
	if name := missing(shape, values); name != "" {
		return authzen.Invalid(below("/context", name), "is required by the schema")
	}
	return nil
}

func (s *Snapshot) readContext(q *Query, shape *shape, raw jsontext.Value, into cedar.RecordMap) error {
	r := newReader(raw, "/context", &s.Settings)
	defer r.close()
	return r.members(func(name string) error {
		switch name {
		case ContextSupport:
			declared, err := r.dec.ReadValue()
			if err != nil {
				return r.syntax(err)
			}
			q.Support = obligations.ReadSupport(declared)
			return nil
		case ContextApproval:
			return nil
		case ContextCapability:
			return r.capabilityClaim()
		case ContextJustification:
			return r.justification(shape, into)
		case ContextAction:
			return r.invalid("is where policies find the action's properties: send those")
		case ContextArguments:
			if declared, ok := shape.member(name); ok && declared.isEmpty() {
				defer func(before bool) { r.drop = before }(r.drop)
				r.drop = true
			}
		}
		if name == s.Settings.Clock && name != "" || name == accesspolicy.CalledTool && s.statesCalledTool() {
			return r.invalid("is set by the service")
		}
		value, err := r.member(shape, name)
		if value != nil {
			into[cedar.String(name)] = value
		}
		return err
	})
}

// readAction reads the action's properties, which policies read in the context.
func (s *Snapshot) readAction(shape *shape, action authzen.Action, into cedar.RecordMap) error {
	declared, ok := shape.member(ContextAction)
	if !ok {
		declared = &noMembers
	}
	r := newReader(action.Properties, "/action/properties", &s.Settings)
	defer r.close()
	properties, err := r.record(declared)
	if ok {
		into[ContextAction] = properties
	}
	return err
}

// noMembers is the shape of a record without declared members.
var noMembers = shape{Kind: kindRecord, declared: true}
