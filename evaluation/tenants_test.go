package evaluation_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A store of guardrails and two tenants, who know each a Role of the same name.
const tenanted = `
@id("guard") forbid (principal, action == Action::"erase", resource);
@id("guard-that-reads") forbid (principal, action == Action::"open", resource) when { resource.closed };
-- tenants/acme/own.cedar --
@id("own") permit (principal in Role::"staff", action, resource);
-- tenants/acme/entities.json --
[{"uid": {"type": "user", "id": "alice"}, "attrs": {}, "parents": [{"type": "Role", "id": "staff"}]}]
-- tenants/umbrella/own.cedar --
@id("own") permit (principal in Role::"staff", action, resource);
-- tenants/umbrella/entities.json --
[{"uid": {"type": "user", "id": "bob"}, "attrs": {}, "parents": [{"type": "Role", "id": "staff"}]}]
`

// compileStore returns the snapshot of each tenant.
func compileStore(t testing.TB, text string) func(tenant string) compiledStore {
	t.Helper()
	all, err := snapshot.CompileStore(archive(text))
	if err != nil {
		t.Fatal(err)
	}
	return func(tenant string) compiledStore {
		t.Helper()
		s, err := all.For(tenant)
		if err != nil {
			t.Fatal(err)
		}
		return compiledStore{s, t}
	}
}

// The guardrails hold for every tenant, and what a tenant adds for none other.
func TestTenants(t *testing.T) {
	tenant := compileStore(t, tenanted)
	acme, umbrella := tenant("acme"), tenant("umbrella")
	acme.allows("user alice", "read", "doc 1")
	acme.denies("user bob", "read", "doc 1")
	umbrella.allows("user bob", "read", "doc 1")
	umbrella.denies("user alice", "read", "doc 1")
	acme.denies("user alice", "erase", "doc 1")
	umbrella.denies("user bob", "erase", "doc 1")

	// A tenant's revision is that of what it depends on.
	other := compileStore(t, tenanted+"-- tenants/umbrella/more.cedar --\n// nothing\n")
	if got := other("acme").Revision(); got != acme.Revision() {
		t.Errorf("revision %s of acme after a change of umbrella, %s before", got, acme.Revision())
	}
	if got := other("umbrella").Revision(); got == umbrella.Revision() {
		t.Error("a change of umbrella is not in its revision")
	}
}

// A tenant may make the answer to an error stricter, and not laxer, than the
// guardrails have it or would by default.
func TestTenantsCannotWeakenGuardrails(t *testing.T) {
	const own = "-- tenants/acme/config.yaml --\non_policy_error: "
	for _, root := range []string{"", "-- config.yaml --\non_policy_error: deny\n", "-- config.yaml --\non_policy_error: deny_any\n"} {
		_, err := snapshot.CompileStore(archive(tenanted + root + own + "skip\n"))
		var found faults.List
		if !errors.As(err, &found) || len(found) != 1 || found[0].File != "tenants/acme/config.yaml" {
			t.Errorf("under the guardrails' %q a tenant may skip errors: %v", root, err)
		}
	}
	strict := compileStore(t, tenanted+own+"deny_any\n")
	strict("acme").denies("user alice", "open", "doc 1")
	lax := compileStore(t, tenanted+"-- config.yaml --\non_policy_error: skip\n"+own+"deny\n")
	lax("acme").denies("user alice", "open", "doc 1")
	lax("umbrella").allows("user bob", "open", "doc 1")
}

// What is wrong for one tenant is a fault of the store, and what is wrong with
// the guardrails is one fault however many tenants there are.
func TestFaultsOfTenants(t *testing.T) {
	_, err := snapshot.CompileStore(archive(tenanted + `
-- tenants/acme/config.yaml --
clok: now
-- tenants/umbrella/more.cedar --
@id("guard") permit (principal, action, resource);
-- z.cedar --
permit (principal, action, resource);
`))
	const want = `tenants/acme/config.yaml:1:1: unknown field "clok" (did you mean "clock"?)
tenants/umbrella/more.cedar:1:1: @id("guard") is taken by policies.cedar:2
z.cedar:1:1: this policy has no @id (begin it with @id("a-unique-name"))
`
	var found faults.List
	errors.As(err, &found)
	if diff := cmp.Diff(want, lines(found)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// A request names its tenant, or is answered by none.
func TestRequestsOfTenants(t *testing.T) {
	e, l := engine(t, tenanted, evaluation.Config{})
	a := askedIn(t)
	of := func(tenant string) evaluation.Call { return evaluation.Call{Tenant: tenant} }

	d, err := e.Evaluate(t.Context(), of("acme"), a.single)
	if err != nil || !d.Decision {
		t.Errorf("acme: %v, %v", d, err)
	}
	d, err = e.Evaluate(t.Context(), of("umbrella"), a.single)
	if err != nil || d.Decision {
		t.Errorf("umbrella: %v, %v", d, err)
	}
	for _, tenant := range []string{"", "nobody", "Acme", "../acme"} {
		call := of(tenant)
		if d, err := e.Evaluate(t.Context(), call, a.single); d != nil || !errors.Is(err, snapshot.ErrUnknownTenant) {
			t.Errorf("Evaluate for %q: %v, %v", tenant, d, err)
		}
		if d, err := e.Evaluations(t.Context(), call, a.batch); d != nil || !errors.Is(err, snapshot.ErrUnknownTenant) {
			t.Errorf("Evaluations for %q: %v, %v", tenant, d, err)
		}
	}

	// In the tenant, actor, action, resource shape an unknown tenant is a denial.
	a.shape.TenantID = "nobody"
	shape, err := e.Authorize(t.Context(), of("acme"), a.shape)
	if err != nil || shape.Allow {
		t.Errorf("Authorize: %v, %v", shape, err)
	}
	var recorded []string
	for _, entry := range entries(t, l) {
		if entry.Kind == decisionlog.KindEvaluation && entry.Result != nil {
			recorded = append(recorded, entry.Tenant)
		}
	}
	if diff := cmp.Diff([]string{"acme", "umbrella", "nobody"}, recorded); diff != "" {
		t.Errorf("tenants of the entries (-want +got):\n%s", diff)
	}
}
