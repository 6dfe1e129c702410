package policies_test

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/policy-service/policy-service/policies"
)

func TestEverySetIsAPolicyStore(t *testing.T) {
	for _, name := range policies.Names() {
		set, err := policies.Set(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []string{"*.cedar", "schema.cedarschema", "entities.json", "tests/*.yaml"} {
			if found, _ := fs.Glob(set, pattern); len(found) == 0 {
				t.Errorf("%s: no %s", name, pattern)
			}
		}
	}
}

func TestEmbeddedStoresAreListed(t *testing.T) {
	names := policies.Names()
	for _, name := range []string{"certification", "gateways", "search", "todo", "tool-access", "tool-owners"} {
		if !slices.Contains(names, name) {
			t.Errorf("%q is not among %q", name, names)
		}
	}
}

func TestSetRefuses(t *testing.T) {
	for _, name := range []string{"", ".", "..", "nowhere", "todo/todo.cedar", "/todo"} {
		if _, err := policies.Set(name); err == nil {
			t.Errorf("Set(%q) returned a set", name)
		}
	}
}
