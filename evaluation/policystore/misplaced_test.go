package policystore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/policystore"
)

// Policies are read below the root and below a tenant's folder, however deep.
func TestFoldersAreRead(t *testing.T) {
	want := texts{
		"a.cedar":                             policy(1),
		"forbids/lockdown.cedar":              policy(2),
		"hr/access/entities/b.cedar":          policy(3),
		"tenants/acme/forbids/lockdown.cedar": policy(4),
		"tenants/acme/a/b/c/d.cedar":          policy(5),
	}
	dir := newStore(t, want)
	fill(t, dir, texts{"forbids/README.md": "x", "forbids/.old/c.cedar": "x", "tests/config.yaml": "x", "tenants/acme/tests/c.yaml": "x"})
	loads(t, dir, want)
}

// Access documents are read from access/ of the root and of tenants, and nowhere else.
func TestAccessDocuments(t *testing.T) {
	want := texts{"a.cedar": policy(1), "access/files.json": "{}", "access/crm-2.json": "{}", "tenants/acme/access/files.json": "{}"}
	dir := newStore(t, want)
	fill(t, dir, texts{"access/README.md": "x", "access/files.json~": "x", "access/.files.json.swp": "x", "access/files.json.bak": "x", "hr/access/files.json": "x"})
	loads(t, dir, want)
}

// What looks as if it were read, and is not, is a fault with a hint.
func TestMisplaced(t *testing.T) {
	for name, want := range map[string]string{
		"data.Cedar":                   "is not read: the names of policy files end with .cedar (did you mean data.cedar?)",
		"data.CEDAR":                   "is not read: the names of policy files end with .cedar (did you mean data.cedar?)",
		"data.ceder":                   "is not read: the names of policy files end with .cedar (did you mean data.cedar?)",
		"data.cedar.txt":               "is not read: the names of policy files end with .cedar (did you mean data.cedar?)",
		"forbids/data.Cedar":           "is not read: the names of policy files end with .cedar (did you mean data.cedar?)",
		"access/data.cedar":            "policies are not read in access/ (move it to the root of the store, or to a folder of another name)",
		"entities/deep/data.cedar":     "policies are not read in entities/deep/ (move it to the root of the store, or to a folder of another name)",
		"tenants/acme/access/a.cedar":  "policies are not read in tenants/acme/access/ (move it to the root of the store, or to a folder of another name)",
		"entities/all.json":            "is not read (entities are in entities.json)",
		"acme.cedarschema":             "is not read (did you mean schema.cedarschema?)",
		"Schema.cedarschema":           "is not read (did you mean schema.cedarschema?)",
		"policies.cedarschema.json":    "is not read (did you mean schema.json?)",
		"schemas.json":                 "is not read (did you mean schema.json?)",
		"config.yml":                   "is not read (did you mean config.yaml?)",
		"Config.yaml":                  "is not read (did you mean config.yaml?)",
		"confg.yaml":                   "is not read (did you mean config.yaml?)",
		"entities-all.json":            "is not read (did you mean entities.json?)",
		"Entities.json":                "is not read (did you mean entities.json?)",
		"manifst.json":                 "is not read (did you mean manifest.json?)",
		"sub/schema.cedarschema":       "is not read in a folder of policies (move it to schema.cedarschema)",
		"sub/config.yaml":              "is not read in a folder of policies (move it to config.yaml)",
		"tenants/acme/sub/config.yaml": "is not read in a folder of policies (move it to tenants/acme/config.yaml)",
		"tenants/acme/config.yml":      "is not read (did you mean config.yaml?)",
		"access/files.jsn":             "is not read: the names of access documents end with .json (did you mean files.json?)",
		"access/files.JSON":            "is not read: the names of access documents end with .json (did you mean files.json?)",
		"access/files.yaml":            "is not read: the names of access documents end with .json (did you mean files.json?)",
		"access/files":                 "is not read: the names of access documents end with .json (did you mean files.json?)",
		"access/entities.json":         "is not read as an access document (move it to the root of the store, or choose another name and state the server in it)",
		"access/my files.json":         `cannot be the name of an access document (use letters, digits, ".", - and _, and state the server in it)`,
		"access/f\u0456les.json":       `cannot be the name of an access document (use letters, digits, ".", - and _, and state the server in it)`,
		"tenants/acme/access/a.jsonc":  "is not read: the names of access documents end with .json (did you mean a.json?)",
		"tenants/guard.cedar":          "is not in the directory of a tenant (move it to the folder of one, as in tenants/NAME/guard.cedar)",
	} {
		isMisplaced(t, name, name, want)
	}
	for name, folder := range map[string]string{
		"tenant/acme/a.cedar":        "tenant",
		"Tenants/acme/a.cedar":       "Tenants",
		"sub/tenants/acme/a.cedar":   "sub/tenants",
		"tenants/acme/tenants/a.txt": "tenants/acme/tenants",
	} {
		isMisplaced(t, name, folder, "a folder of this name would be the root's, not tenants' (the folder of tenants is tenants/ in the root of the store)")
	}
	isMisplaced(t, "access/deep/files.json", "access/deep", "is not read (access documents are in access/ itself)")
	isMisplaced(t, "acess/files.json", "acess", "is nearly the name of a folder with a meaning (did you mean access/?)")
	isMisplaced(t, "tenants/acme/Access/a.json", "tenants/acme/Access", "is nearly the name of a folder with a meaning (did you mean tenants/acme/access/?)")
	isMisplaced(t, "tenants/Acme/a.cedar", "tenants/Acme", `"Acme" cannot be the name of a tenant (use lower-case letters, digits, - and _)`)
	isMisplaced(t, "test/a.yaml", "test", "is not read (tests are in tests/)")
	isMisplaced(t, "Tests/a.yaml", "Tests", "is not read (tests are in tests/)")
	isMisplaced(t, "tenants/acme/test/a.yaml", "tenants/acme/test", "is not read (tests are in tenants/acme/tests/)")
	isMisplaced(t, "sub/tests/a.cedar", "sub/tests/a.cedar", "policies are not read in sub/tests/ (move it to the root of the store, or to a folder of another name)")
}

// A name near one that is read is a fault; a backup, or another ordinary name, is
// not.
func TestNearMisses(t *testing.T) {
	policySuffix := "is not read: the names of policy files end with .cedar (did you mean guard.cedar?)"
	for name, want := range map[string]string{
		"guard.cdear":              policySuffix,
		"guard.cedarpolicy":        policySuffix,
		"guard.cedar ":             policySuffix,
		"tenants/acme/guard.cdear": policySuffix,
		"schema.cedarscheme":       "is not read (did you mean schema.cedarschema?)",
		"schema.cedarshema":        "is not read (did you mean schema.cedarschema?)",
		"schema.cedarschma":        "is not read (did you mean schema.cedarschema?)",
		"guard.ceder":              policySuffix,
		"guard.ceadr":              policySuffix,
		"confg.yaml":               "is not read (did you mean config.yaml?)",
		"configs.yaml":             "is not read (did you mean config.yaml?)",
		"entity.json":              "is not read (did you mean entities.json?)",
		"entities.jsonl":           "is not read (did you mean entities.json?)",
		"manifest.jsn":             "is not read (did you mean manifest.json?)",
		"entities.jsn":             "is not read (did you mean entities.json?)",
		"config.ymal":              "is not read (did you mean config.yaml?)",
		"tests/a.cedar":            "policies are not read in tests/ (move it to the root of the store, or to a folder of another name)",
	} {
		isMisplaced(t, name, name, want)
	}
	for _, folder := range []string{"tets", "testss", "tset", "tetss"} {
		isMisplaced(t, folder+"/a.yaml", folder, "is nearly the name of a folder with a meaning (did you mean tests/?)")
	}
	for _, name := range []string{
		"a.cedar~", "a.cedar.swp", "a.cedar.bak", "a.cedar.orig", "#a.cedar#", ".a.cedar", "README.md", "notes.txt", "Makefile",
		"test.md", "ca.cer", "config.toml", "schema.js", "docs/a.md", "text/a.md", "texts/a.md", "entries/a.md", "identities/a.md", "tests/config.yaml",
		"config.html", "manifest.jsonl", "press.cider", "tests2/a.yaml",
	} {
		dir := newStore(t, texts{"b.cedar": policy(1), name: "x"})
		loads(t, dir, texts{"b.cedar": policy(1)})
	}
}

// isMisplaced checks what is said of a file beside one policy, and that the
// policy is read all the same.
func isMisplaced(t *testing.T, name, at, want string) {
	t.Helper()
	store := newStore(t, texts{"a.cedar": policy(1), name: policy(2)})
	archive, err := policystore.Read(os.DirFS(store))
	var found faults.List
	if !errors.As(err, &found) || len(found) != 1 {
		t.Errorf("%s: the error is %v", name, err)
		return
	}
	if diff := cmp.Diff(at+": "+want, found[0].Error()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
	if diff := cmp.Diff(texts{"a.cedar": policy(1)}, textsOf(archive)); diff != "" {
		t.Errorf("%s: archive (-want +got):\n%s", name, diff)
	}
	state, err := policystore.New(store, policystore.Config{}).Read()
	if strings.HasPrefix(at, "tenants/acme/") {
		if err != nil || len(state.TenantFaults) != 1 || state.TenantFaults[0] != found[0] {
			t.Errorf("%s: what is to be served is read with %v, and %v", name, err, state)
		}
	} else if !errors.As(err, &found) {
		t.Errorf("%s: what is to be served is read with %v", name, err)
	}
}

// A symbolic link that is not followed is explained, and one that goes round
// comes to an end.
func TestFoldersByLinks(t *testing.T) {
	dir := newStore(t, texts{"..data/sub/a.cedar": policy(1), "b.cedar": policy(2)})
	link(t, dir, map[string]string{"sub": "..data/sub"})
	loads(t, dir, texts{"sub/a.cedar": policy(1), "b.cedar": policy(2)})

	for name, test := range map[string]struct{ target, want string }{
		"a.cedar": {"/srv/a.cedar", "a.cedar: path escapes from the policy store: the symbolic link to /srv/a.cedar is absolute (make it relative, to what is in the store)"},
		"forbids": {"/srv/forbids", "forbids: path escapes from the policy store: the symbolic link to /srv/forbids is absolute (make it relative, to what is in the store)"},
		"round":   {".", "round: the symbolic link leads to a folder that it is in"},
	} {
		dir := newStore(t, texts{"b.cedar": policy(2)})
		link(t, dir, map[string]string{name: test.target})
		_, err := policystore.Load(dir)
		if err == nil || !says(test.want)(err) {
			t.Errorf("%s to %s: the error is %v", name, test.target, err)
		}
	}
	nothing := newStore(t, texts{"b.cedar": policy(2)})
	must(t, os.Symlink("/usr/share/readme.md", filepath.Join(nothing, "README.md")))
	loads(t, nothing, texts{"b.cedar": policy(2)})
}
