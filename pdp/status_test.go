package pdp_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/rates"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// storeDir writes a policy store to a new directory.
func storeDir(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		writeFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func (s *service) status(t *testing.T, key string) (status pdp.ServiceStatus) {
	t.Helper()
	if code := askAs(t, key, "GET", s.admin+pdp.PathStatus, "", &status); code != 200 {
		t.Fatalf("status is %d", code)
	}
	return status
}

// reload reloads the policies and returns the status of the answer.
func (s *service) reload(t *testing.T) int {
	t.Helper()
	return askAs(t, "", "POST", s.admin+pdp.PathReload, "", nil)
}

const (
	aliceMayRead = `@id("read") permit(principal == user::"alice", action == Action::"read", resource);`
	allMayRead   = `@id("read-all") permit(principal, action == Action::"read", resource);`
)

// The status says what is in force, what was decided in the last hour, and where the faults of a
// refused change are.
func TestStatus(t *testing.T) {
	dir := storeDir(t, map[string]string{"a.cedar": aliceMayRead})
	s := start(t, pdp.Config{PolicyDir: dir})
	post(t, http.DefaultClient, s.main+authzen.PathEvaluation, aliceReads)
	post(t, http.DefaultClient, s.main+authzen.PathEvaluation, strings.Replace(aliceReads, "alice", "bob", 1))
	got := s.status(t, "")
	if got.State != pdp.StateWell || got.Advice != "" || got.Policies.Policies != 1 || got.Policies.Revision == "" || got.Policies.Since.IsZero() {
		t.Errorf("%+v", got)
	}
	var sum rates.Point
	for _, p := range got.Rates {
		sum.Allowed, sum.Denied, sum.Errors = sum.Allowed+p.Allowed, sum.Denied+p.Denied, sum.Errors+p.Errors
	}
	if len(got.Rates) != 60 || sum.Allowed != 1 || sum.Denied != 1 || sum.Errors != 0 || got.Rates[59].P99 == 0 && got.Rates[58].P99 == 0 {
		t.Errorf("%d points, together %+v", len(got.Rates), sum)
	}
	if got.Log.Size < 3 || *got.InFlight != 0 || got.Waiting != 0 || got.Shadow != nil {
		t.Errorf("%+v", got)
	}
	before := got.Policies.Revision
	writeFile(t, filepath.Join(dir, "a.cedar"), aliceMayRead+"\npermit(principal, action, resource) when { context.x == \"1 };")
	s.reload(t)
	got = s.status(t, "")
	want := faults.List{{File: "a.cedar", Line: 2, Column: 57}}
	if diff := cmp.Diff(want, got.Policies.Faults, cmpopts.IgnoreFields(faults.Fault{}, "Message", "Hint")); diff != "" || got.State != pdp.StateStale || got.Advice == "" || got.Policies.Revision != before {
		t.Errorf("%+v\nfaults (-want +got):\n%s", got, diff)
	}
	writeFile(t, filepath.Join(dir, "a.cedar"), allMayRead)
	s.reload(t)
	if got = s.status(t, ""); got.State != pdp.StateWell || got.Policies.Faults != nil || got.Policies.Revision == before {
		t.Errorf("%+v", got)
	}
}

// The status counts the decisions that the shadow policies would have changed, what widens first.
func TestStatusOfTheShadow(t *testing.T) {
	shadow := storeDir(t, map[string]string{"a.cedar": allMayRead})
	s := start(t, pdp.Config{PolicyDir: storeDir(t, map[string]string{"a.cedar": aliceMayRead}), ShadowDir: shadow})
	for _, who := range []string{"alice", "bob", "bob"} {
		post(t, http.DefaultClient, s.main+authzen.PathEvaluation, strings.Replace(aliceReads, "alice", who, 1))
	}
	got := s.status(t, "")
	if got.Changes == nil || got.Changes.Compared != 3 || len(got.Changes.Changes) != 1 || got.Shadow.Revision == "" {
		t.Fatalf("%+v", got.Changes)
	}
	row := got.Changes.Changes[0]
	if row.Effect != replay.EffectAllows || row.Policy != "read-all" || row.Subject != "user::bob" || row.Count != 2 || len(row.Examples) != 2 {
		t.Errorf("%+v", row)
	}
	writeFile(t, filepath.Join(shadow, "a.cedar"), aliceMayRead)
	s.reload(t)
	if got := s.status(t, "").Changes; got != nil {
		t.Errorf("the changes of a former shadow are %+v", got)
	}
}

// A caller of some tenants learns nothing of the others: neither their names, nor how many policies
// they have, nor their faults.
func TestStatusIsCutByTenant(t *testing.T) {
	globex := `@id("globex-1") permit(principal, action, resource); @id("globex-2") permit(principal, action, resource);`
	dir := storeDir(t, map[string]string{"a.cedar": aliceMayRead, "tenants/acme/a.cedar": allMayRead, "tenants/globex/g.cedar": globex})
	key := pdp.APIKey{ID: "op", SHA256: digest("k-acme"), Grant: pdp.Grant{Tenants: []string{"acme"}, Scopes: []pdp.Scope{pdp.ScopeAdmin}}}
	all := pdp.APIKey{ID: "all", SHA256: digest("k-all"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeAdmin}}}
	s := start(t, pdp.Config{PolicyDir: dir, Auth: pdp.Auth{APIKeys: []pdp.APIKey{key, all}}})
	writeFile(t, filepath.Join(dir, "tenants/globex/g.cedar"), "permit(")
	askAs(t, "k-all", "POST", s.admin+pdp.PathReload, "", nil)
	if got := s.status(t, "k-all"); got.State != pdp.StateStale || len(got.Policies.Faults) == 0 || !slices.Equal(got.Policies.Tenants, []string{"acme", "globex"}) {
		t.Fatalf("%+v", got)
	}
	got := s.status(t, "k-acme")
	if got.State != pdp.StateWell || got.Policies.Problem != "" || got.Policies.Policies != 2 || !slices.Equal(got.Policies.Tenants, []string{"acme"}) {
		t.Errorf("%+v", got.Policies)
	}
	if !got.Policies.Since.IsZero() || !got.Policies.Attempt.IsZero() {
		t.Errorf("the times of another tenant's change are told: %+v", got.Policies)
	}
	writeFile(t, filepath.Join(dir, "tenants/acme/a.cedar"), "permit(")
	askAs(t, "k-all", "POST", s.admin+pdp.PathReload, "", nil)
	got = s.status(t, "k-acme")
	if got.State != pdp.StateStale || len(got.Policies.Faults) == 0 || strings.Contains(got.Policies.Problem, "globex") {
		t.Errorf("%+v", got.Policies)
	}
	for _, fault := range got.Policies.Faults {
		if !strings.HasPrefix(fault.File, "tenants/acme/") {
			t.Errorf("the fault %v is shown to acme", fault)
		}
	}
}

// A change of one tenant that is not in force makes the service stale for this tenant and for who sees all
// tenants, and for nobody else: a fault as well as a loss of files that looks like an accident.
func TestStaleIsCutByTenant(t *testing.T) {
	for name, text := range map[string]string{"a fault": "permit(", "a loss": "[]"} {
		t.Run(name, func(t *testing.T) {
			file := map[string]string{"a fault": "g.cedar", "a loss": "entities.json"}[name]
			dir := storeDir(t, map[string]string{"a.cedar": aliceMayRead, "tenants/acme/a.cedar": allMayRead, "tenants/globex/g.cedar": allMayRead, "tenants/globex/entities.json": `[{"uid":{"type":"user","id":"x"},"attrs":{},"parents":[]}]`})
			auth := operatorKeys()
			auth.APIKeys = append(auth.APIKeys, pdp.APIKey{ID: "globex", SHA256: digest("k-globex"), Grant: pdp.Grant{Tenants: []string{"globex"}, Scopes: []pdp.Scope{pdp.ScopeAdmin}}})
			s := start(t, pdp.Config{PolicyDir: dir, Auth: auth})
			writeFile(t, filepath.Join(dir, "tenants/globex", file), text)
			askAs(t, "k-all", "POST", s.admin+pdp.PathReload, "", nil)
			for key, stale := range map[string]bool{"": false, "k-pep": false, "k-acme": false, "k-globex": true, "k-all": true} {
				_, body, err := send(t.Context(), &http.Client{Transport: bearer(key)}, "GET", s.admin+"/readyz?verbose", "")
				if err != nil || strings.HasPrefix(body, "stale\n") != stale || strings.Contains(body, "\nrefused ") != stale {
					t.Errorf("readiness to key %q: %s %v", key, body, err)
				}
				if dated := strings.Contains(body, "Z\n"); dated != (key == "k-all") {
					t.Errorf("readiness to key %q has times of all tenants' changes: %t, in %s", key, dated, body)
				}
				if key == "" || key == "k-pep" {
					continue
				}
				if got := s.status(t, key); (got.State == pdp.StateStale) != stale || got.Policies.Stale != stale || !stale && got.Policies.Problem != "" {
					t.Errorf("status to key %q: %+v", key, got)
				}
			}
		})
	}
}

// What the status says of the last hour costs a decision no allocation.
func TestCountingDecisionsAllocatesNothing(t *testing.T) {
	count, err := pdp.NewCounter()
	if err != nil {
		t.Fatal(err)
	}
	e := decisionlog.Entry{Time: time.Now(), Kind: decisionlog.KindEvaluation, Result: &decisionlog.Result{Decision: true, Policies: []string{"a"}}}
	if n := testing.AllocsPerRun(1000, func() { count(&e) }); n != 0 {
		t.Errorf("a decision allocates %v times more", n)
	}
}
