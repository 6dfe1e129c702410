package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

func toPerson(id string) approval.Decision {
	return approval.Decision{Decision: "delegate", Comment: "on leave", To: &approval.Person{Type: "approver", ID: id}}
}

// Who received a delegation decides alone, and hands on at most three times in all.
func TestDelegation(t *testing.T) {
	d := open(t, plain)
	id := d.submit(t, push).Task.ID
	for i, step := range []struct {
		by       string
		decision approval.Decision
		want     error
	}{
		{"ann", toPerson("ben"), nil},
		{"ann", approves, approval.ErrIneligible},
		{"zoe", approval.Decision{Decision: "deny"}, approval.ErrIneligible},
		{"ann", toPerson("zoe"), approval.ErrIneligible},
		{"ben", toPerson("ann"), authzen.Invalid("/to", "has had item 0 before")},
		{"ben", toPerson("ANN"), authzen.Invalid("/to", "has had item 0 before")},
		{"ben", toPerson("ben"), authzen.Invalid("/to", "is the approver")},
		{"ben", toPerson("agent-7"), authzen.Invalid("/to", "is the requester, or acts for the requester")},
		{"ben", toPerson("gateway-1"), authzen.Invalid("/to", "is the requester, or acts for the requester")},
		{"ben", toPerson("cid"), nil},
		{"cid", toPerson("dan"), nil},
		{"dan", toPerson("eve"), approval.ErrTaskState},
		{"cid", approves, approval.ErrIneligible},
		{"dan", approves, nil},
	} {
		_, err := d.Decide(t.Context(), id, approver(step.by), step.decision)
		if !errors.Is(err, step.want) && (err == nil || step.want == nil || err.Error() != step.want.Error()) {
			t.Errorf("step %d: %v, want %v", i, err, step.want)
		}
	}
	r, err := d.Request(t.Context(), id)
	if err != nil || r.Status() != authzen.TaskApproved {
		t.Fatalf("%v, %v", r, err)
	}
	var chain []string
	for _, one := range r.Items[0].Delegations {
		chain = append(chain, fmt.Sprintf("%s>%s %s", one.From.ID, one.To.ID, one.Comment))
	}
	if got := strings.Join(chain, ", "); got != "ann>ben on leave, ben>cid on leave, cid>dan on leave" {
		t.Errorf("the chain is %s", got)
	}
	const want = "request/submit approval/delegate request/refuse request/refuse request/refuse approval/delegate approval/delegate request/refuse approval/approve"
	if got := d.events(t); got != want {
		t.Errorf("the log has %s, want %s", got, want)
	}
	if body := string(d.records[1].Body); !strings.Contains(body, `"approver":{"type":"approver","id":"ann"}`) || !strings.Contains(body, `"delegate":{"type":"approver","id":"ben"}`) {
		t.Errorf("the record of the delegation is %s", body)
	}
}

// Policies decide on a delegation, and see for whom it is and later who has it.
func TestPoliciesDecideOnDelegations(t *testing.T) {
	d := open(t, plain)
	var asked []string
	d.config.CanApprove = func(_ context.Context, check approval.Check) (bool, error) {
		about := string(check.Request.Resource.Properties)
		delegate := "nobody"
		if _, rest, found := strings.Cut(about, `"delegate":{"type":"approver","id":"`); found {
			delegate, _, _ = strings.Cut(rest, `"`)
		}
		asked = append(asked, fmt.Sprintf("%s %s %s", check.Request.Subject.ID, check.Request.Action.Name, delegate))
		return check.Request.Subject.ID != "mallory", nil
	}
	d.reopen(t)
	id := d.submit(t, push).Task.ID
	if _, err := d.Decide(t.Context(), id, approver("mallory"), toPerson("ben")); !errors.Is(err, approval.ErrIneligible) {
		t.Errorf("a delegation that policies deny: %v", err)
	}
	if _, err := d.Decide(t.Context(), id, approver("ann"), toPerson("ben")); err != nil {
		t.Fatal(err)
	}
	ben := approver("sub-of-ben")
	ben.Names = []string{"sub-of-ben", "ben"} // one person by two verified names
	if _, err := d.Decide(t.Context(), id, ben, approves); err != nil {
		t.Fatal(err)
	}
	const want = "mallory approval.delegate ben, ann approval.delegate ben, sub-of-ben approval.approve sub-of-ben"
	if got := strings.Join(asked, ", "); got != want {
		t.Errorf("policies were asked %s, want %s", got, want)
	}
}

// A malformed delegation changes nothing, and one person does not decide in place of several.
func TestDelegationIsRefused(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Quorum = 2 }))
	id := d.submit(t, push).Task.ID
	for _, decision := range []approval.Decision{
		{Decision: "delegate"},
		{Decision: "delegate", To: &approval.Person{Type: "approver"}},
		{Decision: "delegate", To: &approval.Person{ID: "ben"}},
		{Decision: "approve", To: &approval.Person{Type: "approver", ID: "ben"}},
		{Decision: "deny", To: &approval.Person{Type: "approver", ID: "ben"}},
		{Decision: "delegate", To: &approval.Person{Type: "approver", ID: "ben"}, Until: morning.AddDate(0, 0, 1)},
	} {
		var invalid *authzen.ValidationError
		if _, err := d.Decide(t.Context(), id, approver("ann"), decision); !errors.As(err, &invalid) {
			t.Errorf("%+v: %v", decision, err)
		}
	}
	if _, err := d.Decide(t.Context(), id, approver("ann"), toPerson("ben")); !errors.Is(err, approval.ErrTaskState) {
		t.Errorf("with two approvals to come: %v", err)
	}
	if _, err := d.Decide(t.Context(), id, approver("ann"), approves); err != nil {
		t.Fatal(err)
	}
	for by, want := range map[string]error{"ann": approval.ErrTaskState, "cid": nil} {
		if _, err := d.Decide(t.Context(), id, approver(by), toPerson("ben")); !errors.Is(err, want) {
			t.Errorf("by %s, with one approval to come: %v", by, err)
		}
	}
	if r, err := d.Decide(t.Context(), id, approver("ben"), approves); err != nil || r.Status() != authzen.TaskApproved {
		t.Errorf("the second approval: %v, %v", r, err)
	}
}

// Nothing is handed to a person whom policies would let neither approve nor deny it. An approver who must
// not delegate is not told who could decide, and nothing is recorded about the other person.
func TestDelegateCouldDecide(t *testing.T) {
	d := open(t, plain)
	may := map[string]bool{"ann approval.delegate": true, "ben approval.approve": true, "cid approval.deny": true, "dan approval.delegate": true}
	d.config.CanApprove = func(_ context.Context, check approval.Check) (bool, error) {
		return may[check.Request.Subject.ID+" "+check.Request.Action.Name], nil
	}
	d.config.WouldApprove = func(ctx context.Context, check approval.Check) (bool, error) {
		if check.Request.Subject.ID == "una" {
			return false, authzen.Invalid("/subject/type", "is not in the schema")
		}
		if name := check.Request.Subject.ID; name != "ann" && !strings.Contains(string(check.Request.Resource.Properties), fmt.Sprintf(`"delegate":{"type":"approver","id":%q}`, name)) {
			return false, nil
		}
		return d.config.CanApprove(ctx, check)
	}
	d.config.NamesOf = func(names []string) []string {
		if slices.Contains(names, "ben@example.com") {
			return []string{"ben"}
		}
		return nil
	}
	d.reopen(t)
	nobody := authzen.Invalid("/to", "is no approver: policies do not let this person decide")
	for _, test := range []struct {
		by, to string
		want   error
	}{
		{"ann", "erin@example.com", nobody}, {"ann", "una", nobody}, {"ann", "dan", nobody}, {"zoe", "erin@example.com", approval.ErrIneligible},
		{"ann", "ben", nil}, {"ann", "cid", nil}, {"ann", "ben@example.com", nil},
	} {
		id, before := d.submit(t, push).Task.ID, len(d.records)
		_, err := d.Decide(t.Context(), id, approver(test.by), toPerson(test.to))
		if !errors.Is(err, test.want) && (err == nil || test.want == nil || err.Error() != test.want.Error()) {
			t.Errorf("%s to %s: %v, want %v", test.by, test.to, err, test.want)
		}
		if recorded := len(d.records) - before; (recorded > 0) != (test.want == nil) {
			t.Errorf("%s to %s: %d records", test.by, test.to, recorded)
		}
	}
}

// Any name of a person is that person: of the requester, the approver, or who had the request before.
func TestDelegationKnowsAllNamesOfAPerson(t *testing.T) {
	d := open(t, plain)
	people := [][]string{{"agent-7", "agent-laptop"}, {"ann", "ann@example.com"}, {"ben", "ben@example.com"}}
	d.config.NamesOf = func(names []string) (all []string) {
		for _, person := range people {
			if slices.ContainsFunc(names, func(name string) bool { return slices.Contains(person, name) }) {
				all = append(all, person...)
			}
		}
		return all
	}
	d.reopen(t)
	id := d.submit(t, push).Task.ID
	for _, step := range []struct{ by, to, want string }{
		{"ann", "agent-laptop", "/to is the requester, or acts for the requester"},
		{"ann", "Agent-Laptop", "/to is the requester, or acts for the requester"},
		{"ann", "ann@example.com", "/to is the approver"},
		{"ann", "ben@example.com", ""},
		{"ben@example.com", "ann@example.com", "/to has had item 0 before"},
		{"ben@example.com", "ben", "/to is the approver"},
	} {
		if _, err := d.Decide(t.Context(), id, approver(step.by), toPerson(step.to)); fmt.Sprint(err) != step.want && (err != nil || step.want != "") {
			t.Errorf("%s to %s: %v, want %q", step.by, step.to, err, step.want)
		}
	}
}
