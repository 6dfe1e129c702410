package schemas_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/schemas"
)

// The types that openapi-typescript makes of the API compile, and take requests
// with properties and a context.
func TestTypeScriptTypes(t *testing.T) {
	tools := filepath.Join("testdata", "typescript")
	external.Packages(t, tools)
	bin, err := filepath.Abs(filepath.Join(tools, "node_modules", ".bin"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "openapi.yaml"), schemas.OpenAPI(), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(tools, "pep.ts"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pep.ts"), program, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, filepath.Join(bin, "openapi-typescript"), "openapi.yaml", "-o", "api.d.ts")
	run(t, dir, filepath.Join(bin, "tsc"), "--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "pep.ts")
}

// run runs a program in a directory.
func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(name), err, out)
	}
}

// Every object of the API says what it may have: generators take one that does
// not for one that has nothing.
func TestObjectsListTheirMembers(t *testing.T) {
	visit(openAPI(t), func(node map[string]any) {
		isObject := node["type"] == "object"
		if types, ok := node["type"].([]any); ok {
			isObject = types[0] == "object"
		}
		if !isObject {
			return
		}
		for _, has := range []string{"properties", "additionalProperties", "allOf", "oneOf", "anyOf"} {
			if node[has] != nil {
				return
			}
		}
		t.Errorf("%v", node)
	})
}
