package authzen_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/schemas/authzen"
)

const every = `"supported_obligations":["step-up","notification","session_termination","custom"]`

func TestAuthorizeRequestEvaluation(t *testing.T) {
	agent := authzen.Subject{Type: "agent", ID: "agent-1"}
	tests := []struct {
		name string
		body string
		want authzen.EvaluationRequest
	}{
		{
			"what is required",
			authorize,
			authzen.EvaluationRequest{
				Subject:  agent,
				Action:   authzen.Action{Name: "tool.invoke"},
				Resource: authzen.Resource{Type: "tool", ID: "jira"},
				Context:  jsontext.Value(`{` + every + `}`),
			},
		},
		{
			"all there is",
			`{
				"tenant_id": "tenant-xyz",
				"actor": {"actor_id": "agent-workflow-123", "actor_type": "agent", "roles": ["workflow_orchestrator", "reader"], "department_id": "dept-eng", "act": {"sub": "alice"}},
				"action": "tool.invoke",
				"resource": {"type": "tool", "id": "jira-server-1:create_ticket", "labels": {"category": "sensitive", "integration": "jira", "impact": "write"}},
				"purpose": "Resolve user issue #555",
				"context": {"workflow_id": "wf-abc", "agent_invocation_id": "inv-789"}
			}`,
			authzen.EvaluationRequest{
				Subject: authzen.Subject{
					Type: "agent", ID: "agent-workflow-123",
					Properties: jsontext.Value(`{"roles":["workflow_orchestrator","reader"],"department_id":"dept-eng","act":{"sub":"alice"}}`),
				},
				Action: authzen.Action{Name: "tool.invoke"},
				Resource: authzen.Resource{
					Type: "tool", ID: "jira-server-1:create_ticket",
					Properties: jsontext.Value(`{"category": "sensitive", "integration": "jira", "impact": "write"}`),
				},
				Context: jsontext.Value(`{"workflow_id": "wf-abc", "agent_invocation_id": "inv-789",` + every + `,"purpose":"Resolve user issue #555"}`),
			},
		},
		{
			"empty members",
			with(t, with(t, with(t, with(t, authorize, "/context", `{ }`), "/purpose", `""`), "/resource/labels", `{}`), "/actor/roles", `[]`),
			authzen.EvaluationRequest{
				Subject:  agent,
				Action:   authzen.Action{Name: "tool.invoke"},
				Resource: authzen.Resource{Type: "tool", ID: "jira", Properties: jsontext.Value(`{}`)},
				Context:  jsontext.Value(`{` + every + `}`),
			},
		},
		{
			"null members",
			with(t, with(t, with(t, with(t, authorize, "/context", `null`), "/purpose", `null`), "/resource/labels", `null`), "/actor/act", `null`),
			authzen.EvaluationRequest{
				Subject:  agent,
				Action:   authzen.Action{Name: "tool.invoke"},
				Resource: authzen.Resource{Type: "tool", ID: "jira"},
				Context:  jsontext.Value(`{` + every + `}`),
			},
		},
		{
			"a purpose in the context where there is no other",
			with(t, authorize, "/context", `{"purpose":{"a":1}}`),
			authzen.EvaluationRequest{
				Subject:  agent,
				Action:   authzen.Action{Name: "tool.invoke"},
				Resource: authzen.Resource{Type: "tool", ID: "jira"},
				Context:  jsontext.Value(`{"purpose":{"a":1},` + every + `}`),
			},
		},
		{
			"any text",
			with(t, with(t, with(t, authorize, "/purpose", `"\"}, \u2028 <ü> 😀 \u0000"`), "/actor/roles", `["a\"]","ß",""]`), "/resource/labels", `{"é":"\u00e9"}`),
			authzen.EvaluationRequest{
				Subject:  authzen.Subject{Type: "agent", ID: "agent-1", Properties: jsontext.Value(`{"roles":["a\"]","ß",""]}`)},
				Action:   authzen.Action{Name: "tool.invoke"},
				Resource: authzen.Resource{Type: "tool", ID: "jira", Properties: jsontext.Value(`{"é":"\u00e9"}`)},
				Context:  jsontext.Value(`{` + every + `,"purpose":"\"}, ` + "\u2028" + ` <ü> 😀 \u0000"}`),
			},
		},
		{
			"labels with the names of members",
			with(t, authorize, "/resource/labels", `{"id":"other","type":"other","properties":{}}`),
			authzen.EvaluationRequest{
				Subject:  agent,
				Action:   authzen.Action{Name: "tool.invoke"},
				Resource: authzen.Resource{Type: "tool", ID: "jira", Properties: jsontext.Value(`{"id":"other","type":"other","properties":{}}`)},
				Context:  jsontext.Value(`{` + every + `}`),
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := readAuthorize(t, test.body).Evaluation()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got, printed); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if text, err := json.Marshal(got); err != nil {
				t.Errorf("encode: %v", err)
			} else if err := authzen.Unmarshal(text, new(authzen.EvaluationRequest)); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
}

// A context cannot say what the request says elsewhere, however it is written.
func TestAuthorizeRequestConflicts(t *testing.T) {
	want := authzen.Invalid("/context", "must not have purpose or supported_obligations of its own")
	for _, context := range []string{
		`{"supported_obligations":["custom"]}`, `{"supported_obligations":null}`, `{"supported_\u006fbligations":[]}`,
		`{"purpose":"other"}`, `{"a":1,"p\u0075rpose":null}`,
	} {
		body := with(t, with(t, authorize, "/purpose", `"support"`), "/context", context)
		got, err := readAuthorize(t, body).Evaluation()
		if diff := cmp.Diff(error(want), err); diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", body, got, diff)
		}
	}
	for _, context := range []string{`{"Purpose":1,"a":{"purpose":1,"supported_obligations":1}}`, `{"SUPPORTED_OBLIGATIONS":1}`} {
		body := with(t, with(t, authorize, "/purpose", `"support"`), "/context", context)
		if _, err := readAuthorize(t, body).Evaluation(); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// Making the AuthZEN request leaves the other as it was.
func TestAuthorizeRequestEvaluationIsPure(t *testing.T) {
	body := with(t, with(t, authorize, "/context", ` { "a" : 1 } `), "/resource/labels", `{"b":2}`)
	request := readAuthorize(t, body)
	first, err := request.Evaluation()
	if err != nil {
		t.Fatal(err)
	}
	second, err := request.Evaluation()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("evaluations:\n%s", diff)
	}
	if diff := cmp.Diff(readAuthorize(t, body), request); diff != "" {
		t.Errorf("request (-before +after):\n%s", diff)
	}
}

func TestAuthorize(t *testing.T) {
	obligations := func(o ...authzen.Obligation) *authzen.DecisionContext {
		return &authzen.DecisionContext{Obligations: o}
	}
	obligation := func(id, kind, properties string) authzen.Obligation {
		return authzen.Obligation{ID: id, Type: kind, Properties: jsontext.Value(properties)}
	}
	tests := []struct {
		name     string
		decision authzen.Decision
		want     string
	}{
		{"permitted", authzen.Decision{Decision: true}, `{"allow":true,"obligations":{}}`},
		{"denied", authzen.Decision{}, `{"allow":false,"obligations":{}}`},
		{"an empty context", authzen.Decision{Decision: true, Context: &authzen.DecisionContext{}}, `{"allow":true,"obligations":{}}`},
		{
			"approval",
			authzen.Decision{Decision: true, Context: obligations(obligation("1", "custom", `{"action":"approval_required","template":"sre"}`))},
			`{"allow":true,"obligations":{"approval_required":true},"approval":{"template":"sre"}}`,
		},
		{
			"step-up",
			authzen.Decision{Decision: true, Context: obligations(obligation("1", "step-up", `{"acr_value":"gold","amr_values":["hwk"]}`))},
			`{"allow":true,"obligations":{"step-up":[{"acr_value":"gold","amr_values":["hwk"]}]}}`,
		},
		{
			"notification",
			authzen.Decision{Decision: true, Context: obligations(
				obligation("1", "notification", `{"to":"a","body":"b"}`), obligation("2", "notification", `{"to":"c","body":"d"}`))},
			`{"allow":true,"obligations":{"notification":[{"to":"a","body":"b"},{"to":"c","body":"d"}]}}`,
		},
		{
			"session termination, of a denial",
			authzen.Decision{Context: obligations(obligation("1", "session_termination", `{"subject":"alice"}`))},
			`{"allow":false,"obligations":{"session_termination":[{"subject":"alice"}]}}`,
		},
		{
			"custom",
			authzen.Decision{Decision: true, Context: obligations(
				obligation("1", "custom", `{"action":"mask","template":{"fields":["ssn"]}}`),
				obligation("2", "custom", `{"action":["approval_required"]}`),
				obligation("3", "custom", `{"Action":"approval_required"}`),
				obligation("4", "custom", `{}`))},
			`{"allow":true,"obligations":{"custom":[{"action":"mask","template":{"fields":["ssn"]}},` +
				`{"action":["approval_required"]},{"Action":"approval_required"},{}]}}`,
		},
		{
			"each kind",
			authzen.Decision{Decision: true, Context: obligations(
				obligation("1", "custom", `{"action":"approval_required","template":"sre","quorum":2}`),
				obligation("2", "custom", `{"action":"mask"}`),
				obligation("3", "notification", `{"to":"a","body":"b"}`),
				obligation("4", "step-up", `{"acr_value":"gold"}`),
				obligation("5", "session_termination", `{"subject":"alice"}`))},
			`{"allow":true,"obligations":{"approval_required":true,"step-up":[{"acr_value":"gold"}],"notification":[{"to":"a","body":"b"}],` +
				`"session_termination":[{"subject":"alice"}],"custom":[{"action":"mask"}]},"approval":{"template":"sre"}}`,
		},
		{
			"a reason",
			authzen.Decision{Context: &authzen.DecisionContext{
				ReasonUser:  authzen.Reason{"de": "Nur im Dienst.", "en": "Only on duty."},
				ReasonAdmin: authzen.Reason{"en": "policy duty"},
			}},
			`{"allow":false,"obligations":{},"reason":"Only on duty."}`,
		},
		{
			"a reason in another language",
			authzen.Decision{Context: &authzen.DecisionContext{ReasonUser: authzen.Reason{"de": "Nur im Dienst."}}},
			`{"allow":false,"obligations":{}}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			response, err := authzen.Authorize(&test.decision)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, marshal(t, response)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// An obligation that the shape cannot say is an error, never left out.
func TestAuthorizeRefusesUnknownObligations(t *testing.T) {
	for _, o := range []authzen.Obligation{
		{ID: "o-1", Type: "", Properties: jsontext.Value(`{}`)},
		{ID: "o-1", Type: "Custom", Properties: jsontext.Value(`{}`)},
		{ID: "o-1", Type: "watermark", Properties: jsontext.Value(`{}`)},
		{ID: "o-1", Type: "custom"},
		{ID: "o-1", Type: "custom", Properties: jsontext.Value(`[]`)},
		{ID: "o-1", Type: "custom", Properties: jsontext.Value(`{"action":"approval_required","template":5}`)},
	} {
		decision := authzen.Decision{Decision: true, Context: &authzen.DecisionContext{Obligations: []authzen.Obligation{o}}}
		response, err := authzen.Authorize(&decision)
		if err == nil || response != nil || !strings.Contains(err.Error(), "o-1") {
			t.Errorf("%v: %v, %v", o, response, err)
		}
	}
}

// printed shows JSON texts as text where they differ.
var printed = cmp.Transformer("text", func(v jsontext.Value) string { return string(v) })

func readAuthorize(t testing.TB, body string) *authzen.AuthorizeRequest {
	t.Helper()
	var r authzen.AuthorizeRequest
	if err := authzen.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return &r
}

func marshal(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLocated(t *testing.T) {
	for path, want := range map[string]string{
		"/subject/type":                   "/actor/actor_type",
		"/subject/properties/roles/1":     "/actor/roles/1",
		"/resource/properties/impact":     "/resource/labels/impact",
		"/resource/type":                  "/resource/type",
		"/context/purpose":                "/purpose",
		"/context/purposeful":             "/context/purposeful",
		"/context/workflow_id":            "/context/workflow_id",
		"/subject/properties/roles_extra": "/actor/properties/roles_extra",
	} {
		got := new(authzen.AuthorizeRequest).Located(authzen.Invalid(path, "is odd"))
		if got.Path != want || got.Reason != "is odd" {
			t.Errorf("%s is located at %s (%s), not at %s", path, got.Path, got.Reason, want)
		}
	}
}
