package schematest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// A keyed has the parts of a JSON Schema that determine the keys of a value.
type keyed struct {
	Ref        string           `json:"$ref"`
	Properties map[string]keyed `json:"properties"`
	Items      *keyed           `json:"items"`
	Additional any              `json:"additionalProperties"`
	Defs       map[string]keyed `json:"$defs"`
}

// SameKeys checks that a schema has exactly the keys of a Go type that YAML is decoded into, at
// every depth. definition is a path in its definitions, "" for the whole schema.
func SameKeys(t *testing.T, schema []byte, definition string, is reflect.Type) {
	t.Helper()
	var root keyed
	if err := json.Unmarshal(schema, &root); err != nil {
		t.Fatal(err)
	}
	from := root
	if definition != "" {
		from = root.Defs[definition]
	}
	sameKeys(t, root, from, is, definition)
}

func sameKeys(t *testing.T, root, s keyed, is reflect.Type, at string) {
	t.Helper()
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		s = root.Defs[name]
	}
	switch is.Kind() {
	case reflect.Pointer:
		sameKeys(t, root, s, is.Elem(), at)
	case reflect.Slice:
		if s.Items != nil {
			sameKeys(t, root, *s.Items, is.Elem(), at+"[]")
		}
	case reflect.Map:
		text, _ := json.Marshal(s.Additional) // parsed from JSON above
		var values keyed
		if json.Unmarshal(text, &values) == nil {
			sameKeys(t, root, values, is.Elem(), at+".*")
		}
	case reflect.Struct:
		sameFields(t, root, s, is, at)
	}
}

func sameFields(t *testing.T, root, s keyed, is reflect.Type, at string) {
	t.Helper()
	var keys []string
	for field := range is.Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		keys = append(keys, key)
		if property, ok := s.Properties[key]; ok {
			sameKeys(t, root, property, field.Type, at+"."+key)
		} else {
			t.Errorf("%s: the schema has no %s", at, key)
		}
	}
	if s.Additional != false {
		t.Errorf("%s: the schema lets unknown keys pass", at)
	}
	for key := range s.Properties {
		if !slices.Contains(keys, key) {
			t.Errorf("%s: the schema has %s, which is not read", at, key)
		}
	}
}
