package approval_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// standing lists the approvals that can be used, by id and uses left.
func (d *desk) standing(t testing.TB, tenants ...string) (all []string) {
	t.Helper()
	for one, err := range d.Standing(t.Context(), tenants, "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %d", one.Items[one.Item].Approval.ID, one.UsesLeft))
	}
	return all
}

// An approval is in the list as long as it can be used: until it is used up, is revoked or ends. The one
// that ends first is the first.
func TestStandingApprovals(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Uses = 2 }))
	if got := d.standing(t); len(got) > 0 {
		t.Fatalf("at first: %v", got)
	}
	d.submit(t, push)
	first := d.approve(t, push)
	d.pass(time.Minute)
	second := d.approve(t, push)
	check := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, d.standing(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if diff := cmp.Diff(want, d.standing(t, "acme")); diff != "" {
			t.Errorf("%s, of the tenant (-want +got):\n%s", when, diff)
		}
		if got := d.standing(t, "globex"); len(got) > 0 {
			t.Errorf("%s, of another tenant: %v", when, got)
		}
	}
	check("two", first.ID+" 2", second.ID+" 2")
	use := func(id, request string) {
		t.Helper()
		status := d.again(t, push, map[string]string{"id": id})
		if status.Consume == nil {
			t.Fatalf("%+v", status)
		}
		if err := status.Consume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	use(first.ID, "1")
	check("a use", first.ID+" 1", second.ID+" 2")
	d.rewriteFile(t, func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("standing")) }) // as a version without the list would
	check("a file of another version", first.ID+" 1", second.ID+" 2")
	use(first.ID, "2")
	check("used up", second.ID+" 2")
	if _, err := d.Revoke(t.Context(), second.ID, approver("carol"), ""); err != nil {
		t.Fatal(err)
	}
	check("revoked")
	third := d.approve(t, push)
	d.pass(14 * time.Minute)
	check("before the end", third.ID+" 2")
	d.pass(time.Minute)
	check("at the end")
}

// Pages of standing approvals continue where the previous one ended.
func TestStandingApprovalsArePaged(t *testing.T) {
	d := open(t, plain)
	var want []string
	for range 230 {
		want = append(want, d.approve(t, push).ID)
	}
	slices.Sort(want)
	var got []string
	for token := ""; ; {
		n := 0
		for one, err := range d.Standing(t.Context(), nil, token) {
			if err != nil {
				t.Fatal(err)
			}
			got, token = append(got, one.Items[one.Item].Approval.ID), one.Token
			if n++; n == 40 {
				break
			}
		}
		if n < 40 {
			break
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A list for a person has the requests on which the person may decide, or the others. Policies are asked
// once about each, as long as neither they nor the request change, and nothing is recorded.
func TestListForAPerson(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Quorum = 2 }))
	asked, revision := 0, "sha256:1"
	d.config.Revision = func(string) string { return revision }
	d.config.WouldApprove = func(ctx context.Context, check approval.Check) (bool, error) {
		asked++
		return d.may(ctx, check)
	}
	d.reopen(t)
	other, own := d.submit(t, push).Task.ID, d.submit(t, edit(t, `"agent-7"`, `"carol"`)).Task.ID
	list := func(others bool, by approval.Approver) (ids []string) {
		t.Helper()
		for _, r := range d.list(t, approval.Query{Status: authzen.TaskPending, For: &by, Others: others}) {
			if r.Request != nil {
				ids = append(ids, r.ID)
			}
		}
		return ids
	}
	before := d.events(t)
	for range 3 {
		if diff := cmp.Diff([]string{other}, list(false, approver("carol"))); diff != "" {
			t.Errorf("for carol (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{own}, list(true, approver("carol"))); diff != "" {
			t.Errorf("for others (-want +got):\n%s", diff)
		}
	}
	if asked != 2 { // approve and deny, about the request of the other person: one of two cannot delegate
		t.Errorf("policies were asked %d times", asked)
	}
	if got := list(false, entity("user", "carol")); len(got) > 0 {
		t.Errorf("for somebody whom no policy permits: %v", got)
	}
	if d.events(t) != before {
		t.Errorf("the log became %s", d.events(t))
	}
	for name, change := range map[string]func(){
		"other policies": func() { revision = "sha256:2" },
		"time":           func() { d.pass(time.Minute) },
	} {
		was := asked
		change()
		if list(false, approver("carol")); asked == was {
			t.Errorf("after %s policies were not asked again", name)
		}
	}
	if _, err := d.Decide(t.Context(), other, approver("carol"), approves); err != nil {
		t.Fatal(err)
	}
	if got := list(false, approver("carol")); len(got) > 0 {
		t.Errorf("after the vote: %v", got)
	}
}

// The list of what is decided has the newest first.
func TestListOfDecided(t *testing.T) {
	d := open(t, plain)
	var want []string
	for range 3 {
		id := d.submit(t, push).Task.ID
		if _, err := d.Decide(t.Context(), id, approver("carol"), denies); err != nil {
			t.Fatal(err)
		}
		want = append([]string{id}, want...)
		d.pass(time.Second)
	}
	d.submit(t, push)
	if diff := cmp.Diff(want, tasks(d.list(t, approval.Query{Decided: true}))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
