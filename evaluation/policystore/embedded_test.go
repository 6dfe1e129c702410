package policystore_test

import (
	"io/fs"
	"testing"

	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/policies"
)

// The embedded policy stores are read as directories are, and compile.
func TestEmbeddedSets(t *testing.T) {
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			set, err := policies.Set(name)
			must(t, err)
			archive, err := policystore.Read(set)
			must(t, err)
			for file, text := range archive {
				if want, err := fs.ReadFile(set, file); err != nil || string(want) != string(text) {
					t.Errorf("%s is not what is embedded (%v)", file, err)
				}
			}
			for _, file := range []string{"schema.cedarschema", "entities.json"} {
				if archive[file] == nil {
					t.Errorf("there is no %s", file)
				}
			}
			s, err := snapshot.Compile(archive)
			must(t, err)
			if n, _ := s.Size(); n == 0 {
				t.Error("there are no policies")
			}
		})
	}
}
