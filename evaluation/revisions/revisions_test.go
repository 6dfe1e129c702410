package revisions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// marked writes a line as a person reads it: the sign, the number, and what differs in brackets.
func marked(lines []revisions.Line) (all []string) {
	for _, l := range lines {
		sign, number := " ", l.After
		switch l.Change {
		case revisions.Added:
			sign = "+"
		case revisions.Removed:
			sign, number = "-", l.Before
		}
		text := ""
		for _, p := range l.Parts {
			if p.Changed {
				p.Text = "[" + p.Text + "]"
			}
			text += p.Text
		}
		all = append(all, fmt.Sprintf("%s%d %s", sign, number, text))
	}
	return all
}

// A changed policy has the lines that differ, by their numbers in the files, with the words that differ.
func TestLinesOfAChangedPolicy(t *testing.T) {
	const head = "// one\n// two\n"
	before := contents(t, snapshot.Archive{"a.cedar": []byte(head + `@id("a")
permit (
  principal in Role::"reader",
  action == Action::"read",
  resource
) when {
  resource.owner == "alice" &&
  context.hour > 8
};`)})
	after := contents(t, snapshot.Archive{"a.cedar": []byte(head + `@id("a")
permit (
  principal in Role::"writer",
  action == Action::"read",
  resource
) when {
  resource.owner == "alice" &&
  context.hour > 9 &&
  context.mfa
};`)})
	got := revisions.Compare(before, after).Policies[0]
	want := []string{
		` 3 @id("a")`, ` 4 permit (`,
		`-5   principal in Role::"[reader]",`, `+5   principal in Role::"[writer]",`,
		` 6   action == Action::"read",`, ` 7   resource`, ` 8 ) when {`, ` 9   resource.owner == "alice" &&`,
		`-10   context.hour > [8]`, `+10   context.hour > [9 &&]`, `+11   [context.mfa]`, ` 12 };`,
	}
	if diff := cmp.Diff(want, marked(got.Lines)); diff != "" || got.Left != 0 {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Lines that have little in common differ as a whole. Far lines of both texts are left out, and so are
// differences beyond a number. Files without policies have their lines as well.
func TestLinesOfAChangedFile(t *testing.T) {
	file := func(text string) *revisions.Contents {
		return contents(t, snapshot.Archive{"a.cedar": []byte(root), "config.yaml": []byte(text)})
	}
	lines := func(before, after string) revisions.FileChange {
		t.Helper()
		return revisions.Compare(file(before), file(after)).Files[0]
	}
	far := strings.Repeat("# same\n", 20)
	got := lines("on_policy_error: deny\n"+far, "clock: now\n"+far)
	if diff := cmp.Diff([]string{"-1 on_policy_error: deny", "+1 clock: now", " 2 # same", " 3 # same", " 4 # same"}, marked(got.Lines)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = lines("# a\n"+far+"# b\n", "# c\n"+far+"# d\n")
	if text := strings.Join(marked(got.Lines), "|"); len(got.Lines) != 10 || !strings.Contains(text, " 4 # same| 19 # same") {
		t.Errorf("%s", text)
	}
	got = lines("on_policy_error: deny\n", "on_policy_error: deny\n"+strings.Repeat("# new\n", 3000))
	if len(got.Lines) != 2000 || got.Left != 1001 {
		t.Errorf("%d lines, %d left", len(got.Lines), got.Left)
	}
	if got := lines("on_policy_error: deny", "on_policy_error: deny\n"); got.Lines != nil {
		t.Errorf("a line feed at the end: %v", marked(got.Lines))
	}
}

// Texts that have nothing in common, of the longest length, are compared in bounded time.
func TestLongTextsAreCompared(t *testing.T) {
	text := func(word string) string {
		var b strings.Builder
		for i := 0; b.Len() < revisions.MaxText-100; i++ {
			fmt.Fprintf(&b, "# %s%d is of %s, which nobody needs here\n", word, i*i%9973, word)
		}
		return b.String()
	}
	file := func(word string) *revisions.Contents {
		return contents(t, snapshot.Archive{"a.cedar": []byte(root), "config.yaml": []byte(text(word))})
	}
	before, after := file("a"), file("b")
	start := time.Now()
	if got := revisions.Compare(before, after).Files[0]; len(got.Lines) == 0 || got.Left == 0 {
		t.Errorf("%d lines", len(got.Lines))
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("two texts of 1 MiB are compared in %s", took)
	}
	t.Log(time.Since(start))
}
