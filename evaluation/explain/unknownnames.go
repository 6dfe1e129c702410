package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// unknown lists the names that the snapshot does not know.
func (e *explainer) unknown() {
	v := e.snapshot.KnownNames()
	r := e.query.Request
	e.unknownEntity(&v, r.Principal, e.request.Subject)
	e.unknownAction(&v, r.Action)
	e.unknownEntity(&v, r.Resource, e.request.Resource)
	if e.query.Denied != "" {
		e.refusedTypes()
		return
	}
	e.unreadAttributes(&v, "principal", e.request.Subject.Properties, e.attributes(r.Principal))
	e.unreadAttributes(&v, "resource", e.request.Resource.Properties, e.attributes(r.Resource))
	e.unreadAttributes(&v, "context", e.request.Context, r.Context)
	properties, _ := r.Context.Get(snapshot.ContextAction)
	action, _ := properties.(cedar.Record)
	e.unreadAttributes(&v, snapshot.OwnerAction, e.request.Action.Properties, action)
	if e.snapshot.Schema == nil {
		e.missingAttributes()
	}
}

// refusedTypes adds types that the schema does not declare for the action, or that no subject may have.
func (e *explainer) refusedTypes() {
	s, r := e.snapshot, e.query.Request
	if s.Schema == nil {
		if s.SubjectTypes != nil && !s.SubjectTypes[r.Principal.Type] {
			e.refusedType("subject", r.Principal.Type, slices.Collect(maps.Keys(s.SubjectTypes)))
		}
		return
	}
	if action, ok := s.Schema.Actions[r.Action]; ok && action.AppliesTo != nil {
		e.refusedType("subject", r.Principal.Type, action.AppliesTo.Principals)
		e.refusedType("resource", r.Resource.Type, action.AppliesTo.Resources)
	}
}

func (e *explainer) refusedType(part string, is cedar.EntityType, may []cedar.EntityType) {
	if slices.Contains(may, is) {
		return
	}
	var names []string
	for _, name := range slices.Sorted(slices.Values(may)) {
		names = append(names, string(name))
	}
	e.unknownName(string(is), "it is no type of a "+part+" here", "a "+part+" may be: "+listed(names))
}

func (e *explainer) attributes(uid cedar.EntityUID) cedar.Record {
	entity, _ := e.query.Get(uid)
	return entity.Attributes
}

func (e *explainer) unknownName(name, what, hint string) {
	if !slices.ContainsFunc(e.out.Unknown, func(u Unknown) bool { return u.Name == name }) {
		e.out.Unknown = append(e.out.Unknown, Unknown{name, what, hint})
	}
}

// unknownEntity adds an unknown type, or an entity that is not stored although others of its type are
// and whose properties the request does not send. Without a schema, a type may occur only in requests.
func (e *explainer) unknownEntity(v *snapshot.Names, uid cedar.EntityUID, sent authzen.Entity) {
	switch {
	case !v.Types[uid.Type]:
		known := slices.Sorted(maps.Keys(e.snapshot.Settings.TypeAliases))
		for name := range v.Types {
			known = append(known, string(name))
		}
		if hint := faults.SpellingHint(sent.Type, known); hint != "" || e.snapshot.Schema != nil {
			e.unknownName(string(uid.Type), "nothing has this type", hint)
		}
	case v.Stored[uid.Type] && !slices.Contains(v.IDs[uid.Type], string(uid.ID)) && sent.Properties == nil:
		e.unknownName(uid.String(), "it is not stored, and the request says nothing of it", faults.SpellingHint(string(uid.ID), v.IDs[uid.Type]))
	}
}

// unknownAction adds an action that no policy names or, with a schema, that the schema does not
// declare.
func (e *explainer) unknownAction(v *snapshot.Names, action cedar.EntityUID) {
	known, what := v.IDs[action.Type], "no policy names this action"
	declared := slices.Contains(known, string(action.ID))
	if s := e.snapshot.Schema; s != nil {
		known, what = e.snapshot.Actions.Names, "the schema does not declare this action"
		_, declared = s.Actions[action]
	}
	if len(known) > 0 && !declared {
		e.unknownName(action.String(), what, faults.SpellingHint(string(action.ID), known))
	}
}

// unreadAttributes adds properties or context members that were dropped, or that look like a
// misspelling of an absent attribute that policies read.
func (e *explainer) unreadAttributes(v *snapshot.Names, owner string, raw jsontext.Value, got cedar.Record) {
	var wanted []string
	for name := range v.Read[owner] {
		if _, ok := got.Get(cedar.String(name)); !ok {
			wanted = append(wanted, name)
		}
	}
	for _, name := range e.sent(owner, raw) {
		path := owner + "." + name
		near := faults.Nearest(name, wanted, faults.MaxEdits(name))
		switch _, kept := got.Get(cedar.String(name)); {
		case !kept:
			e.unknownName(path, "the schema does not declare it, so it was dropped", faults.SpellingHint(name, wanted))
		case near != "" && !v.Read[owner][name]:
			e.unknownName(path, "no policy reads it", fmt.Sprintf("did you mean %q?", near))
		}
	}
}

// sent lists the data members of an object of the request.
func (e *explainer) sent(owner string, raw jsontext.Value) []string {
	var members map[string]jsontext.Value
	if json.Unmarshal(raw, &members) != nil {
		return nil
	}
	for name, value := range members {
		_, parents := e.snapshot.Settings.Parents[name]
		service := owner == "context" && snapshot.IsClaim(name)
		if value.Kind() == 'n' || owner == "principal" && parents || service {
			delete(members, name)
		}
	}
	return slices.Sorted(maps.Keys(members))
}

// missingAttributes adds attributes that the policies near the request read and that no entity of the
// type has.
func (e *explainer) missingAttributes() {
	traces := slices.Clone(e.out.Errors)
	for _, n := range e.out.Nearest {
		traces = append(traces, n.Trace)
	}
	for _, t := range traces {
		if step := t.stop(); step != nil {
			for path := range cedarsyntax.Paths(step.conjunct.Body) {
				e.missingAttribute(t.Policy, path)
			}
		}
	}
}

func (e *explainer) missingAttribute(policy string, path xast.IsNode) {
	owner, name, ok := snapshot.AttributeRead(path)
	entity := e.tracer.node(types.String(owner))
	if !ok || entity == nil {
		return
	}
	uid := entity.UID
	known := e.attributeNames(uid)
	if slices.Contains(known, name) {
		return
	}
	if hint := faults.SpellingHint(name, known); hint != "" && !e.hinted(name) {
		e.unknownName(owner+"."+name, fmt.Sprintf("%s reads it, and no %s has it", policy, uid.Type), hint)
	}
}

// hinted reports whether the name is already the hint for a misspelling in the request.
func (e *explainer) hinted(name string) bool {
	return slices.ContainsFunc(e.out.Unknown, func(u Unknown) bool { return strings.Contains(u.Hint, fmt.Sprintf("%q", name)) })
}

// attributeNames lists the attributes of entities of the type: stored, declared, or in the request.
func (e *explainer) attributeNames(uid cedar.EntityUID) []string {
	names := map[string]bool{}
	add := func(r cedar.Record) {
		for name := range r.All() {
			names[string(name)] = true
		}
	}
	add(e.attributes(uid))
	for _, entity := range e.snapshot.Entities.ByUID {
		if entity.UID.Type == uid.Type {
			add(entity.Attributes)
		}
	}
	if shape := e.snapshot.Shapes.Entities[uid.Type]; shape != nil {
		for _, name := range shape.Names() {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
