package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/x/exp/schema/ast"
	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/faults"
)

// maxSchemaTypes limits the types in a schema after expansion. Expansion replaces each name of a common
// type by its definition and copies each list of names to every name it is declared for. Nested names
// can otherwise expand without limit.
const maxSchemaTypes = 200_000

// A sizeCounter computes the number of types in the expanded schema without expanding it.
type sizeCounter struct {
	common map[string]ast.IsType // by qualified name
	sizes  map[string]int        // sizes computed so far; 0 while a computation runs
}

// oversized returns the declaration that makes a schema too large, and its keyword in Cedar's form. It
// returns "" for a schema within the limit.
func oversized(s *ast.Schema) (keyword, name string) {
	z := sizeCounter{common: map[string]ast.IsType{}, sizes: map[string]int{}}
	spaces := namespaces(s)
	for space, all := range spaces {
		for name, common := range all.CommonTypes {
			z.common[qualified(space, string(name))] = common.Type
		}
	}
	total := 0
	for _, space := range slices.Sorted(maps.Keys(spaces)) {
		all := spaces[space]
		for _, name := range slices.Sorted(maps.Keys(all.CommonTypes)) {
			if z.of(space, ast.TypeRef(qualified(space, string(name)))) > maxSchemaTypes {
				return "type", string(name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(all.Entities)) {
			entity := all.Entities[name]
			if total += z.of(space, entity.Shape) + z.of(space, entity.Tags) + len(entity.ParentTypes); total > maxSchemaTypes {
				return "entity", string(name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(all.Actions)) {
			total += len(all.Actions[name].Parents)
			if to := all.Actions[name].AppliesTo; to != nil {
				total += z.of(space, to.Context) + len(to.Principals)*len(to.Resources) // the validator checks policies for each pair
			}
			if total > maxSchemaTypes {
				return "action", string(name)
			}
		}
	}
	return "", ""
}

// namespaces returns the declarations of a schema by namespace, "" for none.
func namespaces(s *ast.Schema) map[string]ast.Namespace {
	all := map[string]ast.Namespace{"": {Entities: s.Entities, Actions: s.Actions, CommonTypes: s.CommonTypes}}
	for name, space := range s.Namespaces {
		all[string(name)] = space
	}
	return all
}

func qualified(space, name string) string {
	if space == "" {
		return name
	}
	return space + "::" + name
}

// of returns the size of a type in a namespace. It stops counting one above the limit. A recursive type
// has no size, because the schema is rejected for it.
func (z *sizeCounter) of(space string, t ast.IsType) int {
	n := 1
	switch t := t.(type) {
	case nil:
		return 0
	case ast.SetType:
		n += z.of(space, t.Element)
	case ast.RecordType:
		for _, attribute := range t {
			n = min(n+z.of(space, attribute.Type), maxSchemaTypes+1)
		}
	case ast.TypeRef:
		n = z.named(space, string(t))
	}
	return min(n, maxSchemaTypes+1)
}

// named returns the size of the type that a name denotes.
func (z *sizeCounter) named(space, ref string) int {
	name := ref
	if own := qualified(space, ref); !strings.Contains(ref, "::") && z.common[own] != nil {
		name = own
	}
	common, declared := z.common[name]
	if !declared {
		return 1 // an entity type or a built-in type
	}
	if size, known := z.sizes[name]; known {
		return size
	}
	z.sizes[name] = 0
	within := ""
	if i := strings.LastIndex(name, "::"); i >= 0 {
		within = name[:i]
	}
	z.sizes[name] = z.of(within, common)
	return z.sizes[name]
}

// schemaSize reports a schema over the limit, at the declaration that exceeds it.
func (c *compiler) schemaSize(files []string, s *ast.Schema) bool {
	keyword, name := oversized(s)
	if name == "" {
		return true
	}
	c.oversizedSchema(files, keyword, name)
	return false
}

// oversizedSchema reports the declaration that exceeds the limit.
func (c *compiler) oversizedSchema(files []string, keyword, name string) {
	message := fmt.Sprintf("with %s %s the schema stands for more than %d types", keyword, name, maxSchemaTypes)
	file, line, column := c.declaration(files, keyword, name)
	c.fault(file, line, column, message, "name fewer common types within each other, and fewer types in each other")
}

// declaration returns the position of a declaration in the schema files. If it finds none, it returns
// the last file.
func (c *compiler) declaration(files []string, keyword, name string) (file string, line, column int) {
	for _, file := range files {
		for _, form := range []string{keyword + " " + name, fmt.Sprintf("%s %q", keyword, name), fmt.Sprintf("%q", name)} {
			words := cedarsyntax.Tokenize(cedarsyntax.Statement{Text: []byte(form)}).Texts()
			if at := cedarsyntax.Tokenize(cedarsyntax.Statement{Text: c.archive[file]}).Find(words...); at >= 0 {
				line, column := faults.LineAndColumn(c.archive[file], int64(at))
				return file, line, column
			}
		}
	}
	return files[len(files)-1], 0, 0
}
