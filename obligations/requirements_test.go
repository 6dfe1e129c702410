package obligations_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/policy-service/policy-service/obligations"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Terms of policies, named for their requirements.
var (
	plain     = &obligations.Terms{}
	bySRE     = &obligations.Terms{Approval: "sre"}
	byLawyers = &obligations.Terms{Approval: "lawyers"}
	notifies  = asks("notification", `{"to":"soc","body":"b"}`, false)
	stepsUp   = asks("step-up", `{"acr_value":"aal2"}`, true)
	ends      = asks("session_termination", `{"subject":"alice"}`, false)
	redacts   = asks("custom", `{"redact":"card"}`, true)
)

func asks(kind, properties string, withhold bool) *obligations.Terms {
	return &obligations.Terms{Obligations: []obligations.Obligation{{Type: kind, Properties: jsontext.Value(properties), Withhold: withhold}}}
}

// obliges returns a context with obligations, their ids in order.
func obliges(all ...authzen.Obligation) []authzen.Obligation {
	for i := range all {
		all[i].ID = []string{"obligation-1", "obligation-2", "obligation-3", "obligation-4"}[i]
	}
	return all
}

func obligation(kind, properties string) authzen.Obligation {
	return authzen.Obligation{Type: kind, Properties: jsontext.Value(properties)}
}

var (
	notification = obligation("notification", `{"to":"soc","body":"b"}`)
	stepUp       = obligation("step-up", `{"acr_value":"aal2"}`)
	termination  = obligation("session_termination", `{"subject":"alice"}`)
	redaction    = obligation("custom", `{"redact":"card"}`)
	sreApproval  = obligation("custom", `{"action":"approval_required","template":"sre"}`)
	lawApproval  = obligation("custom", `{"action":"approval_required","template":"lawyers"}`)
)

// lacks returns the context of a denial that names a type to declare.
func lacks(kind string) *authzen.DecisionContext {
	return &authzen.DecisionContext{
		Reason: "obligation_unsupported", SupportedObligations: []string{kind},
		ReasonAdmin: authzen.Reason{"en": "The permit is withheld: the PEP has to declare " + kind + " in context.supported_obligations."},
	}
}

// A denial for undeclared obligations names each needed type once, before the reason of the permit.
// Other denials name none.
func TestComposeUnsupported(t *testing.T) {
	explained := &obligations.Terms{ReasonAdmin: "Break-glass.", Obligations: stepsUp.Obligations}
	for _, test := range []struct {
		permitted   bool
		determining []*obligations.Terms
		support     string
		want        []string
	}{
		{permit, []*obligations.Terms{explained, redacts, stepsUp, notifies}, `[]`, []string{"custom", "step-up"}},
		{permit, []*obligations.Terms{explained, redacts}, `["custom"]`, []string{"step-up"}},
		{permit, []*obligations.Terms{{Approval: "sre", Obligations: stepsUp.Obligations}}, `[]`, []string{"step-up"}},
		{permit, []*obligations.Terms{bySRE}, `[]`, nil},
		{forbid, []*obligations.Terms{explained}, `[]`, nil},
	} {
		got := obligations.Compose(test.permitted, test.determining, obligations.Request{Support: obligations.ReadSupport(jsontext.Value(test.support))})
		context := got.Context
		if context == nil {
			context = &authzen.DecisionContext{}
		}
		if diff := cmp.Diff(test.want, context.SupportedObligations); diff != "" || got.Decision || (context.Reason == "obligation_unsupported") != (test.want != nil) {
			t.Errorf("%v: %+v\n%s", test.support, context, diff)
		}
		if said := context.ReasonAdmin["en"]; test.want != nil && test.determining[0] == explained && !strings.HasSuffix(said, "context.supported_obligations. Break-glass.") {
			t.Errorf("%v: %q", test.support, said)
		}
	}
}

// A decision has all obligations of its policies, and no context without any (OB-1, OB-7, OB-21,
// OB-22 in conformance/testdata/rows.txt).
func TestCompose(t *testing.T) {
	const (
		silent  = ``
		nothing = `[]`
		every   = `["step-up","notification","session_termination","custom"]`
	)
	type terms = []*obligations.Terms
	tests := []struct {
		name        string
		permitted   bool
		determining terms
		support     string
		want        bool                 // decision to the PEP
		obligations []authzen.Obligation // recorded obligations
		withheld    bool                 // which are not sent
	}{
		{"a plain permit", permit, terms{plain}, silent, true, nil, false},
		{"a plain forbid", forbid, terms{plain}, every, false, nil, false},
		{"no policy at all", forbid, nil, silent, false, nil, false},

		// A PEP without a declaration gets any type, but a required one causes a denial (OB-8,
		// OB-19, OB-20, OB-28 in conformance/testdata/rows.txt).
		{"a notification to a silent PEP", permit, terms{notifies}, silent, true, obliges(notification), false},
		{"a notification to a PEP that meets nothing", permit, terms{notifies}, nothing, true, obliges(notification), false},
		{"a step-up for a silent PEP", permit, terms{stepsUp}, silent, false, obliges(stepUp), true},
		{"a step-up for a PEP that meets nothing", permit, terms{stepsUp}, nothing, false, obliges(stepUp), true},
		{"a step-up for a PEP that meets others", permit, terms{stepsUp}, `["custom","notification"]`, false, obliges(stepUp), true},
		{"a step-up for a PEP that steps up", permit, terms{stepsUp}, `["custom","step-up"]`, true, obliges(stepUp), false},
		{"a type in another case", permit, terms{stepsUp}, `["Step-Up","step_up"]`, false, obliges(stepUp), true},
		{"a type nobody knows", permit, terms{redacts}, `["custom","telepathy"]`, true, obliges(redaction), false},
		{"a notification that must not be missed", permit, terms{asks("notification", `{"to":"soc","body":"b"}`, true)}, silent, false, obliges(notification), true},
		{"a custom one that may be", permit, terms{asks("custom", `{"redact":"card"}`, false)}, nothing, true, obliges(redaction), false},
		{"one of two is not met", permit, terms{notifies, stepsUp}, `["notification"]`, false, obliges(notification, stepUp), true},
		{"both are met", permit, terms{notifies, stepsUp}, every, true, obliges(notification, stepUp), false},

		// A malformed declaration counts as none (OB-30 in conformance/testdata/rows.txt).
		{"support as a string", permit, terms{redacts}, `"custom"`, false, obliges(redaction), true},
		{"support as an object", permit, terms{redacts}, `{"custom":true}`, false, obliges(redaction), true},
		{"support as true", permit, terms{redacts}, `true`, false, obliges(redaction), true},
		{"support as null", permit, terms{redacts}, `null`, false, obliges(redaction), true},
		{"support with a number", permit, terms{redacts}, `["custom",1]`, false, obliges(redaction), true},
		{"support with a null", permit, terms{redacts}, `["custom",null]`, false, obliges(redaction), true},
		{"support in an array", permit, terms{redacts}, `[["custom"]]`, false, obliges(redaction), true},

		// A denial has its obligations (OB-2 in conformance/testdata/rows.txt).
		{"a forbid that ends sessions", forbid, terms{ends}, silent, false, obliges(termination), false},
		{"a forbid that steps up", forbid, terms{stepsUp}, nothing, false, obliges(stepUp), false},
		{"two forbids", forbid, terms{ends, notifies}, silent, false, obliges(termination, notification), false},

		// An approval is required only if every permit requires one.
		{"an approval", permit, terms{bySRE}, every, true, obliges(sreApproval), false},
		{"an approval for a silent PEP", permit, terms{bySRE}, silent, false, obliges(sreApproval), true},
		{"an approval for a PEP that meets nothing", permit, terms{bySRE}, nothing, false, obliges(sreApproval), true},
		{"an approval that one permit needs", permit, terms{bySRE, plain}, silent, true, nil, false},
		{"an approval that another needs", permit, terms{plain, bySRE}, silent, true, nil, false},
		{"an approval that all need", permit, terms{byLawyers, bySRE}, every, true, obliges(lawApproval), false},
		{"an approval that all need, by the first", permit, terms{bySRE, byLawyers}, every, true, obliges(sreApproval), false},
		{"an approval beside an obligation", permit, terms{bySRE, notifies}, silent, true, obliges(notification), false},
		{"an approval behind obligations", permit, terms{{Approval: "sre", Obligations: notifies.Obligations}, {Approval: "lawyers", Obligations: stepsUp.Obligations}},
			every, true, obliges(notification, stepUp, sreApproval), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := obligations.Compose(test.permitted, test.determining, obligations.Request{Support: obligations.ReadSupport(jsontext.Value(test.support))})
			want := obligations.Requirements{Decision: test.want, Obligations: test.obligations}
			if len(test.obligations) > 0 && !test.withheld {
				want.Context = &authzen.DecisionContext{Obligations: test.obligations}
			}
			if missing := test.obligations; test.withheld && !strings.Contains(string(missing[0].Properties), "approval_required") {
				want.Context = lacks(missing[len(missing)-1].Type)
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(obligations.Requirements{}, "Template")); diff != "" {
				t.Errorf("demand (-want +got):\n%s", diff)
			}
		})
	}
}

// Reasons are joined in the order of the policies, each sentence once.
func TestComposeReasons(t *testing.T) {
	says := func(user, admin string) *obligations.Terms {
		return &obligations.Terms{ReasonUser: user, ReasonAdmin: admin}
	}
	tests := []struct {
		name        string
		determining []*obligations.Terms
		want        *authzen.DecisionContext
	}{
		{"none", []*obligations.Terms{says("", ""), plain}, nil},
		{"one", []*obligations.Terms{plain, says("Closed.", "")}, &authzen.DecisionContext{ReasonUser: authzen.Reason{"en": "Closed."}}},
		{"for both", []*obligations.Terms{says("Closed.", "By hand.")},
			&authzen.DecisionContext{ReasonUser: authzen.Reason{"en": "Closed."}, ReasonAdmin: authzen.Reason{"en": "By hand."}}},
		{"several", []*obligations.Terms{says("B.", "x"), says("A.", ""), says("B.", "x"), says("C.", "y")},
			&authzen.DecisionContext{ReasonUser: authzen.Reason{"en": "B. A. C."}, ReasonAdmin: authzen.Reason{"en": "x y"}}},
	}
	for _, test := range tests {
		for _, permitted := range []bool{permit, forbid} {
			got := obligations.Compose(permitted, test.determining, obligations.Request{})
			if diff := cmp.Diff(obligations.Requirements{Decision: permitted, Context: test.want}, got); diff != "" {
				t.Errorf("%s, permitted %v (-want +got):\n%s", test.name, permitted, diff)
			}
		}
	}

	// A withheld permit has its reason and no obligations.
	got := obligations.Compose(permit, []*obligations.Terms{{ReasonUser: "Ask first.", Approval: "sre"}}, obligations.Request{})
	want := obligations.Requirements{Context: &authzen.DecisionContext{ReasonUser: authzen.Reason{"en": "Ask first."}}, Obligations: obliges(sreApproval), Template: "sre"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("withheld (-want +got):\n%s", diff)
	}
}

// An approval can lift a denial if every determining policy allows it. A valid approval is not
// requested again (AR-8, AR-116 in conformance/testdata/rows.txt).
func TestComposeTemplate(t *testing.T) {
	type terms = []*obligations.Terms
	liftedBy := func(template string) *obligations.Terms { return &obligations.Terms{Requestable: template} }
	const every = `["step-up","notification","session_termination","custom"]`
	tests := []struct {
		name        string
		permitted   bool
		determining terms
		support     string
		approved    string
		want        string
		decision    bool
	}{
		{"a plain permit", permit, terms{plain}, "", "", "", true},
		{"a plain forbid", forbid, terms{plain}, "", "", "", false},
		{"no policy at all", forbid, nil, "", "", "", false},
		{"a permit that waits", permit, terms{bySRE}, "", "", "sre", false},
		{"a permit that waits, for a PEP that can", permit, terms{bySRE}, every, "", "sre", true},
		{"a permit that is approved", permit, terms{bySRE}, "", "sre", "", true},
		{"a permit that is approved otherwise", permit, terms{bySRE}, "", "lawyers", "sre", false},
		{"two permits that wait, one approved", permit, terms{bySRE, byLawyers}, "", "lawyers", "", true},
		{"a permit that waits, and is withheld anyway", permit, terms{{Approval: "sre", Obligations: stepsUp.Obligations}}, "", "", "", false},
		{"a forbid that can be lifted", forbid, terms{liftedBy("sre")}, "", "", "sre", false},
		{"two that can", forbid, terms{liftedBy("sre"), liftedBy("lawyers")}, "", "", "sre", false},
		{"two, of which one cannot", forbid, terms{liftedBy("sre"), plain}, "", "", "", false},
		{"one that the approval does not lift", forbid, terms{liftedBy("sre")}, "", "sre", "", false},
		{"one that another approval would lift", forbid, terms{liftedBy("sre")}, "", "lawyers", "sre", false},
		{"a forbid beside which permits wait", forbid, terms{{Approval: "sre"}}, "", "", "", false},
	}
	for _, test := range tests {
		got := obligations.Compose(test.permitted, test.determining, obligations.Request{Support: obligations.ReadSupport(jsontext.Value(test.support)), Approved: test.approved})
		if got.Template != test.want || got.Decision != test.decision {
			t.Errorf("%s: template %q, decision %v", test.name, got.Template, got.Decision)
		}
	}
}

// After the approval, a permit has no reason to wait.
func TestComposeApprovedReason(t *testing.T) {
	waits := &obligations.Terms{ReasonUser: "Ask first.", Approval: "sre"}
	got := obligations.Compose(permit, []*obligations.Terms{waits, {ReasonUser: "Mind the gap."}}, obligations.Request{Approved: "sre"})
	want := obligations.Requirements{Decision: true, Context: &authzen.DecisionContext{ReasonUser: authzen.Reason{"en": "Mind the gap."}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("demand (-want +got):\n%s", diff)
	}
}

// Composing does not modify the shared terms.
func TestComposeKeepsTerms(t *testing.T) {
	terms := []*obligations.Terms{asks("notification", `{"to":"soc","body":"b"}`, false), asks("custom", `{}`, false)}
	first := obligations.Compose(permit, terms, obligations.Request{})
	first.Obligations[0].ID, first.Obligations[1].Type = "changed", "changed"
	want := obliges(notification, obligation("custom", `{}`))
	if diff := cmp.Diff(want, obligations.Compose(permit, terms, obligations.Request{}).Obligations); diff != "" {
		t.Errorf("obligations of the same terms (-want +got):\n%s", diff)
	}
}

// A permit without determining policies does not panic.
func TestComposeOfNothing(t *testing.T) {
	got := obligations.Compose(permit, nil, obligations.Request{})
	if diff := cmp.Diff(obligations.Requirements{Decision: true}, got); diff != "" {
		t.Errorf("demand (-want +got):\n%s", diff)
	}
}

// The name of a template is encoded as a JSON string.
func TestComposeTemplateNames(t *testing.T) {
	for name, properties := range map[string]string{
		`a"b\c`:  `{"action":"approval_required","template":"a\"b\\c"}`,
		"ü\n":    `{"action":"approval_required","template":"ü\n"}`,
		"\u2028": "{\"action\":\"approval_required\",\"template\":\"\u2028\"}",
	} {
		got := obligations.Compose(permit, []*obligations.Terms{{Approval: name}}, obligations.Request{})
		if len(got.Obligations) != 1 || string(got.Obligations[0].Properties) != properties {
			t.Errorf("%q is asked for by %s", name, got.Obligations)
		}
	}
}

func TestSupportHas(t *testing.T) {
	has := func(raw string, want bool) {
		t.Helper()
		if got := obligations.ReadSupport(jsontext.Value(raw)).Has("custom"); got != want {
			t.Errorf("%s has custom: %v", raw, got)
		}
	}
	has(`["custom"]`, true)
	has(`[ "step-up" , "cus\u0074om" ]`, true)
	has(`["custom","custom"]`, true)
	has(`[]`, false)
	has(`["customs"]`, false)
	has(`["custom"`, false)
	has(``, false)
	if (obligations.Support{}).Has("") || obligations.ReadSupport(nil).Has("custom") {
		t.Error("a PEP that said nothing meets something")
	}
}
