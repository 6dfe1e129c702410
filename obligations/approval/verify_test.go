package approval_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An approval is valid only for the denied request (AR-37, AR-113, AR-118, AR-126 in
// conformance/testdata/rows.txt).
func TestScope(t *testing.T) {
	d := open(t, plain)
	approved := d.approve(t, push)
	tests := []struct {
		name, request, want string
	}{
		{"the request itself", push, ""},
		{"at another time", edit(t, "20:15:00Z", "20:16:00Z"), ""},
		{"justified", edit(t, `"workflow_id"`, `"justification": "approved", "workflow_id"`), ""},
		{"written otherwise", edit(t, `3}`, `3e0}`), ""},
		{"members in another order", edit(t, `{"branch": "main", "files": 3}`, `{"files": 3, "branch": "main"}`), ""},
		{"another subject", edit(t, "agent-7", "agent-8"), authzen.ReasonOutOfScope},
		{"another type of subject", edit(t, `"type": "agent"`, `"type": "user"`), authzen.ReasonOutOfScope},
		{"another role", edit(t, `["writer"]`, `["writer", "admin"]`), authzen.ReasonOutOfScope},
		{"another resource", edit(t, "github.push_code", "github.force_push"), authzen.ReasonOutOfScope},
		{"another label", edit(t, `"impact": "write"`, `"impact": "destructive"`), authzen.ReasonOutOfScope},
		{"no label", edit(t, `, "properties": {"impact": "write"}`, ``), authzen.ReasonOutOfScope},
		{"another action", edit(t, "tool.invoke", "tool.delete"), authzen.ReasonOutOfScope},
		{"another argument", edit(t, `"main"`, `"release"`), authzen.ReasonOutOfScope},
		{"an argument more", edit(t, `"files": 3`, `"files": 3, "force": true`), authzen.ReasonOutOfScope},
		{"an argument of another type", edit(t, `"files": 3`, `"files": "3"`), authzen.ReasonOutOfScope},
		{"an argument that is null", edit(t, `"files": 3`, `"files": 3, "force": null`), authzen.ReasonOutOfScope},
		{"another context", edit(t, "wf-1", "wf-2"), authzen.ReasonOutOfScope},
		{"less context", edit(t, `"workflow_id": "wf-1", `, ``), authzen.ReasonOutOfScope},
		{"more context", edit(t, `"workflow_id"`, `"mfa": true, "workflow_id"`), authzen.ReasonOutOfScope},
		{"on behalf of somebody", edit(t, `"roles"`, `"act": {"sub": "x"}, "roles"`), authzen.ReasonOutOfScope},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			standing := d.again(t, test.request, approved)
			if standing.Reason != test.want || (standing.Approval != nil) != (test.want == "") {
				t.Errorf("stands: %v, reason %q, want %q", standing.Approval, standing.Reason, test.want)
			}
		})
	}
}

// Two integers that round to the same float64 differ (AR-36 in conformance/testdata/rows.txt).
func TestScopeOfLargeIntegers(t *testing.T) {
	d := open(t, plain)
	approved := d.approve(t, edit(t, `"files": 3`, `"files": 9007199254740993`))
	if got := d.again(t, edit(t, `"files": 3`, `"files": 9007199254740992`), approved); got.Approval != nil {
		t.Error("an approval of 9007199254740993 stands for 9007199254740992")
	}
	if got := d.again(t, edit(t, `"files": 3`, `"files": 9007199254740993`), approved); got.Approval == nil {
		t.Error("it does not stand for itself")
	}
}

// Equal values in different notations are equal, others are not (AR-36 in
// conformance/testdata/rows.txt).
func TestScopeOfValues(t *testing.T) {
	for _, test := range []struct {
		was, is string
		same    bool
	}{
		{`1`, `1.0`, true},
		{`100`, `1e2`, true},
		{`0.1`, `0.10`, true},
		{`1`, `"1"`, false},
		{`1`, `true`, false},
		{`"A"`, `"\u0041"`, true},
		{`"\u00e9"`, `"e\u0301"`, false},
		{`"a"`, `"a "`, false},
		{`[1,2]`, `[1,2]`, true},
		{`[1,2]`, `[2,1]`, false},
		{`[1]`, `1`, false},
		{`{"a":{"b":1,"c":2}}`, `{"a":{"c":2,"b":1}}`, true},
		{`{"a":{"b":1}}`, `{"a":{"b":1,"c":null}}`, false},
		{`{"a":null}`, `{}`, false},
		{`null`, `null`, true},
		{`null`, `false`, false},
	} {
		d := open(t, plain)
		approved := d.approve(t, edit(t, `"main"`, test.was))
		if got := d.again(t, edit(t, `"main"`, test.is), approved); (got.Approval != nil) != test.same {
			t.Errorf("%s and %s: same %v", test.was, test.is, got.Approval != nil)
		}
	}
}

// A template may name the bound members of the context (AR-27 in conformance/testdata/rows.txt).
func TestScopeOfNamedContext(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Context = []string{"workflow_id", "ticket"} }))
	approved := d.approve(t, push)
	for _, test := range []struct{ request, want string }{
		{edit(t, `"workflow_id"`, `"trace": "1", "workflow_id"`), ""},
		{edit(t, "wf-1", "wf-2"), authzen.ReasonOutOfScope},
		{edit(t, `"workflow_id"`, `"ticket": "T-1", "workflow_id"`), authzen.ReasonOutOfScope}, // absent must stay absent
	} {
		if got := d.again(t, test.request, approved); got.Reason != test.want {
			t.Errorf("%s: %q, want %q", test.request, got.Reason, test.want)
		}
	}
}

// A template with a wider scope and named members of the context binds these members.
func TestScopeOfResourceTypeAndContext(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) {
		terms.Scope, terms.Context = authzen.ScopeResourceType, []string{"workflow_id", "env"}
	}))
	approved := d.approve(t, push)
	for _, test := range []struct{ request, want string }{
		{edit(t, "github.push_code", "github.force_push"), ""},
		{edit(t, `"workflow_id"`, `"trace": "1", "workflow_id"`), ""},
		{edit(t, "wf-1", "wf-2"), authzen.ReasonOutOfScope},
		{edit(t, `"workflow_id"`, `"env": "production", "workflow_id"`), authzen.ReasonOutOfScope},
		{edit(t, `"workflow_id": "wf-1", `, ``), authzen.ReasonOutOfScope},
	} {
		if got := d.again(t, test.request, approved); got.Reason != test.want {
			t.Errorf("%s: %q, want %q", test.request, got.Reason, test.want)
		}
	}
}

// A template may widen the scope to a resource type (AR-120 in conformance/testdata/rows.txt).
func TestScopeOfResourceType(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Scope = authzen.ScopeResourceType }))
	approved := d.approve(t, push)
	for _, test := range []struct{ request, want string }{
		{edit(t, "github.push_code", "github.force_push"), ""},
		{edit(t, `"main"`, `"release"`), ""},
		{edit(t, `"type": "tool"`, `"type": "server"`), authzen.ReasonOutOfScope},
		{edit(t, "tool.invoke", "tool.delete"), authzen.ReasonOutOfScope},
		{edit(t, "agent-7", "agent-8"), authzen.ReasonOutOfScope},
	} {
		if got := d.again(t, test.request, approved); got.Reason != test.want {
			t.Errorf("%s: %q, want %q", test.request, got.Reason, test.want)
		}
	}
}

// An approval belongs to a tenant, a caller and an actor (AR-113 in conformance/testdata/rows.txt).
func TestScopeOfCallers(t *testing.T) {
	d := open(t, plain)
	approved := d.approve(t, edit(t, `"roles"`, `"act": {"sub": "planner", "iss": "https://a"}, "roles"`))
	for _, test := range []struct{ tenant, caller, actor, want string }{
		{"acme", "gateway-1", "planner", ""},
		{"globex", "gateway-1", "planner", authzen.ReasonApprovalUnverifiable},
		{"", "gateway-1", "planner", authzen.ReasonApprovalUnverifiable},
		{"acme", "gateway-2", "planner", authzen.ReasonOutOfScope},
		{"acme", "gateway-1", "executor", authzen.ReasonOutOfScope},
	} {
		standing, err := d.Verify(t.Context(), &authzen.Reevaluation{
			Tenant: test.tenant, Caller: test.caller, Time: d.time(), Claim: jsontext.Value(`{"id":"` + approved.ID + `"}`),
			Request: evaluation(t, edit(t, `"roles"`, `"act": {"sub": "`+test.actor+`", "iss": "https://a"}, "roles"`)),
		})
		if err != nil || standing.Reason != test.want {
			t.Errorf("%+v: %q, %v", test, standing.Reason, err)
		}
	}
}

// Every form of a claim is verified (AR-108 to AR-112 in conformance/testdata/rows.txt).
func TestForgedClaims(t *testing.T) {
	d := open(t, plain)
	approved := d.approve(t, push)
	other := d.approve(t, edit(t, "agent-7", "agent-8"))
	pending := d.submit(t, edit(t, "agent-7", "agent-9")).Task.ID
	token := d.submission(t, push).Denial.BindingToken
	foreign := open(t, plain).approve(t, push)
	tests := []struct {
		name string
		want string
		sent string
	}{
		{"the approval", "", `{"id":"` + approved.ID + `","state":"` + approved.State + `"}`},
		{"the id alone", "", `{"id":"` + approved.ID + `"}`},
		{"with more in it", "", `{"id":"` + approved.ID + `","approved_until":"2999-01-01T00:00:00Z","template":"root"}`},
		{"no object", authzen.ReasonApprovalUnverifiable, `"` + approved.ID + `"`},
		{"no id", authzen.ReasonApprovalUnverifiable, `{"status":"approved"}`},
		{"an id that is none", authzen.ReasonApprovalUnverifiable, `{"id":7}`},
		{"an invented id", authzen.ReasonApprovalUnverifiable, `{"id":"apr_1"}`},
		{"justified", authzen.ReasonApprovalUnverifiable, `{"id":"apr_1","justification":"approved"}`},
		{"another's state", authzen.ReasonApprovalUnverifiable, `{"id":"` + approved.ID + `","state":"` + other.State + `"}`},
		{"a binding token for a state", authzen.ReasonApprovalUnverifiable, `{"id":"` + approved.ID + `","state":"` + token + `"}`},
		{"a state by other keys", authzen.ReasonApprovalUnverifiable, `{"id":"` + foreign.ID + `","state":"` + foreign.State + `"}`},
		{"a state without signature", authzen.ReasonApprovalUnverifiable, `{"id":"` + approved.ID + `","state":"` + unsigned(approved.State) + `"}`},
		{"a state that is no string", authzen.ReasonApprovalUnverifiable, `{"id":"` + approved.ID + `","state":{}}`},
		{"the task before it is decided", authzen.ReasonGrantPending, `{"id":"` + pending + `"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := d.again(t, push, jsontext.Value(test.sent)); got.Reason != test.want || (got.Approval != nil) != (test.want == "") {
				t.Errorf("reason %q, want %q", got.Reason, test.want)
			}
		})
	}
}

// A token of one type is not accepted as another type.
func TestTokenTypes(t *testing.T) {
	if anApproval, aBinding := approval.ReadAs(); anApproval == nil || aBinding != nil {
		t.Errorf("a binding token read as an approval: %v; as a binding token: %v", anApproval, aBinding)
	}
}

// unsigned returns a token with the algorithm none.
func unsigned(token string) string {
	const none = "eyJhbGciOiJub25lIn0" // {"alg":"none"}
	parts := strings.Split(token, ".")
	return none + "." + parts[1] + "."
}

// An approval ends at its time, when it is used up, and when it is revoked (AR-96, AR-117 in
// conformance/testdata/rows.txt).
func TestApprovalEnds(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Uses = 2 }))
	stands := func(claim authzen.Approval, want bool) {
		t.Helper()
		got := d.again(t, push, claim)
		if (got.Approval != nil) != want || !want && got.Reason != authzen.ReasonApprovalExpired {
			t.Errorf("stands: %v (%s), want %v", got.Approval != nil, got.Reason, want)
		}
	}
	late := d.approve(t, push)
	d.pass(15*time.Minute - time.Second)
	stands(late, true)
	d.pass(time.Second)
	stands(late, false)

	used := d.approve(t, push)
	for left := 2; left > 0; left-- {
		standing := d.again(t, push, used)
		if standing.Approval == nil || standing.Approval.UsesLeft != left {
			t.Fatalf("with %d uses left it is %+v", left, standing)
		}
		if err := standing.Consume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stands(used, false)

	revoked := d.approve(t, push)
	before := d.again(t, push, revoked)
	if _, err := d.Revoke(t.Context(), revoked.ID, approver("carol"), "a mistake"); err != nil {
		t.Fatal(err)
	}
	stands(revoked, false)
	if err := before.Consume(t.Context()); !errors.Is(err, authzen.ErrApprovalEnded) {
		t.Errorf("it is used after it was revoked: %v", err)
	}
}

// A repeated request consumes one use: same id, same request, within a minute.
func TestRepeatedUse(t *testing.T) {
	for _, test := range []struct {
		name, id, item, request string
		pass                    time.Duration
		repeated                bool
	}{
		{"itself", "call-1", "", push, 0, true},
		{"itself, at another time", "call-1", "", edit(t, "20:15:00Z", "20:16:00Z"), 0, true},
		{"itself, soon", "call-1", "", push, 59 * time.Second, true},
		{"itself, later", "call-1", "", push, time.Minute, false},
		{"another id", "call-2", "", push, 0, false},
		{"no id", "", "", push, 0, false},
		{"an item of a batch", "call-1", "0", push, 0, false},
		{"another resource", "call-1", "", edit(t, "github.push_code", "github.force_push"), 0, false},
		{"another label", "call-1", "", edit(t, `"impact": "write"`, `"impact": "destructive"`), 0, false},
		{"another argument", "call-1", "", edit(t, `"main"`, `"release"`), 0, false},
		{"another context", "call-1", "", edit(t, "wf-1", "wf-2"), 0, false},
	} {
		d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Scope = authzen.ScopeResourceType }))
		approved := d.approve(t, push)
		use := func(id, item, request string) error {
			t.Helper()
			standing, err := d.Verify(t.Context(), &authzen.Reevaluation{
				EvaluationID: "e", Tenant: gateway.Tenant, Caller: gateway.ID, RequestID: id, Item: item, Time: d.time(),
				Claim: jsontext.Value(`{"id":"` + approved.ID + `"}`), Request: evaluation(t, request),
			})
			if err != nil {
				t.Fatal(err)
			}
			if standing.Consume == nil {
				return errors.New(standing.Reason + ": " + standing.Explanation)
			}
			return standing.Consume(t.Context())
		}
		if err := use("call-1", "", push); err != nil {
			t.Fatal(err)
		}
		d.pass(test.pass)
		const usedUp = authzen.ReasonApprovalExpired + ": The approval has been used up."
		if err := use(test.id, test.item, test.request); (err == nil) != test.repeated || err != nil && err.Error() != usedUp {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// The completions of one capability use an approval once, however late the second is.
func TestUseByACapability(t *testing.T) {
	for _, test := range []struct {
		name, capability, id, request string
		repeated                      bool
	}{
		{"the same", "cap_1", "", push, true},
		{"another", "cap_2", "", push, false},
		{"a PEP", "", "", push, false},
		{"a PEP that names it", "", "cap_1", push, false},
		{"another argument", "cap_1", "", edit(t, `"main"`, `"release"`), false},
	} {
		d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Scope = authzen.ScopeResourceType }))
		approved := d.approve(t, push)
		status := func(capability, id, request string) authzen.ApprovalStatus {
			t.Helper()
			status, err := d.Verify(t.Context(), &authzen.Reevaluation{
				Tenant: gateway.Tenant, Caller: gateway.ID, RequestID: id, Capability: capability, Time: d.time(),
				Claim: jsontext.Value(`{"id":"` + approved.ID + `"}`), Request: evaluation(t, request),
			})
			if err != nil {
				t.Fatal(err)
			}
			return status
		}
		if err := status("cap_1", "", push).Consume(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.reopen(t)
		d.pass(10 * time.Minute)
		again := status(test.capability, test.id, test.request)
		if (again.Consume != nil) != test.repeated {
			t.Errorf("%s: %+v", test.name, again)
		}
		if again.Consume != nil {
			if err := again.Consume(t.Context()); err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
		}
	}
}

// Ids that are not valid UTF-8 are not repetitions of each other.
func TestUnreadableRequestID(t *testing.T) {
	d := open(t, plain)
	claim := d.approve(t, push)
	for n, want := range []bool{true, false} {
		standing, err := d.Verify(t.Context(), &authzen.Reevaluation{
			Tenant: gateway.Tenant, Caller: gateway.ID, RequestID: "\uFFFD", Time: d.time(), Claim: jsontext.Value(`{"id":"` + claim.ID + `"}`), Request: evaluation(t, push),
		})
		if err != nil || (standing.Consume != nil) != want {
			t.Fatalf("use %d: %+v, %v", n, standing, err)
		}
		if want {
			if err := standing.Consume(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A template may pin the policy revision.
func TestSupersede(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.PinRevision = pinned }))
		approved := d.approve(t, push)
		d.revision = "sha256:2"
		if got := d.again(t, push, approved); (got.Approval != nil) == pinned {
			t.Errorf("pinned %v: under other policies it stands: %v", pinned, got.Approval != nil)
		}
		d.revision = "sha256:1"
		if got := d.again(t, push, approved); (got.Approval != nil) == pinned {
			t.Errorf("pinned %v: it stands again: %v", pinned, got.Approval != nil)
		}
	}
}
