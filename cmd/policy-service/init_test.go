package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestInitForEditors holds every YAML file and every access document that init
// writes against the schema that it refers to.
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
		documents, err := filepath.Glob(filepath.Join(dir, "access", "*.json"))
		if err != nil || set == "tool-access" && len(documents) == 0 {
			t.Fatalf("%s has no access documents (%v)", set, err)
		}
		files = append(files, documents...)
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
	refers := regexp.MustCompile(`^(?:# yaml-language-server: \$schema=(.*)|\{\n  "\$schema": "(.*)",)\n`).FindStringSubmatch(string(text))
	if refers == nil {
		t.Errorf("%s does not begin with its schema", file)
		return
	}
	name := refers[1] + refers[2]
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
