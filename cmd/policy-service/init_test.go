package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestInitForEditors holds every YAML file that init writes against the schema
// that it refers to.
func TestInitForEditors(t *testing.T) {
	for _, set := range []string{"agent-tools", "certification", "todo", "gateways", "search", "tool-access", "tool-owners"} {
		dir := filepath.Join(t.TempDir(), set)
		if out, err := exec.Command("policy-service", "init", "--set", set, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		files, err := filepath.Glob(filepath.Join(dir, "tests", "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no tests (%v)", set, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "config.yaml")); err == nil {
			files = append(files, filepath.Join(dir, "config.yaml"))
		}
		for _, file := range files {
			fitsItsSchema(t, file)
		}
	}
}

func fitsItsSchema(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	name, found := strings.CutPrefix(first, "# yaml-language-server: $schema=")
	if !found {
		t.Errorf("%s begins with %q", file, first)
		return
	}
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(filepath.Dir(file), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(asJSON)))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %v", file, err)
	}
}
