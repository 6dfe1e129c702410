package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/policy-service/policy-service/obligations"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Members of a request's context that are the service's and never a policy's.
const (
	ContextSupport  = "supported_obligations" // what the PEP says it can meet
	ContextApproval = "approval"              // a claim, which only the service can make a fact
	ContextAction   = "action"                // where policies find the action's properties

	ContextJustification = "justification" // as approved it is a claim, too
)

// actionType is the type of the actions without a namespace.
const actionType = "Action"

// A query is a request as Cedar sees it. It is the entity store of one
// evaluation: what the request says of its own entities, over what is stored.
type Query struct {
	evaluation *authzen.EvaluationRequest // as it was sent
	Request    cedar.Request
	Support    obligations.Support
	Approved   string // template of the approval that stands, or ""
	Denied     string // why no policy needs to be asked, or ""

	Store *entityStore
	own   [2]entity // subject and resource, where the request says something of them
	owned int
}

// Get is a cedar.EntityGetter.
func (q *Query) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	e, ok := q.Entity(uid)
	return e.Entity, ok
}

func (q *Query) Entity(uid cedar.EntityUID) (entity, bool) {
	for i := range q.owned {
		if q.own[i].UID == uid {
			return q.own[i], true
		}
	}
	e, ok := q.Store.ByUID[uid]
	return e, ok
}

// Node returns what the index needs to know of an entity.
func (q *Query) Node(uid cedar.EntityUID) ResolvedEntity {
	e, _ := q.Entity(uid)
	return ResolvedEntity{uid, e.Ancestors}
}

// NewQuery turns a request from AuthZEN into Cedar.
func (s *Snapshot) NewQuery(req *authzen.EvaluationRequest, env Environment) (*Query, error) {
	principal, err := s.uid("/subject", req.Subject)
	if err != nil {
		return nil, err
	}
	resource, err := s.uid("/resource", req.Resource)
	if err != nil {
		return nil, err
	}
	action, err := s.Action(req.Action.Name)
	if err != nil {
		return nil, err
	}
	q := &Query{Store: s.Entities, evaluation: req, Request: cedar.Request{Principal: principal, Action: action, Resource: resource}}
	if q.Denied = cmp.Or(s.refuse(q.Request), s.refuseEntity(principal), s.refuseEntity(resource)); q.Denied != "" {
		return q, nil
	}
	if err := s.describe(q, req); err != nil {
		return nil, err
	}
	return q, s.context(q, req, env)
}

// uid names an entity of the request. A type that is no Cedar type and has no
// alias is an error: rewriting it could make two types one.
func (s *Snapshot) uid(path string, e authzen.Entity) (cedar.EntityUID, error) {
	name, err := s.Settings.entityType(e.Type)
	if err != nil {
		return cedar.EntityUID{}, authzen.Invalid(path+"/type", "is not the name of a Cedar entity type and has no alias in %s: %q", FileConfig, e.Type)
	}
	return cedar.NewEntityUID(name, cedar.String(e.ID)), nil
}

// maybeSubject reports whether subjects may be of a type. These types are an
// allow-list, because Cedar's "in" is reflexive: a subject of type Role would be
// in every role it names itself.
func (s *Snapshot) maybeSubject(t cedar.EntityType) bool {
	if s.SubjectTypes != nil {
		return s.SubjectTypes[t]
	}
	return s.Schema != nil || !s.Entities.parents[t] && !s.Settings.isParentType(t)
}

// refuse says why a request between such types is denied before any policy is
// asked, or "".
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

// refuseEntity says why an entity cannot be part of a request, or "".
func (s *Snapshot) refuseEntity(uid cedar.EntityUID) string {
	if s.Schema == nil {
		return ""
	}
	if err := checkEnum(s.Schema, uid); err != nil {
		return err.Error()
	}
	return ""
}

// describe lays what the request says of its subject and resource over what
// is stored of them.
func (s *Snapshot) describe(q *Query, req *authzen.EvaluationRequest) error {
	if err := s.overlay(q, "/subject/properties", q.Request.Principal, req.Subject.Properties, s.Settings.Parents); err != nil {
		return err
	}
	if q.Request.Resource == q.Request.Principal {
		return s.sameEntity(q, req.Resource.Properties)
	}
	return s.overlay(q, "/resource/properties", q.Request.Resource, req.Resource.Properties, nil)
}

// overlay lays properties over what is stored of an entity. Those that parents
// names may give it parents.
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

// sameEntity accepts what a request says of a resource that is the subject
// itself only where it is known of the subject already. Otherwise whoever
// describes resources could give the subject attributes.
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

// entityClaims are what a request says of an entity.
type entityClaims struct {
	Attributes cedar.RecordMap
	Parents    []cedar.EntityUID
}

// Properties reads an entity's properties. Those that parents names become
// parents of that type; they stay attributes where the schema has them or
// there is none.
func (s *Snapshot) Properties(path string, uid cedar.EntityUID, raw jsontext.Value, parents map[string]string) (entityClaims, error) {
	said := entityClaims{Attributes: cedar.RecordMap{}}
	r := newReader(raw, path, &s.Settings)
	defer r.close()
	r.drop = r.drop || uid.Type == TypeAccessRequest
	shape := s.Shapes.Entities[uid.Type]
	err := r.members(func(name string) error {
		parentType, isParent := parents[name]
		if _, declared := shape.member(name); isParent && !declared {
			return r.parents(cedar.EntityType(parentType), &said.Parents)
		}
		value, err := r.member(shape, name)
		if value != nil {
			said.Attributes[cedar.String(name)] = value
		}
		if isParent && err == nil {
			said.Parents, err = parentsIn(value, cedar.EntityType(parentType), said.Parents, r)
		}
		return err
	})
	return said, err
}

// parents reads a property that is nothing but parents.
func (r *reader) parents(t cedar.EntityType, into *[]cedar.EntityUID) error {
	value, err := r.value(nil)
	if err == nil {
		*into, err = parentsIn(value, t, *into, r)
	}
	return err
}

// parentsIn takes parents of type t from a string, an entity, or an array of
// either.
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

// merge returns an entity with what the request says of it. Of each attribute
// the stored value wins, unless the PEP is the authority for it; parents that
// the request claims count only where none of that type are stored.
func (s *Snapshot) merge(uid cedar.EntityUID, said entityClaims) entity {
	merged := s.Entities.ByUID[uid]
	values := said.Attributes
	for name, value := range merged.Attributes.All() {
		if _, claimed := values[name]; !claimed || !s.Settings.pepWins(uid.Type, string(name)) {
			values[name] = value
		}
	}
	merged.UID, merged.Attributes = uid, cedar.NewRecord(values)
	if len(said.Parents) > 0 {
		merged.Ancestors = s.ancestors(merged.Ancestors, said.Parents)
		merged.Parents = cedar.NewEntityUIDSet(merged.Ancestors...)
	}
	return merged
}

// ancestors adds to the stored ancestors of an entity those it is claimed to
// have.
func (s *Snapshot) ancestors(stored, claimed []cedar.EntityUID) []cedar.EntityUID {
	all := slices.Clone(stored)
	for _, parent := range claimed {
		if !slices.ContainsFunc(stored, func(uid cedar.EntityUID) bool { return uid.Type == parent.Type }) {
			all = append(append(all, parent), s.Entities.ByUID[parent].Ancestors...)
		}
	}
	return all
}

// context makes the Cedar context: the request's, without what is the
// service's, with the action's properties, and with the time where the
// configuration asks for it.
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
	s.approve(q, shape, env.Approval, values)
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
		case ContextJustification:
			return r.justification(shape, into)
		case ContextAction:
			return r.invalid("is where policies find the action's properties: send those")
		}
		if name == s.Settings.Clock && name != "" {
			return r.invalid("is set by the service")
		}
		value, err := r.member(shape, name)
		if value != nil {
			into[cedar.String(name)] = value
		}
		return err
	})
}

// readAction reads the action's properties, which policies find in the context.
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

// noMembers is the shape of a record for which nothing is declared.
var noMembers = shape{Kind: kindRecord, declared: true}

// Passes reports whether the entity passes a test of a scope.
func (n *ResolvedEntity) Passes(test xast.IsScopeNode) bool {
	switch t := test.(type) {
	case xast.ScopeTypeEq:
		return n.UID == t.Entity
	case xast.ScopeTypeIn:
		return n.In(t.Entity)
	case xast.ScopeTypeInSet:
		return slices.ContainsFunc(t.Entities, n.In)
	case xast.ScopeTypeIs:
		return n.UID.Type == t.Type
	case xast.ScopeTypeIsIn:
		return n.UID.Type == t.Type && n.In(t.Entity)
	}
	return true
}

func (n *ResolvedEntity) In(group cedar.EntityUID) bool {
	return n.UID == group || slices.Contains(n.Ancestors, group)
}

// Groups returns what the entity is in, as Cedar writes it.
func (n *ResolvedEntity) Groups() []string {
	var names []string
	for _, group := range slices.SortedFunc(slices.Values(n.Ancestors), CompareUID) {
		names = append(names, group.String())
	}
	return names
}
