package schemas_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/schemas"
)

// The pages of reference have the keys of the schemas and the operations of the
// OpenAPI document.
func TestReferencePages(t *testing.T) {
	const store = "../docs/reference/policy-store.md"
	config, tests := ordered(t, storeSchema(t, "config")), ordered(t, storeSchema(t, "tests"))
	docpage.Check(t, store, "config", keyTable(at(config, "properties")))
	docpage.Check(t, store, "tests", keyTable(at(tests, "$defs", "test", "properties")))
	docpage.Check(t, "../docs/reference/approvals.md", "templates", keyTable(at(config, "$defs", "template", "properties")))
	paths := at(ordered(t, schemas.OpenAPI()), "paths")
	docpage.Check(t, "../docs/reference/http.md", "operations", operationTable(paths, false))
	docpage.Check(t, "../docs/reference/http.md", "admin-operations", operationTable(paths, true))
}

func storeSchema(t *testing.T, name string) []byte {
	t.Helper()
	text, err := schemas.StoreSchema(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ordered reads YAML or JSON, its keys in their order.
func ordered(t *testing.T, text []byte) yaml.MapSlice {
	t.Helper()
	var document yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(text, &document, yaml.UseOrderedMap()); err != nil {
		t.Fatal(err)
	}
	return document
}

// at returns the value that the keys lead to; nil for none.
func at(document yaml.MapSlice, keys ...string) yaml.MapSlice {
	for _, key := range keys {
		document, _ = member(document, key).(yaml.MapSlice)
	}
	return document
}

func member(object yaml.MapSlice, key string) any {
	for _, item := range object {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

func text(object yaml.MapSlice, key string) string {
	is, _ := member(object, key).(string)
	return is
}

// keyTable is a table of keys, those of an object with their names behind it.
func keyTable(of ...yaml.MapSlice) string {
	var rows [][]string
	var add func(above string, properties yaml.MapSlice)
	add = func(above string, properties yaml.MapSlice) {
		for _, item := range properties {
			name, schema := above+item.Key.(string), item.Value.(yaml.MapSlice)
			rows = append(rows, []string{"`" + name + "`", kindOf(schema), text(schema, "description")})
			add(name+".", at(schema, "properties"))
		}
	}
	for _, properties := range of {
		add("", properties)
	}
	return docpage.Table([]string{"key", "value", "meaning"}, rows)
}

// kindOf says what values a schema takes.
func kindOf(schema yaml.MapSlice) string {
	if values, ok := member(schema, "enum").([]any); ok {
		var names []string
		for _, value := range values {
			names = append(names, fmt.Sprintf("`%v`", value))
		}
		return strings.Join(names, ", ")
	}
	if ref := text(schema, "$ref"); ref != "" {
		return words.ReplaceAllStringFunc(strings.TrimPrefix(ref, "#/$defs/"), func(s string) string { return " " + strings.ToLower(s) })
	}
	switch is := member(schema, "type").(type) {
	case string:
		return is
	case []any: // the other is null, for a key without a value
		return fmt.Sprint(is[0])
	}
	return ""
}

var words = regexp.MustCompile(`[A-Z]`)

// operationTable is a table of the operations of an OpenAPI document: those of the
// admin listener with their scopes, or those of the main listener without their
// twins below a tenant's path.
func operationTable(paths yaml.MapSlice, admin bool) string {
	header, rows := []string{"operation", "meaning"}, [][]string{}
	if admin {
		header = append(header, "scope")
	}
	for _, path := range paths {
		methods := path.Value.(yaml.MapSlice)
		if admin != (member(methods, "servers") != nil) || strings.Contains(path.Key.(string), "{tenant}") {
			continue
		}
		for _, method := range methods {
			operation, ok := method.Value.(yaml.MapSlice)
			if !ok {
				continue
			}
			row := []string{fmt.Sprintf("`%s %s`", strings.ToUpper(method.Key.(string)), path.Key), text(operation, "summary")}
			if admin {
				row = append(row, scopeOf(operation))
			}
			rows = append(rows, row)
		}
	}
	return docpage.Table(header, rows)
}

// scopeOf returns the scope that an operation needs, or "".
func scopeOf(operation yaml.MapSlice) string {
	alternatives, _ := member(operation, "security").([]any)
	for _, alternative := range alternatives {
		if scopes, ok := member(alternative.(yaml.MapSlice), "bearer").([]any); ok {
			return fmt.Sprintf("`%v`", scopes[0])
		}
	}
	return ""
}
