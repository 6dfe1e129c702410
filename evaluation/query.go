package evaluation

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
	contextSupport  = "supported_obligations" // what the PEP says it can meet
	contextApproval = "approval"              // a claim, which only the service can make a fact
	contextAction   = "action"                // where policies find the action's properties

	contextJustification = "justification" // as approved it is a claim, too
)

// actionType is the type of the actions without a namespace.
const actionType = "Action"

// A query is a request as Cedar sees it. It is the entity store of one
// evaluation: what the request says of its own entities, over what is stored.
type query struct {
	evaluation *authzen.EvaluationRequest // as it was sent
	request    cedar.Request
	support    obligations.Support
	approved   string // template of the approval that stands, or ""
	refused    string // why no policy needs to be asked, or ""

	store *store
	own   [2]entity // subject and resource, where the request says something of them
	owned int
}

// Get is a cedar.EntityGetter.
func (q *query) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	e, ok := q.entity(uid)
	return e.Entity, ok
}

func (q *query) entity(uid cedar.EntityUID) (entity, bool) {
	for i := range q.owned {
		if q.own[i].UID == uid {
			return q.own[i], true
		}
	}
	e, ok := q.store.entities[uid]
	return e, ok
}

// node returns what the index needs to know of an entity.
func (q *query) node(uid cedar.EntityUID) node {
	e, _ := q.entity(uid)
	return node{uid, e.ancestors}
}

// query turns a request from AuthZEN into Cedar.
func (s *Snapshot) query(req *authzen.EvaluationRequest, env Environment) (*query, error) {
	principal, err := s.uid("/subject", req.Subject)
	if err != nil {
		return nil, err
	}
	resource, err := s.uid("/resource", req.Resource)
	if err != nil {
		return nil, err
	}
	action, err := s.action(req.Action.Name)
	if err != nil {
		return nil, err
	}
	q := &query{store: s.store, evaluation: req, request: cedar.Request{Principal: principal, Action: action, Resource: resource}}
	if q.refused = cmp.Or(s.refuse(q.request), s.refuseEntity(principal), s.refuseEntity(resource)); q.refused != "" {
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
	name, err := s.settings.entityType(e.Type)
	if err != nil {
		return cedar.EntityUID{}, authzen.Invalid(path+"/type", "is not the name of a Cedar entity type and has no alias in %s: %q", fileConfig, e.Type)
	}
	return cedar.NewEntityUID(name, cedar.String(e.ID)), nil
}

// maybeSubject reports whether subjects may be of a type. These types are an
// allow-list, because Cedar's "in" is reflexive: a subject of type Role would be
// in every role it names itself.
func (s *Snapshot) maybeSubject(t cedar.EntityType) bool {
	if s.subjectTypes != nil {
		return s.subjectTypes[t]
	}
	return s.schema != nil || !s.store.parents[t] && !s.settings.isParentType(t)
}

// refuse says why a request between such types is denied before any policy is
// asked, or "".
func (s *Snapshot) refuse(r cedar.Request) string {
	if !s.maybeSubject(r.Principal.Type) {
		return fmt.Sprintf("the type %s is not a subject's", r.Principal.Type)
	}
	if s.schema == nil {
		return ""
	}
	action, ok := s.schema.Actions[r.Action]
	switch {
	case !ok || !applies(action):
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
	if s.schema == nil {
		return ""
	}
	if err := checkEnum(s.schema, uid); err != nil {
		return err.Error()
	}
	return ""
}

// describe lays what the request says of its subject and resource over what
// is stored of them.
func (s *Snapshot) describe(q *query, req *authzen.EvaluationRequest) error {
	if err := s.overlay(q, "/subject/properties", q.request.Principal, req.Subject.Properties, s.settings.Parents); err != nil {
		return err
	}
	if q.request.Resource == q.request.Principal {
		return s.sameEntity(q, req.Resource.Properties)
	}
	return s.overlay(q, "/resource/properties", q.request.Resource, req.Resource.Properties, nil)
}

// overlay lays properties over what is stored of an entity. Those that parents
// names may give it parents.
func (s *Snapshot) overlay(q *query, path string, uid cedar.EntityUID, raw jsontext.Value, parents map[string]string) error {
	if raw == nil {
		return nil
	}
	said, err := s.properties(path, uid, raw, parents)
	if err == nil {
		q.own[q.owned] = s.merge(uid, said)
		q.owned++
	}
	return err
}

// sameEntity accepts what a request says of a resource that is the subject
// itself only where it is known of the subject already. Otherwise whoever
// describes resources could give the subject attributes.
func (s *Snapshot) sameEntity(q *query, raw jsontext.Value) error {
	if raw == nil {
		return nil
	}
	said, err := s.properties("/resource/properties", q.request.Resource, raw, nil)
	if err != nil {
		return err
	}
	known, _ := q.Get(q.request.Principal)
	for _, name := range slices.Sorted(maps.Keys(said.attributes)) {
		if own, ok := known.Attributes.Get(name); !ok || !own.Equal(said.attributes[name]) {
			return authzen.Invalid(below("/resource/properties", string(name)), "must equal what is known of the subject, which the resource is")
		}
	}
	return nil
}

// claims are what a request says of an entity.
type claims struct {
	attributes cedar.RecordMap
	parents    []cedar.EntityUID
}

// properties reads an entity's properties. Those that parents names become
// parents of that type; they stay attributes where the schema has them or
// there is none.
func (s *Snapshot) properties(path string, uid cedar.EntityUID, raw jsontext.Value, parents map[string]string) (claims, error) {
	said := claims{attributes: cedar.RecordMap{}}
	r := newReader(raw, path, &s.settings)
	defer r.close()
	r.drop = r.drop || uid.Type == typeAccessRequest
	shape := s.shapes.entities[uid.Type]
	err := r.members(func(name string) error {
		parentType, isParent := parents[name]
		if _, declared := shape.member(name); isParent && !declared {
			return r.parents(cedar.EntityType(parentType), &said.parents)
		}
		value, err := r.member(shape, name)
		if value != nil {
			said.attributes[cedar.String(name)] = value
		}
		if isParent && err == nil {
			said.parents, err = parentsIn(value, cedar.EntityType(parentType), said.parents, r)
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
func (s *Snapshot) merge(uid cedar.EntityUID, said claims) entity {
	merged := s.store.entities[uid]
	values := said.attributes
	for name, value := range merged.Attributes.All() {
		if _, claimed := values[name]; !claimed || !s.settings.pepWins(uid.Type, string(name)) {
			values[name] = value
		}
	}
	merged.UID, merged.Attributes = uid, cedar.NewRecord(values)
	if len(said.parents) > 0 {
		merged.ancestors = s.ancestors(merged.ancestors, said.parents)
		merged.Parents = cedar.NewEntityUIDSet(merged.ancestors...)
	}
	return merged
}

// ancestors adds to the stored ancestors of an entity those it is claimed to
// have.
func (s *Snapshot) ancestors(stored, claimed []cedar.EntityUID) []cedar.EntityUID {
	all := slices.Clone(stored)
	for _, parent := range claimed {
		if !slices.ContainsFunc(stored, func(uid cedar.EntityUID) bool { return uid.Type == parent.Type }) {
			all = append(append(all, parent), s.store.entities[parent].ancestors...)
		}
	}
	return all
}

// context makes the Cedar context: the request's, without what is the
// service's, with the action's properties, and with the time where the
// configuration asks for it.
func (s *Snapshot) context(q *query, req *authzen.EvaluationRequest, env Environment) error {
	shape := s.shapes.context
	if s.schema != nil {
		shape = s.shapes.contexts[q.request.Action]
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
	if s.settings.Clock != "" {
		values[cedar.String(s.settings.Clock)] = types.NewDatetime(env.Time)
	}
	s.approve(q, shape, env.Approval, values)
	q.request.Context = cedar.NewRecord(values)
	if name := missing(shape, values); name != "" {
		return authzen.Invalid(below("/context", name), "is required by the schema")
	}
	return nil
}

func (s *Snapshot) readContext(q *query, shape *shape, raw jsontext.Value, into cedar.RecordMap) error {
	r := newReader(raw, "/context", &s.settings)
	defer r.close()
	return r.members(func(name string) error {
		switch name {
		case contextSupport:
			declared, err := r.dec.ReadValue()
			if err != nil {
				return r.syntax(err)
			}
			q.support = obligations.ReadSupport(declared)
			return nil
		case contextApproval:
			return nil
		case contextJustification:
			return r.justification(shape, into)
		case contextAction:
			return r.invalid("is where policies find the action's properties: send those")
		}
		if name == s.settings.Clock && name != "" {
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
	declared, ok := shape.member(contextAction)
	if !ok {
		declared = &noMembers
	}
	r := newReader(action.Properties, "/action/properties", &s.settings)
	defer r.close()
	properties, err := r.record(declared)
	if ok {
		into[contextAction] = properties
	}
	return err
}

// noMembers is the shape of a record for which nothing is declared.
var noMembers = shape{kind: kindRecord, declared: true}

// passes reports whether the entity passes a test of a scope.
func (n *node) passes(test xast.IsScopeNode) bool {
	switch t := test.(type) {
	case xast.ScopeTypeEq:
		return n.uid == t.Entity
	case xast.ScopeTypeIn:
		return n.in(t.Entity)
	case xast.ScopeTypeInSet:
		return slices.ContainsFunc(t.Entities, n.in)
	case xast.ScopeTypeIs:
		return n.uid.Type == t.Type
	case xast.ScopeTypeIsIn:
		return n.uid.Type == t.Type && n.in(t.Entity)
	}
	return true
}

func (n *node) in(group cedar.EntityUID) bool {
	return n.uid == group || slices.Contains(n.ancestors, group)
}

// groups returns what the entity is in, as Cedar writes it.
func (n *node) groups() []string {
	var names []string
	for _, group := range slices.SortedFunc(slices.Values(n.ancestors), compareUID) {
		names = append(names, group.String())
	}
	return names
}
