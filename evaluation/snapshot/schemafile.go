package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/faults"
)

// readSchema reads the schema in either of its two forms and adds a tenant's to the root's. The schema
// is optional.
func (c *compiler) readSchema() *resolved.Schema {
	whole := &ast.Schema{}
	var read []string
	broken := false
	for _, file := range slices.Concat(c.archive.Files(FileCedarSchema), c.archive.Files(FileJSONSchema)) {
		if other := path.Join(path.Dir(file), FileCedarSchema); path.Base(file) == FileJSONSchema && c.archive[other] != nil {
			c.fault(file, 0, 0, "there is "+other+" as well", "keep one of them")
			continue
		}
		part, err := c.parseSchema(file)
		if err != nil {
			c.schemaFault(file, err)
			broken = true
			continue
		}
		read = append(read, file)
		if keyword, name := addSchema(whole, part); name != "" {
			_, line, column := c.declaration([]string{file}, keyword, name)
			c.fault(file, line, column, fmt.Sprintf("does not parse: %s %q is declared twice", keyword, name), "")
			broken = true
		}
	}
	if broken || read == nil {
		return nil
	}
	if !c.schemaSize(read, whole) {
		return nil
	}
	out, err := schema.NewSchemaFromAST(whole).Resolve()
	if err != nil {
		c.unresolved(read, err)
		return nil
	}
	if name := closeParents(out); name != "" {
		c.oversizedSchema(read, "entity", unqualified(name))
		return nil
	}
	return out
}

// schemaFault reports a parser's error in a schema file.
func (c *compiler) schemaFault(file string, err error) {
	if offset := faults.JSONOffset(err); offset > 0 {
		line, column := faults.LineAndColumn(c.archive[file], offset)
		c.fault(file, line, column, faults.JSONMessage(err), "")
		return
	}
	c.parseFault(file, cedarsyntax.Statement{Text: c.archive[file], Line: 1, Column: 1}, err)
}

var saysUndefined = regexp.MustCompile(`undefined .*type "([^"]+)"$`)

// unresolved reports a name that no schema file declares, at its first use. If it cannot find a use, it
// reports the last file.
func (c *compiler) unresolved(files []string, err error) {
	if m := saysUndefined.FindStringSubmatch(err.Error()); m != nil {
		name := cedarsyntax.Tokenize(cedarsyntax.Statement{Text: []byte(m[1])})
		for _, file := range files {
			text := cedarsyntax.Tokenize(cedarsyntax.Statement{Text: c.archive[file]})
			at := text.Find(name.Texts()...)
			if path.Base(file) == FileJSONSchema {
				at = text.Find(strconv.Quote(m[1]))
			}
			if at >= 0 {
				line, column := faults.LineAndColumn(c.archive[file], int64(at))
				c.fault(file, line, column, err.Error(), "")
				return
			}
		}
	}
	c.fault(files[len(files)-1], 0, 0, err.Error(), "")
}

// parseSchema parses one schema file.
func (c *compiler) parseSchema(file string) (*ast.Schema, error) {
	var parsed schema.Schema
	parsed.SetFilename(file)
	if path.Base(file) == FileJSONSchema {
		return c.parseJSONSchema(file)
	}
	if err := parsed.UnmarshalCedar(c.archive[file]); err != nil {
		return nil, err
	}
	if c.logged {
		return parsed.AST(), nil
	}
	return parsed.AST(), strictLists(c.archive[file])
}

// strictLists rejects lists that cedar-go accepts and the official parser does not: a comma after the
// last element, and an action with an empty list of groups.
func strictLists(text []byte) error {
	words := cedarsyntax.Tokenize(cedarsyntax.Statement{Text: text})
	inAction := false
	for i := range words.Tokens {
		word, previous := words.Text(i), ""
		if i > 0 {
			previous = words.Text(i - 1)
		}
		switch {
		case word == "entity" || word == "action":
			if i+1 < len(words.Tokens) && words.Text(i+1) != ":" && words.Text(i+1) != "?" { // not an attribute
				inAction = word == "action"
			}
		case word != "]":
		case previous == ",":
			return faultAt(words, i, "there is a comma before it")
		case previous == "[" && inAction && i > 1 && words.Text(i-2) == "in":
			return faultAt(words, i, "the list of groups is empty")
		}
	}
	return nil
}

// faultAt returns an error at a token of a schema, in the format of the parser's errors.
func faultAt(p cedarsyntax.Tokens, i int, message string) error {
	line, column := faults.LineAndColumn(p.Src, int64(p.Tokens[i].Start))
	return fmt.Errorf(`<input>:%d:%d: %q: %s`, line, column, p.Text(i), message)
}

// parseJSONSchema parses a schema in JSON form. To check it against the grammar, it converts the schema
// to Cedar form and parses that. The Cedar form can express that an action applies to nothing only by
// omitting appliesTo.
func (c *compiler) parseJSONSchema(file string) (*ast.Schema, error) {
	var parsed, again schema.Schema
	if err := parsed.UnmarshalJSON(c.archive[file]); err != nil {
		return nil, err
	}
	if err := completeAppliesTo(c.archive[file]); err != nil && !c.logged {
		return nil, err
	}
	whole := parsed.AST()
	omitIdle(whole.Actions)
	for _, space := range whole.Namespaces {
		omitIdle(space.Actions)
	}
	text, err := schema.NewSchemaFromAST(whole).MarshalCedar()
	if err == nil {
		err = again.UnmarshalCedar(text)
	}
	if err != nil {
		return nil, errors.New(cedarsyntax.ReadParseError(err.Error()).Message()) // the position refers to the converted text, which the operator does not have
	}
	return whole, nil
}

// omitIdle removes the appliesTo of actions without principals or without resources. The meaning stays
// the same.
func omitIdle(actions ast.Actions) {
	for name, action := range actions {
		if to := action.AppliesTo; to != nil && (len(to.Principals) == 0 || len(to.Resources) == 0) {
			action.AppliesTo = nil
			actions[name] = action
		}
	}
}

// completeAppliesTo rejects an appliesTo without its two lists, as the official parser does.
func completeAppliesTo(text []byte) error {
	var spaces map[string]struct {
		Actions map[string]struct {
			AppliesTo map[string]jsontext.Value `json:"appliesTo"`
		} `json:"actions"`
	}
	if err := json.Unmarshal(text, &spaces); err != nil {
		return err
	}
	for _, space := range slices.Sorted(maps.Keys(spaces)) {
		for _, name := range slices.Sorted(maps.Keys(spaces[space].Actions)) {
			to := spaces[space].Actions[name].AppliesTo
			for _, list := range []string{"principalTypes", "resourceTypes"} {
				if kind := to[list].Kind(); to != nil && kind != '[' {
					return fmt.Errorf("action %q: appliesTo has no list %s", name, list)
				}
			}
		}
	}
	return nil
}

// addSchema adds the declarations of part to whole. It returns a name that both declare, or "".
func addSchema(whole, part *ast.Schema) (keyword, name string) {
	if whole.Namespaces == nil {
		whole.Namespaces = ast.Namespaces{}
	}
	for space := range part.Namespaces {
		if _, taken := whole.Namespaces[space]; taken {
			return "namespace", string(space)
		}
	}
	maps.Copy(whole.Namespaces, part.Namespaces)
	for _, name := range slices.Sorted(maps.Keys(part.Entities)) {
		if declaresEntity(whole, name) {
			return "entity", string(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(part.Enums)) {
		if declaresEntity(whole, name) {
			return "entity", string(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(part.Actions)) {
		if _, taken := whole.Actions[name]; taken {
			return "action", string(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(part.CommonTypes)) {
		if _, taken := whole.CommonTypes[name]; taken {
			return "type", string(name)
		}
	}
	whole.Entities, whole.Enums = together(whole.Entities, part.Entities), together(whole.Enums, part.Enums)
	whole.Actions, whole.CommonTypes = together(whole.Actions, part.Actions), together(whole.CommonTypes, part.CommonTypes)
	return "", ""
}

func declaresEntity(s *ast.Schema, name ast.Ident) bool {
	_, entity := s.Entities[name]
	_, enum := s.Enums[name]
	return entity || enum
}

func together[M ~map[K]V, K comparable, V any](a, b M) M {
	if a == nil {
		a = M{}
	}
	maps.Copy(a, b)
	return a
}

// closeParents gives every entity type the parent types of its parent types. Membership is transitive,
// and a request may state it directly. The official engine accepts that, but cedar-go does not. It
// returns the type that exceeds [maxSchemaTypes] parents in total, or "".
func closeParents(s *resolved.Schema) cedar.EntityType {
	direct := map[cedar.EntityType][]cedar.EntityType{}
	for name, entity := range s.Entities {
		direct[name] = entity.ParentTypes
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(s.Entities)) {
		seen := map[cedar.EntityType]bool{}
		for open := []cedar.EntityType{name}; len(open) > 0; {
			last := open[len(open)-1]
			open = open[:len(open)-1]
			for _, parent := range direct[last] {
				if !seen[parent] {
					seen[parent] = true
					open = append(open, parent)
				}
			}
		}
		if total += len(seen); total > maxSchemaTypes {
			return name
		}
		entity := s.Entities[name]
		entity.ParentTypes = slices.Sorted(maps.Keys(seen))
		s.Entities[name] = entity
	}
	return ""
}

// unqualified returns the declared name of a type, without its namespace.
func unqualified(name cedar.EntityType) string {
	return string(name[strings.LastIndex(string(name), ":")+1:])
}
