package snapshot

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
)

// An entityIndex indexes all entities of one type that a search may return. The position of an entity
// is its index in the order of ids. Every list of positions is in ascending order.
type entityIndex struct {
	uids        []cedar.EntityUID
	descendants map[cedar.EntityUID][]int32      // by ancestor
	values      map[types.String]map[any][]int32 // by attribute and value
	elements    map[types.String]map[any][]int32 // by set-valued attribute and element
}

// newEntityIndexes groups the stored entities and those that the schema enumerates by type. It indexes
// only attributes that a policy reads.
func newEntityIndexes(s *entityStore, schema *resolved.Schema, all []*Policy) map[cedar.EntityType]*entityIndex {
	out := map[cedar.EntityType]*entityIndex{}
	for uid := range s.ByUID {
		entityIndexOf(out, uid.Type).add(uid)
	}
	if schema != nil {
		for entityType, enum := range schema.Enums {
			entityIndexOf(out, entityType).add(enum.Values...)
		}
	}
	read := attributesRead(all)
	for _, p := range out {
		p.build(s, read)
	}
	return out
}

func entityIndexOf(all map[cedar.EntityType]*entityIndex, t cedar.EntityType) *entityIndex {
	if all[t] == nil {
		all[t] = &entityIndex{}
	}
	return all[t]
}

func (p *entityIndex) add(uids ...cedar.EntityUID) { p.uids = append(p.uids, uids...) }

func (p *entityIndex) build(s *entityStore, read []types.String) {
	slices.SortFunc(p.uids, byID)
	p.uids = slices.Compact(p.uids)
	p.descendants = map[cedar.EntityUID][]int32{}
	p.values, p.elements = map[types.String]map[any][]int32{}, map[types.String]map[any][]int32{}
	for _, name := range read {
		p.values[name], p.elements[name] = map[any][]int32{}, map[any][]int32{}
	}
	for i, uid := range p.uids {
		e := s.ByUID[uid]
		for _, ancestor := range e.Ancestors {
			p.descendants[ancestor] = append(p.descendants[ancestor], int32(i))
		}
		for _, name := range read {
			if value, ok := e.Attributes.Get(name); ok {
				p.addAttribute(int32(i), name, value)
			}
		}
	}
}

// addAttribute adds an entity under the value of its attribute.
func (p *entityIndex) addAttribute(ordinal int32, name types.String, value cedar.Value) {
	switch v := value.(type) {
	case cedar.Set:
		for element := range v.All() {
			if key, ok := lookupKey(element); ok {
				p.elements[name][key] = append(p.elements[name][key], ordinal)
			}
		}
	default:
		if key, ok := lookupKey(v); ok {
			p.values[name][key] = append(p.values[name][key], ordinal)
		}
	}
}

// lookupKey returns the map key for a value. It covers the types whose equality in Go equals Cedar's.
func lookupKey(v cedar.Value) (key any, ok bool) {
	switch v.(type) {
	case cedar.EntityUID, cedar.String, cedar.Long, cedar.Boolean:
		return v, true
	}
	return nil, false
}

// all lists all positions.
func (p *entityIndex) all() []int32 {
	all := make([]int32, len(p.uids))
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// position returns the position of an entity.
func (p *entityIndex) position(uid cedar.EntityUID) (int32, bool) {
	i, ok := slices.BinarySearchFunc(p.uids, uid, byID)
	return int32(i), ok && p.uids[i] == uid
}

func byID(a, b cedar.EntityUID) int { return strings.Compare(string(a.ID), string(b.ID)) }

// attributesRead lists the attributes that policies read of any entity or record.
func attributesRead(all []*Policy) []types.String {
	seen := map[types.String]bool{}
	for _, p := range all {
		for _, condition := range p.Syntax.Conditions {
			xast.Inspect(xast.NewNode(condition.Body), func(n xast.IsNode) bool {
				if access, ok := n.(xast.NodeTypeAccess); ok {
					seen[access.Value] = true
				}
				return true
			})
		}
	}
	names := make([]types.String, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
