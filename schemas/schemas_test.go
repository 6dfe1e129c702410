package schemas_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/schemas/schematest"
)

func TestSchemasCompile(t *testing.T) {
	names := schematest.Names()
	if !slices.IsSorted(names) || !slices.Contains(names, "EvaluationRequest") {
		t.Errorf("Names() = %q", names)
	}
	for _, name := range names {
		schematest.Compile(t, name)
		root := parse(t, name)
		if got := root["title"]; got != name {
			t.Errorf("%s: title is %q", name, got)
		}
		if got := root["$schema"]; got != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("%s: $schema is %q", name, got)
		}
	}
}

func TestSchemaUnknown(t *testing.T) {
	for _, name := range []string{"", "evaluationrequest", "EvaluationRequest.json", "openapi", "../go"} {
		if _, err := schematest.JSONSchema(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("JSONSchema(%q): %v", name, err)
		}
	}
}

// AZ-80: whoever validates with these schemas ignores unknown members too, except
// those of a message of the service's own, whose unknown members it refuses.
func TestSchemasAreOpen(t *testing.T) {
	for _, name := range schematest.Names() {
		if name == "CapabilitySubmission" || name == "IntrospectionRequest" {
			continue
		}
		visit(parse(t, name), func(node map[string]any) {
			for _, keyword := range []string{"additionalProperties", "unevaluatedProperties", "propertyNames", "maxProperties"} {
				if _, object := node[keyword].(map[string]any); node[keyword] != nil && node[keyword] != true && !object {
					t.Errorf("%s: %s is %v", name, keyword, node[keyword])
				}
			}
		})
	}
}

// parse returns the named schema as it is written.
func parse(t testing.TB, name string) map[string]any {
	t.Helper()
	text, err := schematest.JSONSchema(name)
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return schema
}

// visit calls f with every object in value.
func visit(value any, f func(map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		f(value)
		for _, member := range value {
			visit(member, f)
		}
	case []any:
		for _, element := range value {
			visit(element, f)
		}
	}
}
