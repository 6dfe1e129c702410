package evaluation

import (
	"path"
	"regexp"
	"slices"

	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
)

// readSchema reads the schema, in either of its two forms. A tenant's is added
// to the root's. There may be none.
func (c *compiler) readSchema() *resolved.Schema {
	var text []byte
	var read []string
	broken := false
	for _, file := range slices.Concat(c.archive.files(fileCedarSchema), c.archive.files(fileJSONSchema)) {
		if other := path.Join(path.Dir(file), fileCedarSchema); path.Base(file) == fileJSONSchema && c.archive[other] != nil {
			c.fault(file, 0, 0, "there is "+other+" as well", "keep one of them")
			continue
		}
		part, err := c.parseSchema(file)
		if err != nil {
			c.schemaFault(file, err)
			broken = true
			continue
		}
		text, read = append(append(text, part...), '\n'), append(read, file)
	}
	if broken || read == nil {
		return nil
	}
	var parsed schema.Schema
	err := parsed.UnmarshalCedar(text)
	if err != nil {
		c.fault(read[len(read)-1], 0, 0, err.Error(), "")
		return nil
	}
	if !c.schemaSize(read, parsed.AST()) {
		return nil
	}
	out, err := parsed.Resolve()
	if err != nil {
		c.unresolved(read, err)
		return nil
	}
	return out
}

// schemaFault reports what a parser says about a schema file.
func (c *compiler) schemaFault(file string, err error) {
	if offset := jsonOffset(err); offset > 0 {
		line, column := lineAndColumn(c.archive[file], offset)
		c.fault(file, line, column, jsonMessage(err), "")
		return
	}
	c.parseFault(file, statement{text: c.archive[file], line: 1, column: 1}, err)
}

var saysUndefined = regexp.MustCompile(`undefined .*type "([^"]+)"$`)

// unresolved reports what schema files say of a name that none of them
// declares, where the first of them has it. Without such a place it is what the
// last adds to the others.
func (c *compiler) unresolved(files []string, err error) {
	if m := saysUndefined.FindStringSubmatch(err.Error()); m != nil {
		name := readPassage(statement{text: []byte(m[1])})
		for _, file := range files {
			if at := readPassage(statement{text: c.archive[file]}).find(name.all()...); at >= 0 {
				line, column := lineAndColumn(c.archive[file], int64(at))
				c.fault(file, line, column, err.Error(), "")
				return
			}
		}
	}
	c.fault(files[len(files)-1], 0, 0, err.Error(), "")
}

// parseSchema reads one schema file and returns it as Cedar text.
func (c *compiler) parseSchema(file string) ([]byte, error) {
	var parsed schema.Schema
	parsed.SetFilename(file)
	if path.Base(file) == fileCedarSchema {
		return c.archive[file], parsed.UnmarshalCedar(c.archive[file])
	}
	if err := parsed.UnmarshalJSON(c.archive[file]); err != nil {
		return nil, err
	}
	return parsed.MarshalCedar()
}
