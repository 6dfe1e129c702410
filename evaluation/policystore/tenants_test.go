package policystore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/policystore"
)

func TestTenantsAreRead(t *testing.T) {
	want := texts{
		"a.cedar":                          policy(1),
		"tenants/acme/b.cedar":             policy(2),
		"tenants/acme/sub/deep/d.cedar":    policy(4),
		"sub/deep/e.cedar":                 policy(5),
		"tenants/acme/schema.json":         "{}",
		"tenants/acme/entities.json":       "[]",
		"tenants/0-zeta_9/config.yaml":     "",
		"tenants/" + long(63) + "/c.cedar": policy(3),
	}
	dir := newStore(t, want)
	fill(t, dir, texts{
		"README.md":                  "not a policy",
		".git/x.cedar":               "hidden",
		".#a.cedar":                  "hidden",
		"tests/a.yaml":               "a test",
		"tenants/README.md":          "not a policy",
		"tenants/.git/x.cedar":       "hidden",
		"tenants/acme/.#b.cedar":     "hidden",
		"tenants/acme/manifest.json": "not a manifest",
		"tenants/acme/tests/ok.yaml": "a test",
	})
	must(t, os.Symlink("nobody@nowhere.1", filepath.Join(dir, ".#b.cedar")))

	archive, err := policystore.Load(dir)
	must(t, err)
	if diff := cmp.Diff(want, textsOf(archive)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

func long(n int) string { return strings.Repeat("x", n) }

// A tenant whose files would silently be left out is an error.
func TestTenantsMisplaced(t *testing.T) {
	for _, name := range []string{
		"tenants/Acme/a.cedar",
		"tenants/-acme/a.cedar",
		"tenants/acme.eu/a.cedar",
		"tenants/" + long(64) + "/a.cedar",
		"tenants/no one/readme",
		"tenants/guard.cedar",
		"tenants/config.yaml",
	} {
		dir := newStore(t, texts{"a.cedar": policy(1), name: policy(2)})
		_, err := policystore.Load(dir)
		if at := strings.Join(strings.Split(name, "/")[:2], "/"); err == nil || !strings.Contains(err.Error(), at) {
			t.Errorf("%s: the error is %v, which does not name %s", name, err, at)
		}
	}
}

func TestTenantsNoDirectory(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": policy(1), "tenants": "acme"})
	if _, err := policystore.Load(dir); err == nil || !strings.Contains(err.Error(), "tenants: is not a directory") {
		t.Errorf("the error is %v", err)
	}
}

// All that is wrong is said at once.
func TestReadReportsEverything(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": policy(1), "tenants/A/a.cedar": "", "tenants/b.cedar": ""})
	must(t, os.Mkdir(filepath.Join(dir, "c.cedar"), 0o700))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "d.cedar")))
	_, err := policystore.Load(dir)
	for _, name := range []string{"tenants/A", "tenants/b.cedar", "c.cedar", "d.cedar"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}
