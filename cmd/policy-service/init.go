package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/policies"
	"github.com/policy-service/policy-service/schemas"
)

type initCmd struct {
	Dir string `arg:"" help:"Directory to create. An existing directory must be empty."`
	Set string `help:"Embedded policy store to copy: ${enum}." enum:"agent-tools,certification,todo,gateways,search,tool-access,tool-owners" default:"agent-tools"`
}

func (c *initCmd) Run() error {
	if entries, err := os.ReadDir(c.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", c.Dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	set, err := policies.Set(c.Set)
	if err != nil {
		return err
	}
	made, err := starter(c.Set, set)
	if err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(made)) {
		name := filepath.Join(c.Dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(name, made[file], 0o666); err != nil {
			return err
		}
		fmt.Println("  " + name)
	}
	_, err = fmt.Printf(`
Edit the policies, then:
  policy-service validate %[1]s          every fault at once
  policy-service test %[1]s              the tests beside them
  policy-service eval --policies %[1]s --request %[2]s --explain
  policy-service serve --policies %[1]s  changes are in force within two seconds
`, c.Dir, filepath.Join(c.Dir, sampleFile))
	return err
}

const (
	sampleFile    = "request.json"
	schemasFolder = ".schemas" // which a store does not look into
)

var errNoTests = errors.New("the set has no tests")

// samples are tests whose requests are good examples, by set. Other sets use their
// first test.
var samples = map[string]string{"agent-tools": "a reader does not write"}

// starter returns the files of a new store: those of the set, the JSON Schemas of its
// files for editors, and a request.
func starter(name string, set fs.FS) (map[string][]byte, error) {
	made := map[string][]byte{}
	for _, name := range []string{"access", "config", "tests"} {
		schema, err := schemas.StoreSchema(name)
		if err != nil {
			return nil, err
		}
		made[path.Join(schemasFolder, name+".json")] = schema
	}
	err := fs.WalkDir(set, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(set, file)
		made[file] = withSchema(file, text)
		return err
	})
	if err != nil {
		return nil, err
	}
	made[sampleFile], err = sample(name, set)
	return made, err
}

// withSchema returns a file of a store that tells editors its schema, if it has one.
func withSchema(file string, text []byte) []byte {
	if path.Dir(file) == "access" {
		return bytes.Replace(text, []byte("{\n"), []byte("{\n  \"$schema\": \"../"+schemasFolder+"/access.json\",\n"), 1)
	}
	return append([]byte(schemaComment(file)), text...)
}

// schemaComment returns the comment with which editors check a YAML file of a store
// against its schema; "" for another file.
func schemaComment(file string) string {
	switch {
	case file == "config.yaml":
		return "# yaml-language-server: $schema=" + schemasFolder + "/config.json\n"
	case path.Dir(file) == "tests" && path.Ext(file) == ".yaml":
		return "# yaml-language-server: $schema=../" + schemasFolder + "/tests.json\n"
	}
	return ""
}

// sample returns the request of a test of the set.
func sample(name string, set fs.FS) ([]byte, error) {
	tests, err := policytest.Load(set)
	if err != nil || len(tests) == 0 {
		return nil, fmt.Errorf("sample request of policy set %q: %w", name, cmp.Or(err, errNoTests))
	}
	at := slices.IndexFunc(tests, func(t policytest.Test) bool { return t.Name == samples[name] })
	body, err := json.Marshal(tests[max(at, 0)].Request, json.Deterministic(true), jsontext.WithIndent("  "))
	return append(body, '\n'), err
}
