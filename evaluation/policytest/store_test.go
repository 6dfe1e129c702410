package policytest_test

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// tenanted has one guardrail, which is what either tenant has a policy beside.
var tenanted = snapshot.Archive{
	"guard.cedar":                []byte(`@id("guard") forbid (principal, action, resource) when { context.closed };`),
	"tenants/acme/own.cedar":     []byte(`@id("own") permit (principal, action, resource);`),
	"tenants/umbrella/own.cedar": []byte(`@id("own") permit (principal == user::"alice", action, resource);`),
}

// wants is a file of one test.
func wants(closed, decision bool) *fstest.MapFile {
	return &fstest.MapFile{Data: fmt.Appendf(nil, `tests:
  - name: "closed: %[1]t"
    request: {subject: {type: user, id: bob}, action: {name: read}, resource: {type: doc, id: d}, context: {closed: %[1]t}}
    decision: %[2]t
`, closed, decision)}
}

// What a tenant's tests have tried of a guardrail has been tried, and what they
// want is wanted of that tenant alone.
func TestRunStore(t *testing.T) {
	tests, err := policytest.Load(fstest.MapFS{
		"tests/a.yaml":                  wants(false, false), // the guardrails alone permit nothing
		"tenants/umbrella/tests/a.yaml": wants(true, false),
		"tenants/acme/tests/a.yaml":     wants(false, true),
	})
	if err != nil {
		t.Fatal(err)
	}
	snapshots, err := snapshot.CompileStore(tenanted)
	if err != nil {
		t.Fatal(err)
	}
	report, err := policytest.RunStore(t.Context(), snapshots, tests)
	if err != nil {
		t.Fatal(err)
	}
	var ran []string
	for _, result := range report.Results {
		ran = append(ran, fmt.Sprintf("%s %s", result.Test.Tenant, result))
	}
	want := []string{
		" tests/a.yaml:2: closed: false: pass",
		"acme tenants/acme/tests/a.yaml:2: closed: false: pass",
		"umbrella tenants/umbrella/tests/a.yaml:2: closed: true: pass",
	}
	if diff := cmp.Diff(want, ran); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
	gaps := []policytest.Gap{{File: "tenants/umbrella/own.cedar", Line: 1, What: "permit own is never reached"}}
	if diff := cmp.Diff(gaps, report.Coverage.Gaps()); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
	if got, want := report.Coverage.Determined(), (policytest.Share{Tried: 2, Of: 3}); got != want {
		t.Errorf("%v policies determine a decision, want %v", got, want)
	}
}
