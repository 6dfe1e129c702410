package schemas_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An object is one of a body that a schema describes, with its members.
type object struct {
	path   string
	names  []string
	schema schema
}

// objects walks a body and its schema together.
func objects(t *testing.T, node map[string]any, value any, path string) []object {
	t.Helper()
	s := read(t, node)
	var found []object
	switch value := value.(type) {
	case map[string]any:
		if len(s.members) == 0 {
			return nil
		}
		found = []object{{path, slices.Sorted(maps.Keys(value)), s}}
		for name, member := range s.members {
			found = append(found, objects(t, member, value[name], path+"/"+name)...)
		}
	case []any:
		for i, element := range value {
			found = append(found, objects(t, s.items, element, path+"/"+strconv.Itoa(i))...)
		}
	}
	return found
}

// paths returns the pointers to all values inside value.
func paths(value any, path string) []string {
	var found []string
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			found = append(found, path+"/"+name)
			found = append(found, paths(value[name], path+"/"+name)...)
		}
	case []any:
		for i, element := range value {
			found = append(found, path+"/"+strconv.Itoa(i))
			found = append(found, paths(element, path+"/"+strconv.Itoa(i))...)
		}
	}
	return found
}

// removed stands for no value at all.
type removed struct{}

// replaced returns body with another value at path.
func replaced(t *testing.T, body, path string, value any) []byte {
	t.Helper()
	root := decode(t, body)
	names := strings.Split(path, "/")[1:]
	last := names[len(names)-1]
	parent := root
	for _, name := range names[:len(names)-1] {
		parent = child(t, parent, name)
	}
	switch parent := parent.(type) {
	case map[string]any:
		parent[last] = value
		if value == any(removed{}) {
			delete(parent, last)
		}
	case []any:
		i, err := strconv.Atoi(last)
		if err != nil {
			t.Fatal(err)
		}
		parent[i] = value
		if value == any(removed{}) {
			parent[i] = map[string]any{}
		}
	}
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func child(t *testing.T, parent any, name string) any {
	t.Helper()
	switch parent := parent.(type) {
	case map[string]any:
		return parent[name]
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil {
			t.Fatal(err)
		}
		return parent[i]
	}
	t.Fatalf("nothing is called %q in %v", name, parent)
	return nil
}

func decode(t testing.TB, body string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Fatal(err)
	}
	return value
}
