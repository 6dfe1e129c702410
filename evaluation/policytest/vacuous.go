package policytest

import (
	"maps"
	"slices"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// unknownHint tells how to test the denial of an unknown name.
const unknownHint = "a test of such a denial says unknown: true"

// vacuous lists the names in a test of a denial that the schema does not declare. Such a name is denied
// whatever the policies say, so a misspelling would pass.
func vacuous(s *snapshot.Snapshot, test Test) faults.List {
	if test.Want.Decision || test.Unknown {
		return nil
	}
	return s.UnknownNames(test.Request)
}

// sentence returns the text of a fault without its position.
func sentence(f faults.Fault) string {
	if f.Hint == "" {
		return f.Message
	}
	return f.Message + " (" + f.Hint + ")"
}

// Vacuous lists the tests of a policy store that expect a denial and use names that the schema does not
// declare, each at the position of the test.
func Vacuous(s *snapshot.Snapshots, tests []Test) (out faults.List) {
	of := byTenant(s.Tenants(), s.HasTenants(), tests)
	for _, tenant := range slices.Sorted(maps.Keys(of)) {
		if len(of[tenant]) == 0 {
			continue
		}
		snapshot, err := decider(s, tenant)
		if err != nil {
			continue // running the tests reports the error
		}
		for _, test := range of[tenant] {
			for _, name := range vacuous(snapshot, test) {
				out = append(out, faults.Fault{File: test.File, Line: test.Line, Column: 1, Message: test.Name + ": " + sentence(name), Hint: unknownHint})
			}
		}
	}
	return out
}
