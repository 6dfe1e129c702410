package evaluation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

const approvers = `
@id("approvers") permit (principal in Role::"approver", action == Action::"approval.approve", resource)
unless { principal has away && principal.away };
@id("supervised") @obligation_custom("{\"action\":\"log\"}") permit (principal == user::"sam", action == Action::"approval.approve", resource);
@id("sre") forbid (principal, action, resource) when { resource.template == "sre" && !(principal has sre) };
-- entities.json --
[{"uid": {"type": "user", "id": "carol"}, "attrs": {"email": "carol@example.com", "sre": true}, "parents": [{"type": "Role", "id": "approver"}]},
 {"uid": {"type": "user", "id": "dave"}, "attrs": {"email": 7}, "parents": [{"type": "Role", "id": "approver"}]},
 {"uid": {"type": "user", "id": "erin"}, "attrs": {"away": true}, "parents": [{"type": "Role", "id": "approver"}]},
 {"uid": {"type": "user", "id": "sam"}, "attrs": {"sre": true}, "parents": []},
 {"uid": {"type": "user", "id": "alice"}, "attrs": {}, "parents": []},
 {"uid": {"type": "Role", "id": "approver"}, "attrs": {}, "parents": []}]
`

// Those who may decide are found by the policies, with an attribute that is text. A permit with an
// obligation is none, and the log gets no entry.
func TestPermittedSubjects(t *testing.T) {
	e, log := engine(t, approvers, evaluation.Config{})
	before := log.Head().Size
	for template, want := range map[string][]evaluation.PermittedSubject{
		"any": {{ID: "carol", Attribute: "carol@example.com"}, {ID: "dave"}},
		"sre": {{ID: "carol", Attribute: "carol@example.com"}},
	} {
		got, err := e.PermittedSubjects(t.Context(), "", &authzen.EvaluationRequest{
			Subject: authzen.Subject{Type: "user"}, Action: authzen.Action{Name: "approval.approve"},
			Resource: authzen.Resource{Type: "access_request", ID: "arq_1", Properties: []byte(`{"template":"` + template + `"}`)},
		}, "email", 10)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", template, diff)
		}
	}
	if after := log.Head().Size; after != before {
		t.Errorf("the log has %d entries, %d before", after, before)
	}
}

// A template that names a way that the service does not have is refused with its place.
func TestUnknownWayIsRefused(t *testing.T) {
	const store = `@id("all") permit (principal, action, resource);
-- config.yaml --
approval_templates:
  sre:
    notify: [slack-ops, slack-obs]
`
	for _, test := range []struct {
		ways []string
		want string
	}{
		{nil, ""},
		{[]string{"slack-ops", "slack-obs"}, ""},
		{[]string{"slack-ops", "mail"}, `config.yaml:3:25: approval_templates.sre.notify.1: the service has no way "slack-obs" (did you mean "slack-ops"?)`},
		{[]string{}, "approval_templates.sre.notify.0: the service has no way"},
	} {
		log := openLog(t, t.TempDir(), decisionlog.Config{})
		_, err := evaluation.NewEngine(log, evaluation.Config{Ways: test.ways}).Reload(t.Context(), evaluation.Change{Archive: archive(store), Cause: "start"})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q: %v", test.ways, err)
		}
	}
}
