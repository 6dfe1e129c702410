package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
	xtypes "github.com/cedar-policy/cedar-go/x/exp/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/faults"
)

// readEntities reads entities.json, a tenant's together with the root's, and adds the schema's actions
// and their groups. The file is optional.
func (c *compiler) readEntities() *entityStore {
	s := &entityStore{ByUID: map[cedar.EntityUID]entity{}, parents: map[cedar.EntityType]bool{}}
	places := map[cedar.EntityUID]place{}
	for _, file := range c.archive.Files(FileEntities) {
		err := eachElement(c.archive[file], func(raw jsontext.Value, offset int64) {
			c.inTime()
			e, err := readEntity(raw, c.schema)
			if _, taken := places[e.UID]; err == nil && taken {
				err = fmt.Errorf("%s is there twice", e.UID)
			}
			if err != nil {
				c.entityFault(place{file, offset + faults.JSONOffset(err)}, faults.JSONMessage(err))
				return
			}
			places[e.UID] = place{file, offset}
			c.keepEntity(e, place{file, offset})
			s.ByUID[e.UID] = entity{Entity: e}
		})
		if err != nil {
			c.entityFault(place{file, faults.JSONOffset(err)}, faults.JSONMessage(err))
		}
	}
	s.Stored = len(s.ByUID)
	if c.schema != nil {
		for uid, action := range c.schema.Actions {
			s.ByUID[uid] = entity{Entity: action.Entity}
		}
	}
	f := s.flatten()
	for _, uid := range f.cyclic {
		c.entityFault(places[uid], uid.String()+" is its own ancestor")
	}
	for _, uid := range f.crowded {
		c.entityFault(places[uid], fmt.Sprintf("%s has more than %d ancestors", uid, maxAncestors))
	}
	if f.over != nil {
		c.entityFault(places[*f.over], fmt.Sprintf("with %s the entities have more than %d ancestors in all", *f.over, f.most))
	}
	return s
}

// keepEntity records an entity as written, for the check of a tenant's entities against the root's.
func (c *compiler) keepEntity(e cedar.Entity, at place) {
	if !c.logged && len(c.archive.Tenants()) > 0 {
		c.entities = append(c.entities, writtenEntity{e, at})
	}
}

func (c *compiler) entityFault(at place, message string) {
	c.partial = true
	line, column := faults.LineAndColumn(c.archive[at.file], at.offset)
	c.fault(at.file, line, column, message, "")
}

// eachElement calls visit with every element of a JSON array and its byte offset. Empty text is an
// empty array.
func eachElement(src []byte, visit func(raw jsontext.Value, offset int64)) error {
	if len(bytes.TrimSpace(src)) == 0 {
		return nil
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(src)) // a bytes.Buffer is decoded in place, and errors can name members
	if dec.PeekKind() != '[' {
		return fmt.Errorf("must be a JSON array of entities")
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		raw, err := dec.ReadValue()
		if err != nil {
			return err
		}
		visit(raw, dec.InputOffset()-int64(len(raw)))
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &jsontext.SyntacticError{ByteOffset: dec.InputOffset(), Err: errors.New("there is something behind the array")}
	}
	return nil
}

// readEntity reads one entity of the operator's in Cedar's JSON form and checks it against the schema.
func readEntity(raw jsontext.Value, schema *resolved.Schema) (cedar.Entity, error) {
	var read xtypes.Entity
	var err error
	if schema == nil {
		err = json.Unmarshal(raw, (*cedar.Entity)(&read))
	} else {
		err = read.UnmarshalJSONWithSchema(raw, schema)
	}
	out := cedar.Entity(read)
	if err == nil {
		err = checkEntity(out)
	}
	if err == nil {
		err = checkDecimals(raw, out)
	}
	if err == nil && schema != nil {
		err = checkDeclared(schema, out)
	}
	return out, err
}

// checkDecimals reports a decimal with a plus sign, which the official engine rejects.
func checkDecimals(raw jsontext.Value, e cedar.Entity) error {
	var written struct {
		Attributes jsontext.Value `json:"attrs"`
		Tags       jsontext.Value `json:"tags"`
	}
	if !bytes.ContainsAny(raw, `+\`) { // no plus sign, plain or escaped
		return nil
	}
	if err := json.Unmarshal(raw, &written); err != nil {
		return err
	}
	if cedarsyntax.WritesPlus(e.Attributes, written.Attributes) || cedarsyntax.WritesPlus(e.Tags, written.Tags) {
		return fmt.Errorf("%s: a decimal has no plus sign", e.UID)
	}
	return nil
}

// checkEntity reports what cedar-go accepts and the official engine rejects: unknown escapes, which
// cedar-go keeps as data, and an action in a group that is not an action.
func checkEntity(e cedar.Entity) error {
	for _, values := range []cedar.Record{e.Attributes, e.Tags} {
		if name := reservedName(values); name != "" {
			return fmt.Errorf("%s: %s is not understood here", e.UID, name)
		}
	}
	for parent := range e.Parents.All() {
		if cedarsyntax.IsActionType(e.UID.Type) && !cedarsyntax.IsActionType(parent.Type) {
			return fmt.Errorf("%s: an action's parent must be an action, not %s", e.UID, parent)
		}
	}
	return nil
}

// reservedName returns a reserved name of Cedar's JSON form that remains in a value.
func reservedName(v cedar.Value) string {
	switch v := v.(type) {
	case cedar.Record:
		for name, value := range v.All() {
			if isReserved(string(name)) {
				return string(name)
			}
			if found := reservedName(value); found != "" {
				return found
			}
		}
	case cedar.Set:
		for value := range v.All() {
			if found := reservedName(value); found != "" {
				return found
			}
		}
	}
	return ""
}

// checkDeclared checks an entity against the schema.
func checkDeclared(schema *resolved.Schema, e cedar.Entity) error {
	if err := validate.New(schema).Entity(e); err != nil {
		return fmt.Errorf("%s: %w", e.UID, err)
	}
	named := append(slices.SortedFunc(e.Parents.All(), CompareUID), e.UID)
	named = append(append(named, entitiesIn(e.Attributes)...), entitiesIn(e.Tags)...)
	for _, uid := range named {
		if err := checkEnum(schema, uid); err != nil {
			return err
		}
	}
	return nil
}

// entitiesIn lists the entities that a value refers to.
func entitiesIn(v cedar.Value) []cedar.EntityUID {
	var all []cedar.EntityUID
	switch v := v.(type) {
	case cedar.EntityUID:
		all = append(all, v)
	case cedar.Record:
		for _, value := range v.All() {
			all = append(all, entitiesIn(value)...)
		}
	case cedar.Set:
		for value := range v.All() {
			all = append(all, entitiesIn(value)...)
		}
	}
	slices.SortFunc(all, CompareUID)
	return all
}

// maxAncestors limits the ancestors of one entity, because each entity stores all of them.
const maxAncestors = 1000

// mostAncestors returns the limit on the ancestors of n entities in total. Real hierarchies are wide
// and shallow. A chain of thousands would store as many ancestors for each entity.
func mostAncestors(n int) int { return 600_000 + 30*n }

// flatten gives every entity all its ancestors as parents, and returns the flattener. An entity above
// itself or with too many ancestors is a fault, and flatten then changes nothing.
func (s *entityStore) flatten() *flattener {
	f := &flattener{
		store: s, most: mostAncestors(len(s.ByUID)),
		done: make(map[cedar.EntityUID][]cedar.EntityUID, len(s.ByUID)), open: map[cedar.EntityUID]bool{},
	}
	for _, uid := range slices.SortedFunc(maps.Keys(s.ByUID), CompareUID) {
		f.visit(uid)
	}
	if f.over != nil || len(f.crowded) > 0 {
		return f
	}
	for uid, above := range f.done {
		if e, ok := s.ByUID[uid]; ok && len(above) > 0 {
			e.Parents, e.Ancestors = cedar.NewEntityUIDSet(above...), above
			s.ByUID[uid] = e
		}
		for _, ancestor := range above {
			s.parents[ancestor.Type] = true
		}
	}
	return f
}

// A flattener finds ancestors depth first. An entity is open while the search visits its ancestors.
type flattener struct {
	store   *entityStore
	done    map[cedar.EntityUID][]cedar.EntityUID // ancestors, without duplicates
	open    map[cedar.EntityUID]bool
	total   int               // number of ancestors
	most    int               // limit on total
	cyclic  []cedar.EntityUID // entities that are their own ancestors, in a fixed order
	crowded []cedar.EntityUID // entities with too many ancestors, in a fixed order
	over    *cedar.EntityUID  // the entity that exceeds the total; nil for none
}

func (f *flattener) visit(uid cedar.EntityUID) []cedar.EntityUID {
	if above, ok := f.done[uid]; ok || f.over != nil {
		return above
	}
	if f.open[uid] {
		f.cyclic = append(f.cyclic, uid)
		return nil
	}
	if len(f.open) > maxAncestors { // entities below all of these have more ancestors
		return nil
	}
	f.open[uid] = true
	seen := map[cedar.EntityUID]bool{}
	for parent := range f.store.ByUID[uid].Parents.All() {
		seen[parent] = true
		for _, ancestor := range f.visit(parent) {
			seen[ancestor] = true
		}
	}
	delete(f.open, uid)
	if len(seen) > maxAncestors { // already a fault; further ancestors do not matter
		f.crowded = append(f.crowded, uid)
		seen = nil
	}
	if f.total += len(seen); f.total > f.most {
		f.over = &uid
		return nil
	}
	above := slices.Collect(maps.Keys(seen))
	f.done[uid] = above
	return above
}
