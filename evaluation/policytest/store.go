package policytest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// RunStore runs the tests of a whole policy store. A tenant's snapshot decides the tenant's tests. The
// store's only snapshot or, with tenants, the guardrails alone decide the root's tests. The coverage is
// for all together: a guardrail that one tenant's tests cover is covered. The error is that of ctx if
// it ends before the tests.
func RunStore(ctx context.Context, s *snapshot.Snapshots, tests []Test) (*Report, error) {
	return RunTenants(ctx, s, tests, s.Tenants())
}

// RunTenants is RunStore for the tests of the root and of some tenants.
func RunTenants(ctx context.Context, s *snapshot.Snapshots, tests []Test, tenants []string) (*Report, error) {
	of := byTenant(tenants, s.HasTenants(), tests)
	all := new(Report)
	for _, tenant := range slices.Sorted(maps.Keys(of)) {
		snapshot, err := decider(s, tenant)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of[tenant][0].File, err)
		}
		report, err := Run(ctx, snapshot, of[tenant])
		if err != nil {
			return nil, err
		}
		all.add(report)
	}
	return all, nil
}

// byTenant groups the tests of the root and of some tenants by tenant. It includes tenants without
// tests, and the root if the store has no tenants.
func byTenant(tenants []string, hasTenants bool, tests []Test) map[string][]Test {
	of := map[string][]Test{}
	for _, tenant := range tenants {
		of[tenant] = nil
	}
	if !hasTenants {
		of[""] = nil
	}
	for _, test := range tests {
		if !hasTenants || test.Tenant == "" || slices.Contains(tenants, test.Tenant) {
			of[test.Tenant] = append(of[test.Tenant], test)
		}
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
