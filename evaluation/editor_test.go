package evaluation_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/policies"
)

// The files of a policy store are those of Cedar's own tools: the official
// parser, validator and formatter take every embedded store as it is, and what
// the formatter makes of one decides the same.
func TestOfficialToolsTakeTheFiles(t *testing.T) {
	script := filepath.Join(filepath.Dir(oracle(t)), "editor.js")
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			set, err := policies.Set(name)
			if err != nil {
				t.Fatal(err)
			}
			archive, err := policystore.Read(set)
			if err != nil {
				t.Fatal(err)
			}
			formatted, fault := format(t, script, archive)
			if fault != "" {
				t.Fatal(fault)
			}
			tests, err := policytest.Load(set)
			if err != nil {
				t.Fatal(err)
			}
			compiled, err := snapshot.Compile(formatted)
			if err != nil {
				t.Fatal(err)
			}
			report, err := policytest.Run(t.Context(), compiled, tests)
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range report.Failed() {
				t.Error(result)
			}
		})
	}
}

// The official tools would have said so.
func TestOfficialToolsNotice(t *testing.T) {
	script := filepath.Join(filepath.Dir(oracle(t)), "editor.js")
	for what, store := range map[string]string{
		"no policy": "permit (principal, action, resource) when;",
		"a type that the schema does not know": "permit (principal is usr, action, resource);\n" +
			"-- schema.cedarschema --\nentity user; action read appliesTo { principal: user, resource: user };\n",
	} {
		if _, fault := format(t, script, archive(store)); fault == "" {
			t.Errorf("they take %s", what)
		}
	}
}

// format returns the archive with its policies as the official formatter
// writes them, or what the official tools have against them.
func format(t *testing.T, script string, a snapshot.Archive) (formatted snapshot.Archive, fault string) {
	t.Helper()
	call := struct {
		Files  map[string]string `json:"files"`
		Schema string            `json:"schema,omitzero"`
	}{map[string]string{}, string(a["schema.cedarschema"])}
	for file, text := range a {
		if path.Ext(file) == ".cedar" {
			call.Files[file] = string(text)
		}
	}
	input, err := json.Marshal(call)
	if err != nil {
		t.Fatal(err)
	}
	node := exec.Command("node", script)
	node.Stdin, node.Stderr = bytes.NewReader(input), os.Stderr
	out, err := node.Output()
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Fault     string            `json:"fault"`
		Formatted map[string]string `json:"formatted"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatal(err)
	}
	formatted = maps.Clone(a)
	for file, text := range answer.Formatted {
		formatted[file] = []byte(text)
	}
	return formatted, answer.Fault
}
