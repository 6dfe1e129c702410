package revisions_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/revisions"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

func contents(t *testing.T, files snapshot.Archive) *revisions.Contents {
	t.Helper()
	s, err := snapshot.CompileStore(files)
	if err != nil {
		t.Fatal(err)
	}
	return revisions.Of(s)
}

const (
	root  = `@id("a") @reason_user("no") permit(principal, action, resource);`
	other = `@id("a") forbid(principal, action, resource);`
)

// Contents have each file and each policy once, although the root's policies are every tenant's.
func TestContents(t *testing.T) {
	got := contents(t, snapshot.Archive{
		"a.cedar": []byte(root), "tenants/acme/b.cedar": []byte("\n" + `@id("b") permit(principal, action, resource);`), "tenants/globex/c.cedar": []byte(`@id("b") forbid(principal, action, resource);`),
	})
	var rows []string
	for _, p := range got.Policies {
		rows = append(rows, strings.Join([]string{p.Tenant, p.File, p.ID, p.Effect, p.Annotations["reason_user"], p.Text}, "|"))
	}
	want := []string{
		"|a.cedar|a|permit|no|" + root,
		`acme|tenants/acme/b.cedar|b|permit||@id("b") permit(principal, action, resource);`,
		`globex|tenants/globex/c.cedar|b|forbid||@id("b") forbid(principal, action, resource);`,
	}
	if diff := cmp.Diff(want, rows); diff != "" || got.Policies[1].Line != 2 {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
	if len(got.Files) != 3 || got.Files[0].Text != root || got.Files[0].Bytes != len(root) {
		t.Errorf("files %+v", got.Files)
	}
	acme := got.Only(func(file string) bool { return !strings.HasPrefix(file, "tenants/globex/") })
	if len(acme.Files) != 2 || len(acme.Policies) != 2 {
		t.Errorf("without globex: %+v", acme)
	}
}

// A long text is left out and its length told.
func TestLongTextsAreLeftOut(t *testing.T) {
	long := "[" + strings.Repeat(" ", revisions.MaxText) + "]"
	got := contents(t, snapshot.Archive{"a.cedar": []byte(root), "entities.json": []byte(long)})
	if f := got.Files[1]; !f.LeftOut || f.Text != "" || f.Bytes != len(long) {
		t.Errorf("%q is left out: %t, %d bytes", f.Name, f.LeftOut, f.Bytes)
	}
}

// Differences are told by policy and by file: what was added, removed and changed.
func TestCompare(t *testing.T) {
	before := contents(t, snapshot.Archive{"a.cedar": []byte(root + `@id("gone") permit(principal, action, resource);`), "config.yaml": []byte("{}"), "same.cedar": []byte(`@id("same") permit(principal, action, resource);`)})
	after := contents(t, snapshot.Archive{"a.cedar": []byte(other), "new.cedar": []byte(`@id("new") permit(principal, action, resource);`), "same.cedar": []byte("// moved\n" + `@id("same") permit(principal, action, resource);`)})
	got := revisions.Compare(before, after)
	var rows []string
	for _, p := range got.Policies {
		rows = append(rows, string(p.Change)+" "+p.ID)
	}
	for _, f := range got.Files {
		rows = append(rows, string(f.Change)+" "+f.Name)
	}
	want := []string{"changed a", "removed gone", "added new", "changed a.cedar", "removed config.yaml", "added new.cedar", "changed same.cedar"}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if a := got.Policies[0]; a.Before.Effect != "permit" || a.After.Effect != "forbid" || a.Before.Text != root || a.After.Text != other {
		t.Errorf("%+v", a)
	}
	if same := revisions.Compare(before, before); len(same.Policies)+len(same.Files) != 0 {
		t.Errorf("%+v", same)
	}
}
