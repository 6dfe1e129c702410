package snapshot

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A factShape describes a record of the context that only the service sets.
type factShape struct {
	kinds     map[string]kind   // of the members
	sometimes map[string]string // members that may be absent, and when they are present
}

// checkFact reports a schema that declares a fact with a type the service never supplies.
func (c *compiler) checkFact(all shapes, name string, fact factShape) {
	for _, action := range slices.SortedFunc(maps.Keys(all.Contexts), CompareUID) {
		declared, ok := all.Contexts[action].Members[name]
		if !ok {
			continue
		}
		at := fmt.Sprintf("%s: context.%s", action, name)
		if declared.Kind != kindRecord || declared.required {
			c.fault(FileCedarSchema, 0, 0, at+" must be an optional record", "")
			continue
		}
		for _, name := range declared.Names() {
			c.checkFactMember(at, name, declared.Members[name], fact)
		}
	}
}

func (c *compiler) checkFactMember(at, name string, member memberShape, fact factShape) {
	want, known := fact.kinds[name]
	switch {
	case !known:
		c.fault(FileCedarSchema, 0, 0, at+" has no "+name, faults.DidYouMean(name, slices.Collect(maps.Keys(fact.kinds))))
	case member.Kind != want || want == kindSet && member.element.Kind != KindEntity:
		c.fault(FileCedarSchema, 0, 0, fmt.Sprintf("%s.%s is %s", at, name, want), "")
	case fact.sometimes[name] != "" && member.required:
		c.fault(FileCedarSchema, 0, 0, at+"."+name+" is there "+fact.sometimes[name], "make it optional")
	}
}

// approvers returns people as a set for the member of a fact. They do not fit if one is not of the
// declared type.
func (s *Snapshot) approvers(shape *shape, member string, people []authzen.Subject) (set cedar.Set, fit bool) {
	declared, ok := shape.member(member)
	var all []cedar.Value
	for _, person := range people {
		name, err := s.Settings.entityType(person.Type)
		if err != nil || ok && declared.OrAny().Kind == kindSet && declared.element.Entity != name {
			return cedar.Set{}, false
		}
		all = append(all, cedar.NewEntityUID(name, cedar.String(person.ID)))
	}
	return cedar.NewSet(all...), true
}

// onlyDeclared returns the record of the members that a shape declares.
func onlyDeclared(shape *shape, all cedar.RecordMap) cedar.Record {
	maps.DeleteFunc(all, func(name cedar.String, _ cedar.Value) bool {
		_, declared := shape.member(string(name))
		return !declared
	})
	return cedar.NewRecord(all)
}
