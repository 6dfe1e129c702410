package approval_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// What a person can do is what the service then lets them do, and asking records nothing.
func TestAllowed(t *testing.T) {
	all := []string{"approve", "deny", "delegate"}
	delegate := approval.Decision{Decision: "delegate", To: &approval.Person{Type: "approver", ID: "erin"}}
	for _, test := range []struct {
		name   string
		by     approval.Approver
		quorum int
		before func(*testing.T, *desk, string)
		may    []string
		why    string
	}{
		{"an approver", approver("carol"), 1, nil, all, ""},
		{"somebody whom no policy permits", entity("user", "carol"), 1, nil, nil, "not_permitted"},
		{"the requester", approver("agent-7"), 1, nil, nil, "own_request"},
		{"the requester by another name", approval.Approver{Subject: entity("approver", "x").Subject, Names: []string{"AGENT-7"}}, 1, nil, nil, "own_request"},
		{"the client of the requester", approval.Approver{Subject: entity("approver", "x").Subject, Clients: []string{"gateway-1"}}, 1, nil, nil, "own_request"},
		{"the first of two", approver("carol"), 2, nil, []string{"approve", "deny"}, ""},
		{"one of two who has voted", approver("carol"), 2, vote("carol", approves), nil, "voted"},
		{"the second of two", approver("dave"), 2, vote("carol", approves), all, ""},
		{"after a denial", approver("carol"), 1, vote("dave", denies), nil, "decided"},
		{"after an approval", approver("carol"), 1, vote("dave", approves), []string{"revoke"}, "decided"},
		{"after an approval, without a permit", entity("user", "carol"), 1, vote("dave", approves), nil, "decided"},
		{"after the time", approver("carol"), 1, func(_ *testing.T, d *desk, _ string) { d.pass(2 * time.Hour) }, nil, "expired"},
		{"the delegate", approver("erin"), 1, vote("carol", delegate), all, ""},
		{"who has delegated", approver("carol"), 1, vote("carol", delegate), nil, "delegated"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Quorum = test.quorum }))
			asked := 0
			d.config.WouldApprove = func(ctx context.Context, check approval.Check) (bool, error) {
				asked++
				return d.may(ctx, check)
			}
			d.reopen(t)
			id := d.submit(t, push).Task.ID
			if test.before != nil {
				test.before(t, d, id)
			}
			before := d.events(t)
			r, err := d.Request(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			allowed, err := d.Allowed(t.Context(), r, test.by)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(approval.Allowed{May: test.may, WhyNot: test.why}, allowed); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := d.events(t); got != before {
				t.Errorf("the log became %s", got)
			}
			_, err = d.Decide(t.Context(), id, test.by, denies)
			if got := err == nil; got != slices.Contains(test.may, "deny") {
				t.Errorf("deny: %v", err)
			}
		})
	}
}

// vote returns a step that decides a request.
func vote(by string, decision approval.Decision) func(*testing.T, *desk, string) {
	return func(t *testing.T, d *desk, id string) {
		t.Helper()
		if _, err := d.Decide(t.Context(), id, approver(by), decision); err != nil {
			t.Fatal(err)
		}
	}
}

// If the policies' schema does not allow the question, nobody can decide.
func TestAllowedUndecidable(t *testing.T) {
	d := open(t, plain)
	d.config.WouldApprove = func(context.Context, approval.Check) (bool, error) {
		return false, authzen.Invalid("/resource/properties/resource/type", "must be dataset")
	}
	d.reopen(t)
	r, err := d.Request(t.Context(), d.submit(t, push).Task.ID)
	if err != nil {
		t.Fatal(err)
	}
	if allowed, err := d.Allowed(t.Context(), r, approver("carol")); err != nil || allowed.WhyNot != "undecidable" || allowed.May != nil {
		t.Errorf("%+v, %v", allowed, err)
	}
}
