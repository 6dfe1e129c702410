// Package schematest validates bodies against the JSON Schemas of the service, in
// tests.
package schematest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/policy-service/policy-service/schemas"
)

// base is the prefix of a schema's file name. It makes references between schemas absolute.
const base = "https://schemas.invalid/"

// Check fails the test unless the named schema accepts the body.
func Check(t testing.TB, name string, body []byte) {
	t.Helper()
	if err := Compile(t, name)(body); err != nil {
		t.Errorf("%s: %v\n%s", name, err, body)
	}
}

// Compile returns a function that validates bodies against the named schema. It asserts formats and
// is safe for concurrent use.
//
// It parses bodies with encoding/json, which accepts duplicate members and invalid UTF-8.
func Compile(t testing.TB, name string) func(body []byte) error {
	t.Helper()
	schema, err := compiler(t).Compile(base + name + ".json")
	if err != nil {
		t.Fatalf("compile JSON Schema: %v", err)
	}
	return func(body []byte) error {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			return err
		}
		return schema.Validate(value)
	}
}

func compiler(t testing.TB) *jsonschema.Compiler {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for _, name := range Names() {
		text, err := JSONSchema(name)
		if err != nil {
			t.Fatal(err)
		}
		schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := c.AddResource(base+name+".json", schema); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return c
}

// JSONSchema returns the schema of the body with the given name, for example "EvaluationRequest".
// It refers to others by name with the suffix ".json".
func JSONSchema(name string) ([]byte, error) {
	for _, folder := range []string{"", adminFolder} {
		if schema, err := schemas.Files.ReadFile(folder + name + ".json"); err == nil {
			return schema, nil
		}
	}
	return nil, fmt.Errorf("no JSON Schema is called %q", name)
}

// adminFolder holds the schemas of the admin API.
const adminFolder = "admin/"

// Names returns the names of the schemas of the main listener in alphabetical
// order.
func Names() []string { return namesIn(".") }

// AdminNames returns the names of the schemas of the admin API, sorted.
func AdminNames() []string { return namesIn(strings.TrimSuffix(adminFolder, "/")) }

func namesIn(folder string) []string {
	entries, err := schemas.Files.ReadDir(folder)
	if err != nil {
		panic(err) // an embedded folder is always readable
	}
	var names []string
	for _, entry := range entries {
		if name, isSchema := strings.CutSuffix(entry.Name(), ".json"); isSchema {
			names = append(names, name)
		}
	}
	return names
}
