package authzen_test

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// AZ-11, AZ-16, AZ-32, AZ-85: the bytes of each answer.
func TestAnswers(t *testing.T) {
	permit, deny := authzen.Decision{Decision: true}, authzen.Decision{}
	failed := authzen.Decision{Context: &authzen.DecisionContext{Error: &authzen.Error{Status: 400, Message: "/evaluations/1/resource is required"}}}
	tests := []struct {
		name  string
		value any
		want  string
	}{
		{"permit", permit, `{"decision":true}`},
		{"deny", deny, `{"decision":false}`},
		{"AZ-56 nothing found", authzen.EntitySearchResponse{}, `{"results":[]}`},
		{"AZ-59 a page first", authzen.ActionSearchResponse{Page: &authzen.Page{}, Results: []authzen.FoundAction{{Name: "read"}}},
			`{"page":{"next_token":"","count":0},"results":[{"name":"read"}]}`},
		{"an empty context", authzen.Decision{Context: &authzen.DecisionContext{Obligations: []authzen.Obligation{}, ReasonUser: authzen.Reason{}}}, `{"decision":false}`},
		{
			"a context",
			authzen.Decision{Context: &authzen.DecisionContext{
				ReasonUser:  authzen.Reason{"zh": "不", "en": "no", "de": "nein", "fr": "non", "es": "no"},
				ReasonAdmin: authzen.Reason{"en": "policy \"duty\""},
				Obligations: []authzen.Obligation{{ID: "1", Type: authzen.ObligationNotification, Properties: jsontext.Value(`{ "to" : "a" }`)}},
			}},
			`{"decision":false,"context":{"reason_user":{"de":"nein","en":"no","es":"no","fr":"non","zh":"不"},"reason_admin":{"en":"policy \"duty\""},` +
				`"obligations":[{"id":"1","type":"notification","properties":{"to":"a"}}]}}`,
		},
		{"a batch", authzen.EvaluationsResponse{Evaluations: []authzen.Decision{permit, deny, failed}},
			`{"evaluations":[{"decision":true},{"decision":false},{"decision":false,"context":{"error":{"status":400,"message":"/evaluations/1/resource is required"}}}]}`},
		{"a batch without items", authzen.EvaluationsResponse{Decision: &permit}, `{"decision":true}`},
		{"an error", authzen.NewErrorResponse(authzen.Error{Status: 404, Message: "Not Found"}), `{"error":{"status":404,"message":"Not Found"},"message":"Not Found"}`},
		{"metadata", authzen.Metadata{PolicyDecisionPoint: "https://pdp.example.com", AccessEvaluationEndpoint: "https://pdp.example.com/access/v1/evaluation", Capabilities: []string{}},
			`{"policy_decision_point":"https://pdp.example.com","access_evaluation_endpoint":"https://pdp.example.com/access/v1/evaluation"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for range 20 { // what a map shuffles does not show the first time
				if diff := cmp.Diff(test.want, marshal(t, test.value)); diff != "" {
					t.Fatalf("-want +got:\n%s", diff)
				}
			}
		})
	}
}

// A request that was read is written with its members in one order, without
// what was unknown, null or white space; the values inside are untouched.
func TestRequestsAreCanonical(t *testing.T) {
	tests := []struct {
		name, body, want string
		rewrite          func(t testing.TB, body string) string
	}{
		{
			"evaluation",
			` { "unknown" : 1, "context" : { "b" : 9007199254740993 , "a" : [ 1.10 , null ] }, "resource" : { "id" : "r\u0031", "type" : "record", "properties" : null },
				"action" : { "properties" : { "s" : "\u0041\/" }, "name" : "read" }, "s\u0075bject" : { "type" : "", "id" : "ä" } } `,
			`{"subject":{"type":"","id":"ä"},"action":{"name":"read","properties":{"s":"A/"}},"resource":{"type":"record","id":"r1"},` +
				`"context":{"b":9007199254740993,"a":[1.10,null]}}`,
			rewrite[authzen.EvaluationRequest],
		},
		{
			"evaluations",
			` { "options" : { "x" : 1 , "evaluations_semantic" : "execute_all" }, "evaluations" : [ { "b" : 1 , "a" : 2 } , "x" , null ],
				"resource" : { "id" : 5 }, "action" : null } `,
			`{"resource":{"id":5},"evaluations":[{"b":1,"a":2},"x",null],"options":{"evaluations_semantic":"execute_all"}}`,
			rewrite[authzen.EvaluationsRequest],
		},
		{"evaluations, none", `{"evaluations":[],"options":{}}`, `{}`, rewrite[authzen.EvaluationsRequest]},
		{
			"authorize",
			` { "context" : {}, "purpose" : "p", "resource" : { "labels" : { "z" : 1 , "a" : 1e3 }, "id" : "i", "type" : "t" }, "action" : "a", "unknown" : [],
				"actor" : { "department_id" : "d", "roles" : [ "r" ], "actor_type" : "agent", "actor_id" : "x", "name" : "y" }, "tenant_id" : "acme" } `,
			`{"tenant_id":"acme","actor":{"actor_id":"x","actor_type":"agent","roles":["r"],"department_id":"d"},"action":"a",` +
				`"resource":{"type":"t","id":"i","labels":{"z":1,"a":1e3}},"purpose":"p","context":{}}`,
			rewrite[authzen.AuthorizeRequest],
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := test.rewrite(t, test.body)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if again := test.rewrite(t, got); again != got {
				t.Errorf("written once %s, twice %s", got, again)
			}
		})
	}
}

// rewrite reads a body and writes it.
func rewrite[T any](t testing.TB, body string) string {
	t.Helper()
	var value T
	if err := authzen.Unmarshal([]byte(body), &value); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return string(text)
}

// AppendTo writes what encoding by reflection writes.
// A batch is written as encoding by reflection writes it.
func TestBatchAppendTo(t *testing.T) {
	for _, r := range []authzen.EvaluationsRequest{
		{},
		{Context: jsontext.Value(`{}`)},
		{Evaluations: []jsontext.Value{jsontext.Value(`{}`)}},
		{
			Subject: jsontext.Value(`{"type":"user","id":"\u00e9"}`), Action: jsontext.Value(`{"name":"read"}`), Resource: jsontext.Value(`{"type":"doc"}`), Context: jsontext.Value(`{"c":null}`),
			Evaluations: []jsontext.Value{jsontext.Value(`{"resource":{"id":"1"}}`), jsontext.Value(`7`)}, Options: authzen.Options{Semantic: authzen.DenyOnFirstDeny},
		},
	} {
		want, err := json.Marshal(&r, jsontext.PreserveRawStrings(true))
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.AppendTo([]byte("x"))
		if err != nil || string(got) != "x"+string(want) {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

func BenchmarkAppendBatch(b *testing.B) {
	r := authzen.EvaluationsRequest{Subject: jsontext.Value(`{"type":"user","id":"alice","properties":{"role":"admin"}}`), Action: jsontext.Value(`{"name":"read"}`)}
	for range 50 {
		r.Evaluations = append(r.Evaluations, jsontext.Value(`{"resource":{"type":"record","id":"record-1","properties":{"status":"active","owner":"bob"}}}`))
	}
	var buffer []byte
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buffer, _ = r.AppendTo(buffer[:0])
		}
	})
	b.Run("reflection", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			text, _ := json.Marshal(&r, jsontext.PreserveRawStrings(true))
			buffer = append(buffer[:0], text...)
		}
	})
}

func TestAppendTo(t *testing.T) {
	for _, r := range []authzen.EvaluationRequest{
		{},
		{Subject: authzen.Subject{Type: "user", ID: "é\"<\n"}, Action: authzen.Action{Name: "read"}, Resource: authzen.Resource{Type: "doc", ID: "1"}},
		{
			Subject:  authzen.Subject{Type: "user", ID: "alice", Properties: jsontext.Value(`{}`)},
			Action:   authzen.Action{Name: "read", Properties: jsontext.Value(`{"a":[1]}`)},
			Resource: authzen.Resource{Type: "doc", ID: "1", Properties: jsontext.Value(`{"b":"\u00e9"}`)},
			Context:  jsontext.Value(`{"c":null}`),
		},
	} {
		want, err := json.Marshal(&r, jsontext.PreserveRawStrings(true))
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.AppendTo([]byte("x"))
		if err != nil || string(got) != "x"+string(want) {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if _, err := (&authzen.EvaluationRequest{Action: authzen.Action{Name: "\xff"}}).AppendTo(nil); err == nil {
		t.Error("text that is not UTF-8 is written")
	}
}
