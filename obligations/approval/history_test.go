package approval_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Decisions on the same subject, action and resource count for 30 days, and those on others never.
func TestEarlierDecisions(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Quorum = 2 }))
	decide := func(text string, decisions ...approval.Decision) {
		t.Helper()
		id := d.submit(t, text).Task.ID
		for i, decision := range decisions {
			if _, err := d.Decide(t.Context(), id, approver([]string{"ann", "ben"}[i]), decision); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(when string, want approval.Earlier) {
		t.Helper()
		r, err := d.Request(t.Context(), d.submit(t, push).Task.ID)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Earlier(t.Context(), r)
		if diff := cmp.Diff([]approval.Earlier{want}, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", when, err, diff)
		}
	}
	check("at first", approval.Earlier{})
	decide(push, approves)
	check("one vote of two", approval.Earlier{})
	decide(push, approves, approves)
	decide(push, denies)
	decide(edit(t, `"agent-7"`, `"agent-8"`), denies)
	decide(edit(t, `push_code`, `pull_code`), denies)
	check("decided", approval.Earlier{Approved: 1, Denied: 1})
	d.pass(24 * time.Hour)
	decide(push, denies)
	d.reopen(t)
	check("a day later", approval.Earlier{Approved: 1, Denied: 2})
	d.pass(29 * 24 * time.Hour)
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("30 days later", approval.Earlier{Denied: 1})
	d.pass(24 * time.Hour)
	check("31 days later", approval.Earlier{})
}

// Nobody approves what pins policies that are no longer active: no request could use the approval. A denial
// counts.
func TestOutdatedRequestCannotBeApproved(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.PinRevision = true }))
	revision := "sha256:1"
	d.config.Revision = func(string) string { return revision }
	d.config.WouldApprove = d.may
	d.reopen(t)
	first, second := d.submit(t, push).Task.ID, d.submit(t, push).Task.ID
	if _, err := d.Decide(t.Context(), first, approver("carol"), approves); err != nil {
		t.Fatal(err)
	}
	revision = "sha256:2"
	r, err := d.Request(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := d.Allowed(t.Context(), r, approver("carol"))
	if diff := cmp.Diff(approval.Allowed{May: []string{"deny", "delegate"}, WhyNot: "outdated"}, allowed); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := d.Decide(t.Context(), second, approver("carol"), approves); !errors.Is(err, approval.ErrTaskState) {
		t.Errorf("approve: %v", err)
	}
	if _, err := d.Decide(t.Context(), second, approver("carol"), denies); err != nil {
		t.Errorf("deny: %v", err)
	}
}
