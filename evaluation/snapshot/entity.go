package snapshot

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
)

// An entityStore holds the entities of a snapshot.
type entityStore struct {
	ByUID   map[cedar.EntityUID]entity
	parents map[cedar.EntityType]bool // types of which some entity is an ancestor
	Stored  int                       // entities in entities.json; the others are the schema's actions
}

// An entity has all its ancestors as parents, so that "in" is one lookup at any depth of the
// hierarchy. The field ancestors holds them as a list as well.
type entity struct {
	cedar.Entity
	Ancestors []cedar.EntityUID
}

// A ResolvedEntity is an entity and all its ancestors.
type ResolvedEntity struct {
	UID       cedar.EntityUID
	Ancestors []cedar.EntityUID
}

// Passes reports whether the entity satisfies a test of a scope.
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

// In reports whether the entity is group or below it.
func (n *ResolvedEntity) In(group cedar.EntityUID) bool {
	return n.UID == group || slices.Contains(n.Ancestors, group)
}

// Groups returns the ancestors of the entity in Cedar syntax.
func (n *ResolvedEntity) Groups() []string {
	var names []string
	for _, group := range slices.SortedFunc(slices.Values(n.Ancestors), CompareUID) {
		names = append(names, group.String())
	}
	return names
}

// CompareUID compares two entities by type and then by id.
func CompareUID(a, b cedar.EntityUID) int {
	if a.Type != b.Type {
		if a.Type < b.Type {
			return -1
		}
		return 1
	}
	return bytes.Compare([]byte(a.ID), []byte(b.ID))
}

// checkEnum reports an entity of an enumerated type that the schema does not list.
func checkEnum(schema *resolved.Schema, uid cedar.EntityUID) error {
	enum, ok := schema.Enums[uid.Type]
	if ok && !slices.Contains(enum.Values, uid) {
		return fmt.Errorf("%s is not one of the entities that the schema lists for %s", uid, uid.Type)
	}
	return nil
}

// TextAttribute returns the String attribute of a stored entity, whose type is as PEPs send it, or "".
func (s *Snapshot) TextAttribute(sent, id, name string) string {
	of, err := s.Settings.entityType(sent)
	if err != nil {
		return ""
	}
	value, _ := s.Entities.ByUID[cedar.NewEntityUID(of, cedar.String(id))].Attributes.Get(cedar.String(name))
	text, _ := value.(cedar.String)
	return string(text)
}
