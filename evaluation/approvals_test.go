package evaluation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// bySRE is an approval that stands.
func bySRE() *authzen.VerifiedApproval {
	return &authzen.VerifiedApproval{
		ID: "apr_1", Template: "sre", Approvers: []authzen.Subject{{Type: "user", ID: "carol"}},
		Until: now.Add(time.Minute), Channel: "admin", UsesLeft: 2,
	}
}

func (s compiledStore) approved(t testing.TB, body string, a *authzen.VerifiedApproval) *snapshot.Outcome {
	t.Helper()
	out, err := s.Decide(request(t, body), snapshot.Environment{Time: now, Approval: a})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What policies find at context.approval is the approval that stands, each
// member of its type, and never what the request says.
func TestApprovalAsFact(t *testing.T) {
	conditions := []string{
		`context.approval.template == "sre"`,
		`context.approval.approvers.contains(user::"carol")`,
		fmt.Sprintf(`context.approval.until == datetime("%s")`, now.Add(time.Minute).Format("2006-01-02T15:04:05Z")),
		`context.approval.channel == "admin"`,
		`context.approval.uses_left == 2`,
		`context.justification == "approved"`,
	}
	const schema = `
-- schema.cedarschema --
entity user; entity doc;
action read appliesTo { principal: user, resource: doc, context: {
	justification?: String,
	approval?: {template: String, approvers: Set<user>, until: datetime, channel: String, uses_left?: Long},
} };
`
	for _, condition := range conditions {
		policy := `@id("p") permit (principal, action, resource) when { context has approval && context.approval has uses_left && context has justification && ` + condition + ` };`
		for name, store := range map[string]string{"without a schema": policy, "with a schema": policy + schema} {
			s := compile(t, store)
			claim := question("user alice", "read", "doc 1", `{"justification":"approved","approval":{"template":"sre","channel":"admin","uses_left":2}}`)
			if !s.approved(t, claim, bySRE()).Decision {
				t.Errorf("%s: not %s", name, condition)
			}
			if s.approved(t, claim, nil).Decision {
				t.Errorf("%s: the claim is believed: %s", name, condition)
			}
		}
	}
}

// A schema is given what it declares. An approver that it has no place for is
// an approval that policies do not see.
func TestApprovalInSchema(t *testing.T) {
	const policy = `@id("p") permit (principal, action, resource) when { context has approval };
-- schema.cedarschema --
entity user; entity admin; entity doc;
action read appliesTo { principal: user, resource: doc, context: {approval?: {%s}} };
`
	for members, want := range map[string]bool{
		``:                       true,
		`template: String`:       true,
		`approvers?: Set<user>`:  true,
		`approvers?: Set<admin>`: false,
	} {
		s := compile(t, fmt.Sprintf(policy, members))
		if got := s.approved(t, question("user alice", "read", "doc 1"), bySRE()).Decision; got != want {
			t.Errorf("{%s}: seen %v", members, got)
		}
	}
}

// What a schema may not say of context.approval is a fault.
func TestApprovalShapeFaults(t *testing.T) {
	const store = `@id("p") permit (principal, action, resource);
-- schema.cedarschema --
entity user; entity doc;
action read appliesTo { principal: user, resource: doc, context: {%s} };
`
	for context, want := range map[string]string{
		`approval: {template: String}`:                     "must be an optional record",
		`approval?: String`:                                "must be an optional record",
		`approval?: {templates: String}`:                   "has no templates",
		`approval?: {until: String}`:                       "until is a datetime",
		`approval?: {approvers: Set<String>}`:              "approvers is an array",
		`approval?: {uses_left: Long}`:                     "uses_left is there only where uses are counted",
		`approval?: {template: String}, other: {a?: Long}`: "",
	} {
		_, err := snapshot.Compile(archive(fmt.Sprintf(store, context)))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", context, err)
		}
	}
}

// A justification that says approved is nobody's to send; any other is.
func TestJustification(t *testing.T) {
	const policy = `@id("p") permit (principal, action, resource) when { context has justification };`
	s := compile(t, policy)
	const declared = `
-- schema.cedarschema --
entity user; entity doc;
action read appliesTo { principal: user, resource: doc, context: {justification?: String} };
`
	for _, s := range []compiledStore{s, compile(t, policy+declared)} {
		s.allows("user alice", "read", "doc 1", `{"justification":"a ticket"}`)
		for _, claim := range []string{"approved", "Approved", " APPROVED "} {
			s.denies("user alice", "read", "doc 1", fmt.Sprintf(`{"justification":%q}`, claim))
		}
	}
	undeclared := compile(t, `@id("p") permit (principal, action, resource);`+strings.ReplaceAll(declared, "justification?: String", ""))
	undeclared.allows("user alice", "read", "doc 1", `{"justification":"approved"}`)
	undeclared.refuses("/context/justification is not declared by the schema", "user alice", "read", "doc 1", `{"justification":"a ticket"}`)
}

// An approval lifts the forbid that asks for it, and the permit that waits, and
// nothing else: AR-115, AR-116.
func TestApprovalLifts(t *testing.T) {
	s := compile(t, `
@id("requestable") @requestable("sre") forbid (principal, action == Action::"a", resource) unless { context has approval && context.approval.template == "sre" };
@id("final") forbid (principal, action == Action::"b", resource);
@id("waits") @approval("sre") permit (principal, action == Action::"c", resource);
@id("waits-for-lawyers") @approval("lawyers") permit (principal, action == Action::"d", resource);
@id("all") permit (principal, action in [Action::"a", Action::"b"], resource);
`)
	for _, test := range []struct {
		action             string
		without, with      bool
		before, afterwards string // the template by which a person could help
	}{
		{"a", false, true, "sre", ""},
		{"b", false, false, "", ""},
		{"c", false, true, "sre", ""},
		{"d", false, false, "lawyers", "lawyers"},
		{"e", false, false, "", ""},
	} {
		body := question("user alice", test.action, "doc 1")
		without, with := s.approved(t, body, nil), s.approved(t, body, bySRE())
		if without.Decision != test.without || with.Decision != test.with || without.Template != test.before || with.Template != test.afterwards {
			t.Errorf("%s: %v by %q, approved %v by %q", test.action, without.Decision, without.Template, with.Decision, with.Template)
		}
	}
}

// A desk answers claims: "good" stands, "raced" stands until it is used.
type desk struct {
	asked []authzen.Reevaluation
	spent int
}

func (d *desk) Verify(_ context.Context, v *authzen.Reevaluation) (authzen.ApprovalStatus, error) {
	d.asked = append(d.asked, *v)
	switch string(v.Claim) {
	case `"good"`:
		return authzen.ApprovalStatus{Approval: bySRE(), Consume: func(context.Context) error { d.spent++; return nil }}, nil
	case `"raced"`:
		return authzen.ApprovalStatus{Approval: bySRE(), Consume: func(context.Context) error { return authzen.ErrApprovalEnded }}, nil
	case `"broken"`:
		return authzen.ApprovalStatus{}, errors.New("disk full")
	}
	return authzen.ApprovalStatus{Reason: strings.Trim(string(v.Claim), `"`)}, nil
}

const approvalStore = `
@id("waits") @approval("sre") permit (principal, action == Action::"wait", resource);
@id("reads") permit (principal, action == Action::"read", resource);
@id("never") forbid (principal, action == Action::"never", resource);
`

func offers(d *authzen.RequestableDenial) (*authzen.AccessRequest, error) {
	return &authzen.AccessRequest{Template: d.Template, BindingToken: d.EvaluationID, ExpiresAt: now}, nil
}

// What a PEP is told of an approval that it claims: AR-121 to AR-125.
func TestClaims(t *testing.T) {
	for _, test := range []struct {
		action, claim string
		decision      bool
		reason, next  string
		offered       bool
		echo          bool
		spent         int
	}{
		{"wait", "good", true, "", "", false, true, 1},
		{"read", "good", true, "", "", false, true, 1},
		{"never", "good", false, "policy_denied", "none", false, false, 0},
		{"wait", "raced", false, "approval_expired", "request", true, false, 0},
		{"wait", "approval_expired", false, "approval_expired", "request", true, false, 0},
		{"wait", "out_of_scope", false, "out_of_scope", "request", true, false, 0},
		{"never", "out_of_scope", false, "out_of_scope", "none", false, false, 0},
		{"wait", "grant_pending", false, "grant_pending", "retry", false, false, 0},
		{"wait", "approval_unverifiable", false, "approval_unverifiable", "none", false, false, 0},
		{"read", "approval_unverifiable", true, "", "", false, false, 0},
	} {
		d := &desk{}
		e, _ := engine(t, approvalStore, evaluation.Config{Approvals: d, Offer: offers})
		got, err := e.Evaluate(t.Context(), evaluation.Call{}, request(t, question("user alice", test.action, "doc 1", fmt.Sprintf(`{"approval":%q}`, test.claim))))
		if err != nil {
			t.Fatal(err)
		}
		c := got.Context
		if c == nil {
			c = &authzen.DecisionContext{}
		}
		if got.Decision != test.decision || c.Reason != test.reason || c.NextAction != test.next ||
			(c.AccessRequest != nil) != test.offered || (c.Approval != nil) != test.echo || d.spent != test.spent ||
			(c.RetryAfter > 0) != (test.next == "retry") {
			t.Errorf("%s with %s: %v, %+v, spent %d", test.action, test.claim, got.Decision, c, d.spent)
		}
	}
}

// A PEP that carries out custom obligations is told the same of its claim: the permit that waits
// for an approval has the reason and the next action.
func TestClaimsOfObligation(t *testing.T) {
	for _, test := range []struct {
		claim, reason, next string
		offered             bool
	}{
		{"raced", "approval_expired", "request", true},
		{"out_of_scope", "out_of_scope", "request", true},
		{"grant_pending", "grant_pending", "retry", false},
		{"approval_unverifiable", "approval_unverifiable", "none", false},
	} {
		e, _ := engine(t, approvalStore, evaluation.Config{Approvals: &desk{}, Offer: offers})
		got, err := e.Evaluate(t.Context(), evaluation.Call{ID: "call"}, request(t, question("user alice", "wait", "doc 1", fmt.Sprintf(`{"approval":%q,"supported_obligations":["custom"]}`, test.claim))))
		if err != nil {
			t.Fatal(err)
		}
		var waits authzen.ApprovalRequired
		if err := json.Unmarshal(got.Context.Obligations[0].Properties, &waits); err != nil {
			t.Fatal(err)
		}
		if c := got.Context; !got.Decision || c.Reason != test.reason || c.NextAction != test.next || c.AccessRequest != nil || (c.RetryAfter > 0) != (test.next == "retry") {
			t.Errorf("%s: %v, %+v", test.claim, got.Decision, c)
		}
		if waits.Action != authzen.ActionApprovalRequired || waits.EvaluationID != "call" || (waits.AccessRequest != nil) != test.offered {
			t.Errorf("%s: the obligation is %+v", test.claim, waits)
		}
	}
}

// Without an answer about the approval there is none about the request.
func TestClaimFails(t *testing.T) {
	e, l := engine(t, approvalStore, evaluation.Config{Approvals: &desk{}, Offer: offers})
	if got, err := e.Evaluate(t.Context(), evaluation.Call{}, request(t, question("user alice", "read", "doc 1", `{"approval":"broken"}`))); err == nil {
		t.Errorf("answered %+v", got)
	}
	if log := entries(t, l); len(log) != 0 {
		t.Errorf("recorded %+v", log)
	}
}

// AR-154: each item of a batch is re-evaluated on its own, and names itself.
func TestClaimsInBatch(t *testing.T) {
	d := &desk{}
	e, _ := engine(t, approvalStore, evaluation.Config{Approvals: d, Offer: offers})
	call := evaluation.Call{ID: "call", RequestID: "r"}
	answer, err := e.Evaluations(t.Context(), call, batch(t, `{"subject":{"type":"user","id":"alice"},"resource":{"type":"doc","id":"1"},"action":{"name":"wait"},"evaluations":[
		{"context":{"approval":"good"}}, {}, {"context":{"approval":"good"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if spell(answer.Evaluations) != "yny" || d.spent != 2 || answer.Evaluations[1].Context.EvaluationID != "call.1" {
		t.Errorf("answered %s, spent %d: %+v", spell(answer.Evaluations), d.spent, answer.Evaluations[1].Context)
	}
	var asked []string
	for _, v := range d.asked {
		asked = append(asked, v.EvaluationID+" "+v.RequestID+" "+v.Item)
	}
	if diff := cmp.Diff([]string{"call.0 r 0", "call.2 r 2"}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// What is offered is not what is recorded: who has the offer can use it.
func TestOfferIsNotRecorded(t *testing.T) {
	e, l := engine(t, approvalStore, evaluation.Config{Offer: offers})
	body := question("user alice", "wait", "doc 1", `{"supported_obligations":["custom"]}`)
	got, err := e.Evaluate(t.Context(), evaluation.Call{}, request(t, body))
	if err != nil {
		t.Fatal(err)
	}
	log := entries(t, l)
	if id := log[0].ID; !strings.Contains(string(got.Context.Obligations[0].Properties), `"binding_token":"`+id+`"`) {
		t.Errorf("offered %s", got.Context.Obligations[0].Properties)
	}
	if recorded := string(log[0].Obligations[0].Properties); strings.Contains(recorded, "binding_token") {
		t.Errorf("recorded %s", recorded)
	}
}

// A permit with obligations lets nobody approve: nobody is there to meet them.
func TestMayDecide(t *testing.T) {
	e, l := engine(t, `
@id("people") permit (principal is user, action == Action::"approval.approve", resource is access_request) when { resource.template == "sre" };
@id("told") @obligation_notification("{\"to\":\"soc\",\"body\":\"b\"}") permit (principal is admin, action == Action::"approval.approve", resource is access_request);
-- schema.cedarschema --
entity user; entity admin; entity access_request { template: String };
action "approval.approve" appliesTo { principal: [user, admin], resource: access_request };
`, evaluation.Config{})
	for subject, want := range map[string]bool{"user": true, "admin": false} {
		// The schema declares of the request only what policies read.
		got, err := e.MayDecide(t.Context(), evaluation.Call{}, request(t, question(subject+" carol", "approval.approve", `access_request arq_1 {"template":"sre","requester":{"type":"user","id":"alice"},"context":{"a":1}}`)))
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", subject, got, err)
		}
	}
	if log := entries(t, l); len(log) != 2 {
		t.Errorf("%d answers are recorded", len(log))
	}
}

func TestApprovalTemplates(t *testing.T) {
	e, _ := engine(t, `@id("p") permit (principal, action, resource);
-- config.yaml --
approval_templates:
  sre: {ttl: 5m, decide_within: 2h, escalation: 30m, uses: 0, quorum: 2, scope: resource_type, context: [a], pin_revision: true, auto_approver: {type: bot, id: b}, display: {title: T}}
  form: {request_schema: {type: object, required: [ticket]}}
`, evaluation.Config{})
	lasting := func(d time.Duration) authzen.Duration { return authzen.Duration{Duration: d} }
	got, err := e.ApprovalTemplate("", "sre")
	want := authzen.ApprovalTemplate{
		TTL: lasting(5 * time.Minute), DecideWithin: lasting(2 * time.Hour), Escalation: lasting(30 * time.Minute), Quorum: 2,
		Scope: authzen.ScopeResourceType, Context: []string{"a"}, PinRevision: true,
		AutoApprover: &authzen.Subject{Type: "bot", ID: "b"}, Display: []byte(`{"title":"T"}`),
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("sre: %v (-want +got):\n%s", err, diff)
	}
	got, err = e.ApprovalTemplate("", "unheard-of")
	want = authzen.ApprovalTemplate{TTL: lasting(15 * time.Minute), DecideWithin: lasting(time.Hour), Uses: 1, Quorum: 1, Scope: authzen.ScopeCall}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("the defaults: %v (-want +got):\n%s", err, diff)
	}
	form, err := e.ApprovalTemplate("", "form")
	if err != nil || form.CheckAccess([]byte(`{"ticket":1}`)) != nil {
		t.Errorf("form: %v", err)
	}
	var invalid *authzen.ValidationError
	for _, access := range []string{``, `{}`, `[]`} {
		if err := form.CheckAccess([]byte(access)); !errors.As(err, &invalid) {
			t.Errorf("%q: %v", access, err)
		}
	}
}

func TestApprovalTemplateFaults(t *testing.T) {
	for template, want := range map[string]string{
		`{ttl: -1s}`:          `config.yaml:2:14: approval_templates.sre.ttl: must be a duration with a unit, such as 500ms, 15m, 12h or 90d, not "-1s"`,
		`{ttl: 30}`:           `config.yaml:2:14: approval_templates.sre.ttl: must be a duration with a unit, such as 500ms, 15m, 12h or 90d, not 30`,
		`{ttl: 0s}`:           `config.yaml:2:14: approval_templates.sre.ttl: must be more than 0, not "0s" (leave the key out for the default)`,
		`{decide_within: 0}`:  `config.yaml:2:24: approval_templates.sre.decide_within: must be more than 0, not 0`,
		`{ttl: 61d}`:          "are more than",
		`{uses: -1}`:          "config.yaml:2:15: approval_templates.sre.uses: must be a whole number from 0, not -1",
		`{ttl: 1500h}`:        "are more than",
		`{escalation: 1h}`:    "escalation comes after decide_within",
		`{scope: everything}`: "scope: everything is not one of call, resource_type",
		`{step_up: true, auto_approver: {type: user, id: a}}`:    "step_up excludes auto_approver",
		`{auto_approver: {type: "no type", id: a}}`:              "auto_approver must have",
		`{request_schema: {type: 7}}`:                            "request_schema",
		`{request_schema: {$ref: "https://example.com/s.json"}}`: "request_schema",
		`{quorums: 2}`: "unknown field",
	} {
		_, err := snapshot.Compile(archive("@id(\"p\") permit (principal, action, resource);\n-- config.yaml --\napproval_templates:\n  sre: " + template + "\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", template, err)
		}
	}
	_, err := snapshot.CompileStore(archive(`-- config.yaml --
approval_templates: {sre: {quorum: 2}}
-- tenants/acme/a.cedar --
@id("p") permit (principal, action, resource);
-- tenants/acme/config.yaml --
approval_templates: {sre: {quorum: 1}}
`))
	if err == nil || !strings.Contains(err.Error(), "sre is the guardrails'") {
		t.Errorf("a tenant's own: %v", err)
	}
}
