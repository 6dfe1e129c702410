package policytest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// RunStore runs the tests of a whole policy store. A tenant's snapshot decides the tenant's tests. The
// store's only snapshot or, with tenants, the guardrails alone decide the root's tests. The coverage is
// for all together: a guardrail that one tenant's tests cover is covered.
func RunStore(s *snapshot.Snapshots, tests []Test) (*Report, error) {
	of := byTenant(s, tests)
	all := new(Report)
	for _, tenant := range slices.Sorted(maps.Keys(of)) {
		snapshot, err := decider(s, tenant)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of[tenant][0].File, err)
		}
		all.add(Run(snapshot, of[tenant]))
	}
	return all, nil
}

// byTenant groups tests by tenant. It includes tenants without tests, and the root if the store has no
// tenants.
func byTenant(s *snapshot.Snapshots, tests []Test) map[string][]Test {
	of := map[string][]Test{}
	for _, tenant := range s.Tenants() {
		of[tenant] = nil
	}
	if len(of) == 0 {
		of[""] = nil
	}
	for _, test := range tests {
		of[test.Tenant] = append(of[test.Tenant], test)
	}
	return of
}

// decider returns the snapshot that decides the tests of a tenant, or of the root.
func decider(s *snapshot.Snapshots, tenant string) (*snapshot.Snapshot, error) {
	if tenant != "" {
		return s.For(tenant)
	}
	snapshot, err := s.Guardrails()
	if err != nil { // an error of the caller and not of the store, so it is not a Faults
		return nil, fmt.Errorf("is decided by the guardrails alone, which need what tenants add:\n%v", err)
	}
	return snapshot, nil
}

func (r *Report) add(other *Report) {
	r.Results = append(r.Results, other.Results...)
	r.Coverage.merge(other.Coverage)
}
