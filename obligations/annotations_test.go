package obligations_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations"
	"github.com/policy-service/policy-service/schemas/authzen"
)

const (
	permit = true
	forbid = false
)

type annotations = map[string]string

func TestParse(t *testing.T) {
	one := func(kind, properties string, withhold bool) obligations.Terms {
		return obligations.Terms{Obligations: []obligations.Obligation{{Type: kind, Properties: jsontext.Value(properties), Withhold: withhold}}}
	}
	tests := []struct {
		name   string
		permit bool
		annotations
		want obligations.Terms
	}{
		{"nothing", permit, nil, obligations.Terms{}},
		{"what is not ours", forbid, annotations{"id": "a", "owner": "team", "": "", "Approval": "x", "an_obligation": "x"}, obligations.Terms{}},
		{"an approval", permit, annotations{"approval": "sre"}, obligations.Terms{Approval: "sre"}},
		{"a requestable denial", forbid, annotations{"requestable": "sre"}, obligations.Terms{Requestable: "sre"}},
		{"reasons", forbid, annotations{"reason_user": "Closed.", "reason_admin": "By hand."},
			obligations.Terms{ReasonUser: "Closed.", ReasonAdmin: "By hand."}},
		{"no reasons", permit, annotations{"reason_user": "", "reason_admin": ""}, obligations.Terms{}},

		// The required members of each type, and the default of required_support (OB-9 to OB-15,
		// OB-28 in conformance/testdata/rows.txt). Notifications have a list of recipients, and the
		// subject by default (OB-33, OB-34 in conformance/testdata/rows.txt).
		{"step-up", permit, annotations{"obligation_step_up": `{"acr_value":"aal2"}`},
			one("step-up", `{"acr_value":"aal2"}`, true)},
		{"step-up with methods", forbid, annotations{"obligation_step_up": `{"amr_values":["otp","hwk"],"acr_value":"aal2"}`},
			one("step-up", `{"acr_value":"aal2","amr_values":["otp","hwk"]}`, true)},
		{"notification", permit, annotations{"obligation_notification": `{"to":"soc@example.com","body":"b"}`},
			one("notification", `{"body":"b","decision_subject":"{{subject.id}}","to":["soc@example.com"]}`, false)},
		{"notification of several", permit, annotations{"obligation_notification": `{"to":["soc@example.com","{{subject.id}}"],"body":"b"}`},
			one("notification", `{"body":"b","decision_subject":"{{subject.id}}","to":["soc@example.com","{{subject.id}}"]}`, false)},
		{"notification about another", permit, annotations{"obligation_notification": `{"to":["a"],"body":"b","decision_subject":"{{resource.id}}"}`},
			one("notification", `{"body":"b","decision_subject":"{{resource.id}}","to":["a"]}`, false)},
		{"notification about an entity", permit, annotations{"obligation_notification": `{"to":["a"],"body":"b","decision_subject":{"type":"{{subject.type}}","id":"{{subject.id}}"}}`},
			one("notification", `{"body":"b","decision_subject":{"type":"{{subject.type}}","id":"{{subject.id}}"},"to":["a"]}`, false)},
		{"notification with a topic", forbid, annotations{"obligation_notification": `{"topic":"t","to":"soc","body":""}`},
			one("notification", `{"body":"","decision_subject":"{{subject.id}}","to":["soc"],"topic":"t"}`, false)},
		{"session termination", forbid, annotations{"obligation_session_termination": `{"subject":"alice"}`},
			one("session_termination", `{"subject":"alice"}`, false)},
		{"custom", permit, annotations{"obligation_custom": `{}`}, one("custom", `{}`, true)},
		{"custom with members", permit, annotations{"obligation_custom": ` { "b" : [1.0, null] , "a" : {"z":1,"y":2} } `},
			one("custom", `{"a":{"z":1,"y":2},"b":[1.0,null]}`, true)},

		{"redaction", permit, annotations{"obligation_custom": `{"action":"redact","paths":["/ssn"]}`}, one("custom", `{"action":"redact","paths":["/ssn"]}`, true)},
		{"of another PEP", permit, annotations{"obligation_custom": `{"action":"watermark","text":"{{subject.id}}"}`}, one("custom", `{"action":"watermark","text":"{{subject.id}}"}`, true)},

		// Several obligations of a type are an array. Each has its own required_support.
		{"several of a type", permit, annotations{"obligation_custom": `[{"action":"redact","paths":["/ssn"]}, {"required_support":false,"action":"label","labels":["pii"]}]`},
			obligations.Terms{Obligations: []obligations.Obligation{
				{Type: "custom", Properties: jsontext.Value(`{"action":"redact","paths":["/ssn"]}`), Withhold: true},
				{Type: "custom", Properties: jsontext.Value(`{"action":"label","labels":["pii"]}`)},
			}}},
		{"several recipients with texts of their own", permit, annotations{"obligation_notification": ` [{"to":"a","body":"b"},{"to":"c","body":"d"}]`},
			obligations.Terms{Obligations: []obligations.Obligation{
				{Type: "notification", Properties: jsontext.Value(`{"body":"b","decision_subject":"{{subject.id}}","to":["a"]}`)},
				{Type: "notification", Properties: jsontext.Value(`{"body":"d","decision_subject":"{{subject.id}}","to":["c"]}`)},
			}}},
		{"an array of one", forbid, annotations{"obligation_session_termination": `[{"subject":"alice"}]`}, one("session_termination", `{"subject":"alice"}`, false)},

		// required_support overrides the default and is not a property (OB-28 in
		// conformance/testdata/rows.txt).
		{"support required", permit, annotations{"obligation_notification": `{"to":"a","body":"b","required_support":true}`},
			one("notification", `{"body":"b","decision_subject":"{{subject.id}}","to":["a"]}`, true)},
		{"support not required", permit, annotations{"obligation_custom": `{"required_support":false,"a":1}`},
			one("custom", `{"a":1}`, false)},

		{"several, in the order of their names", permit, annotations{
			"obligation_step_up": `{"acr_value":"a"}`, "obligation_custom": `{"a":1}`, "obligation_notification": `{"to":"a","body":"b"}`, "approval": "sre",
		}, obligations.Terms{Approval: "sre", Obligations: []obligations.Obligation{
			{Type: "custom", Properties: jsontext.Value(`{"a":1}`), Withhold: true},
			{Type: "notification", Properties: jsontext.Value(`{"body":"b","decision_subject":"{{subject.id}}","to":["a"]}`)},
			{Type: "step-up", Properties: jsontext.Value(`{"acr_value":"a"}`), Withhold: true},
		}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := obligations.Parse(test.permit, test.annotations)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("terms (-want +got):\n%s", diff)
			}
		})
	}
}

// A template whose obligation would violate the profile is a fault (OB-27 in
// conformance/testdata/rows.txt).
func TestParseRefuses(t *testing.T) {
	const known = "is not known; known are @approval, @capability, @obligation_custom, @obligation_notification, " +
		"@obligation_session_termination, @obligation_step_up, @reason_admin, @reason_user, @requestable"
	tests := []struct {
		name   string
		permit bool
		annotations
		want []string
	}{
		{"an approval of a forbid", forbid, annotations{"approval": "sre"}, []string{"@approval: stands only on a permit"}},
		{"a requestable permit", permit, annotations{"requestable": "sre"}, []string{"@requestable: stands only on a forbid"}},
		{"an approval by no template", permit, annotations{"approval": ""}, []string{"@approval: needs the name of a template"}},
		{"requestable by no template", forbid, annotations{"requestable": ""}, []string{"@requestable: needs the name of a template"}},

		{"a misspelt obligation", permit, annotations{"obligation_nofitication": `{}`}, []string{"@obligation_nofitication: " + known}},
		{"an obligation of no type", permit, annotations{"obligation": `{}`}, []string{"@obligation: " + known}},
		{"an obligation in hyphens", permit, annotations{"obligation-step-up": `{}`}, []string{"@obligation-step-up: " + known}},
		{"misspelt others", permit, annotations{"approvals": "a", "requestable_by": "b", "reason": "c", "reason_users": "d"}, []string{
			"@approvals: " + known, "@reason: " + known, "@reason_users: " + known, "@requestable_by: " + known,
		}},

		{"no JSON", permit, annotations{"obligation_custom": `{"a":`}, []string{`@obligation_custom: must be a JSON object, or an array of objects: "{\"a\":"`}},
		{"empty", permit, annotations{"obligation_custom": ``}, []string{`@obligation_custom: must be a JSON object, or an array of objects: ""`}},
		{"null", permit, annotations{"obligation_custom": `null`}, []string{`@obligation_custom: must be a JSON object, or an array of objects: "null"`}},
		{"an array of nothing", permit, annotations{"obligation_custom": `[]`}, []string{`@obligation_custom: must be a JSON object, or an array of 1 to 16 objects: "[]"`}},
		{"an array of no objects", permit, annotations{"obligation_custom": `[{},1,[{}],null]`}, []string{
			`@obligation_custom: [1]: must be a JSON object, or an array of objects: "1"`,
			`@obligation_custom: [2]: must be a JSON object, or an array of objects: "[{}]"`,
			`@obligation_custom: [3]: must be a JSON object, or an array of objects: "null"`,
		}},
		{"a broken array", permit, annotations{"obligation_custom": `[{},`}, []string{`@obligation_custom: must be a JSON object, or an array of 1 to 16 objects: "[{},"`}},
		{"too many", permit, annotations{"obligation_custom": `[` + strings.Repeat(`{},`, 16) + `{}]`},
			[]string{`@obligation_custom: must be a JSON object, or an array of 1 to 16 objects: "[` + strings.Repeat(`{},`, 16) + `{}]"`}},
		{"faults of several", permit, annotations{"obligation_custom": `[{"action":"redact","path":"/a"},{"action":"label","labels":["a"]},{"action":"mask","pattern":"("}]`}, []string{
			`@obligation_custom: [0]: redact: the member "path" is not known`,
			`@obligation_custom: [0]: redact: the member "paths" is required`,
			"@obligation_custom: [2]: mask: pattern: error parsing regexp: missing closing ): `(`",
		}},
		{"two objects", permit, annotations{"obligation_custom": `{}{}`}, []string{`@obligation_custom: must be a JSON object, or an array of objects: "{}{}"`}},
		{"a member twice", permit, annotations{"obligation_custom": `{"a":1,"\u0061":2}`},
			[]string{`@obligation_custom: must be a JSON object, or an array of objects: "{\"a\":1,\"\\u0061\":2}"`}},

		{"redaction of nothing", permit, annotations{"obligation_custom": `{"action":"redact"}`}, []string{`@obligation_custom: redact: the member "paths" is required`}},
		{"a pattern that is none", permit, annotations{"obligation_custom": `{"action":"mask","pattern":"("}`}, []string{"@obligation_custom: mask: pattern: error parsing regexp: missing closing ): `(`"}},
		{"a label from the request", permit, annotations{"obligation_custom": `{"action":"label","labels":["{{resource.id}}"]}`},
			[]string{`@obligation_custom: label: the label "{{resource.id}}" must have 1 to 64 letters, digits and _.:/-, and begin with a letter or a digit`}},
		{"an action in another spelling", permit, annotations{"obligation_custom": `{"action":"max-bytes","bytes":1}`}, []string{`@obligation_custom: the action "max-bytes" is not known: did you mean "max_bytes"?`}},

		{"a required member missing", permit, annotations{"obligation_step_up": `{}`}, []string{`@obligation_step_up: needs the string "acr_value"`}},
		{"a required member of another type", permit, annotations{"obligation_step_up": `{"acr_value":2}`}, []string{`@obligation_step_up: needs the string "acr_value"`}},
		{"a required member in another case", permit, annotations{"obligation_session_termination": `{"Subject":"a"}`},
			[]string{`@obligation_session_termination: needs the string "subject"`}},
		{"a notification to nobody", permit, annotations{"obligation_notification": `{"to":[],"body":"b"}`}, []string{`@obligation_notification: needs a string or a list of strings as "to"`}},
		{"a notification to a number", permit, annotations{"obligation_notification": `{"to":["a",1],"body":"b"}`}, []string{`@obligation_notification: needs a string or a list of strings as "to"`}},
		{"a notification without", permit, annotations{"obligation_notification": `{"body":"b"}`}, []string{`@obligation_notification: needs a string or a list of strings as "to"`}},
		{"a notification about a number", permit, annotations{"obligation_notification": `{"to":"a","body":"b","decision_subject":1}`}, []string{"@obligation_notification: decision_subject must be a string or an object"}},
		{"support that is no boolean", permit, annotations{"obligation_custom": `{"required_support":"true"}`},
			[]string{`@obligation_custom: required_support must be true or false, not "true"`}},

		{"all at once", forbid, annotations{"approval": "a", "obligation_custom": `1`, "obligation_notification": `{"to":"a"}`, "reasons": ""}, []string{
			"@approval: stands only on a permit",
			`@obligation_custom: must be a JSON object, or an array of objects: "1"`,
			`@obligation_notification: needs the string "body"`,
			"@reasons: " + known,
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := obligations.Parse(test.permit, test.annotations)
			if err == nil {
				t.Fatal("there is no fault")
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// An optional member must have its type if present (OB-10, OB-13 in conformance/testdata/rows.txt).
func TestParseRefusesOptionalMembers(t *testing.T) {
	for key, values := range map[string][]string{
		"obligation_step_up":      {`{"acr_value":"a","amr_values":"otp hwk"}`, `{"acr_value":"a","amr_values":[1]}`, `{"acr_value":"a","amr_values":null}`},
		"obligation_notification": {`{"to":"a","body":"b","topic":1}`, `{"to":"a","body":"b","topic":["t"]}`},
	} {
		for _, value := range values {
			if terms, err := obligations.Parse(permit, annotations{key: value}); err == nil {
				t.Errorf("@%s(%s) is read as %+v", key, value, terms.Obligations)
			}
		}
	}
}

// Policies can use every type of the vocabulary and no other (OB-4, OB-17 in
// conformance/testdata/rows.txt).
func TestParseKnowsEveryType(t *testing.T) {
	const all = `{"acr_value":"a","to":"b","body":"c","subject":"d"}`
	for _, name := range authzen.ObligationTypes() {
		key := "obligation_" + strings.ReplaceAll(name, "-", "_")
		terms, err := obligations.Parse(permit, annotations{key: all})
		if err != nil || len(terms.Obligations) != 1 || terms.Obligations[0].Type != name {
			t.Errorf("@%s is read as %+v, %v", key, terms.Obligations, err)
		}
	}
}

// The draft of July 2026 has a single string, and no default members.
func TestNotifyOne(t *testing.T) {
	for _, test := range []struct{ written, want string }{
		{`{"to":"a","body":"b"}`, `{"body":"b","to":"a"}`},
		{`{"to":["a"],"body":"b","topic":"t"}`, `{"body":"b","to":"a","topic":"t"}`},
		{`{"to":"a","body":"b","decision_subject":"{{resource.id}}"}`, `{"body":"b","decision_subject":"{{resource.id}}","to":"a"}`},
		{`{"to":["a","b"],"body":"b"}`, ""},
	} {
		terms, err := obligations.Parse(permit, annotations{"obligation_notification": test.written, "obligation_custom": `{"to":["a","b"]}`})
		if err != nil {
			t.Fatal(err)
		}
		err = terms.NotifyOne()
		if (err == nil) != (test.want != "") || err == nil && string(terms.Obligations[1].Properties) != test.want {
			t.Errorf("%s becomes %s, %v", test.written, terms.Obligations[1].Properties, err)
		}
		if got := string(terms.Obligations[0].Properties); got != `{"to":["a","b"]}` {
			t.Errorf("another obligation becomes %s", got)
		}
	}
}
