package snapshot

import (
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
)

// A shape declares the Cedar type of a JSON value, where JSON alone is ambiguous. The nil shape accepts
// any value.
type shape struct {
	Kind     kind
	Entity   cedar.EntityType // for kindEntity
	ids      []cedar.String   // for kindEntity: the only valid ids, or nil for any
	element  *shape           // for kindSet
	Members  map[string]memberShape
	declared bool // for kindRecord: Members lists every valid member
	orArray  bool // an array of such values is valid, too
	// kept lists names that are never dropped, even if undeclared, because a forbid of the root reads
	// them.
	kept  map[string]string
	whole bool // nothing is dropped
}

type memberShape struct {
	*shape
	required bool
}

type kind int

const (
	kindAny kind = iota
	kindBool
	kindLong
	kindString
	KindEntity
	kindDecimal
	kindIPAddr
	KindDatetime
	kindDuration
	kindSet
	kindRecord
)

// extensions maps the Cedar names of extension types to kinds.
var extensions = map[string]kind{
	"decimal":  kindDecimal,
	"ipaddr":   kindIPAddr,
	"datetime": KindDatetime,
	"duration": kindDuration,
}

func (k kind) String() string {
	return [...]string{"any value", "a boolean", "an integer", "a string", "an entity", "a decimal",
		"an IP address", "a datetime", "a duration", "an array", "an object"}[k]
}

// OrAny returns s, or an empty shape if s is nil.
func (s *shape) OrAny() *shape {
	if s == nil {
		return &anyShape
	}
	return s
}

var anyShape shape

// member returns the shape of a record's member and whether the member is allowed.
func (s *shape) member(name string) (*shape, bool) {
	if s == nil {
		return nil, true
	}
	m, ok := s.Members[name]
	return m.shape, ok || !s.declared
}

// isEmpty reports whether the shape is a record that declares no member.
func (s *shape) isEmpty() bool {
	return s != nil && s.Kind == kindRecord && s.declared && len(s.Members) == 0
}

// keep makes the record and its nested records never drop a member with one of the names. Nothing
// inside such a member is dropped either, because a forbid may compare it as a whole.
func (s *shape) keep(names map[string]string) {
	if s == nil {
		return
	}
	s.kept = names
	s.element.keep(names)
	for name, m := range s.Members {
		if m.shape.keep(names); names[name] != "" {
			m.shape.keepAll()
		}
	}
}

// keepAll makes the record and its nested records never drop a member.
func (s *shape) keepAll() {
	if s == nil {
		return
	}
	s.whole = true
	s.element.keepAll()
	for _, m := range s.Members {
		m.shape.keepAll()
	}
}

// drops reports whether an undeclared member may be dropped if the settings drop undeclared members.
func (s *shape) drops(name string) bool { return s == nil || !s.whole && s.kept[name] == "" }

// Names lists the members that a shape declares.
func (s *shape) Names() []string { return slices.Sorted(maps.Keys(s.Members)) }

// shapes holds the shapes of everything in a request.
type shapes struct {
	Entities map[cedar.EntityType]*shape
	Contexts map[cedar.EntityUID]*shape // by action
	context  *shape                     // for every action, if there is no schema
}

// shapesOf returns the shapes that a schema declares.
func shapesOf(s *resolved.Schema) shapes {
	out := shapes{Entities: map[cedar.EntityType]*shape{}, Contexts: map[cedar.EntityUID]*shape{}}
	for name, entity := range s.Entities {
		out.Entities[name] = shapeOf(s, entity.Shape)
	}
	for name := range s.Enums {
		out.Entities[name] = shapeOf(s, resolved.RecordType{})
	}
	for uid, action := range s.Actions {
		if action.AppliesTo != nil {
			out.Contexts[uid] = shapeOf(s, action.AppliesTo.Context)
		}
	}
	return out
}

func shapeOf(s *resolved.Schema, t resolved.IsType) *shape {
	switch t := t.(type) {
	case resolved.BoolType:
		return &shape{Kind: kindBool}
	case resolved.LongType:
		return &shape{Kind: kindLong}
	case resolved.StringType:
		return &shape{Kind: kindString}
	case resolved.ExtensionType:
		return &shape{Kind: extensions[string(t)]}
	case resolved.SetType:
		return &shape{Kind: kindSet, element: shapeOf(s, t.Element)}
	case resolved.EntityType:
		return entityShape(s, cedar.EntityType(t))
	case resolved.RecordType:
		record := &shape{Kind: kindRecord, declared: true, Members: make(map[string]memberShape, len(t))}
		for name, attribute := range t {
			record.Members[string(name)] = memberShape{shapeOf(s, attribute.Type), !attribute.Optional}
		}
		return record
	}
	return nil
}

func entityShape(s *resolved.Schema, name cedar.EntityType) *shape {
	out := &shape{Kind: KindEntity, Entity: name}
	if enum, ok := s.Enums[name]; ok {
		for _, uid := range enum.Values {
			out.ids = append(out.ids, uid.ID)
		}
	}
	return out
}

// shapesFrom returns the shapes that the attributes setting declares if there is no schema. A path is
// type.attribute or context.attribute, followed by attributes of nested records. For an array, the
// path declares its elements. shapesFrom reports each invalid path to fault.
func shapesFrom(attributes map[string]string, fault func(path, message, hint string)) shapes {
	out := shapes{Entities: map[cedar.EntityType]*shape{}, context: &shape{Kind: kindRecord}}
	for _, path := range slices.Sorted(maps.Keys(attributes)) {
		value, ok := namedShape(attributes[path])
		owner, rest, dotted := strings.Cut(path, ".")
		_, err := types.NewEntityType(owner)
		if !ok || !dotted || err != nil {
			fault(path, attributes[path]+" is not understood",
				"write type.attribute: and the name of an entity type, or ipaddr, datetime, duration or decimal")
			continue
		}
		root := out.context
		if owner != "context" {
			root = out.Entities[cedar.EntityType(owner)]
			if root == nil {
				root = &shape{Kind: kindRecord}
				out.Entities[cedar.EntityType(owner)] = root
			}
		}
		if !root.put(strings.Split(rest, "."), value) {
			fault(path, "lies below an attribute that is no record", "")
		}
	}
	return out
}

func namedShape(name string) (*shape, bool) {
	if k, ok := extensions[name]; ok {
		return &shape{Kind: k, orArray: true}, true
	}
	entity, err := types.NewEntityType(name)
	return &shape{Kind: KindEntity, Entity: entity, orArray: true}, err == nil
}

// put declares the shape of the value at path below s. It returns false if a prefix of the path is not
// a record.
func (s *shape) put(path []string, value *shape) bool {
	if s.Kind != kindRecord {
		return false
	}
	if s.Members == nil {
		s.Members = map[string]memberShape{}
	}
	if len(path) == 1 {
		s.Members[path[0]] = memberShape{shape: value}
		return true
	}
	next := s.Members[path[0]].shape
	if next == nil {
		next = &shape{Kind: kindRecord}
		s.Members[path[0]] = memberShape{shape: next}
	}
	return next.put(path[1:], value)
}
