package authzen_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// hostile are bodies of no shape in particular.
var hostile = []string{
	``, ` `, `null`, `[]`, `"x"`, `5`, `{`, `{}`, `{}{}`, "\ufeff{}", "\xff", "{\"\xff\":1}", `{"":{"":null}}`,
	`{"subject":{},"subject":{}}`, `{"subject":{},"s\u0075bject":{}}`, `{"context":{"a":1,"\u0061":2}}`, `{"context":{"a":"\ud800"}}`,
	`{"context":{"n":[9007199254740993,1e400,-0,1.10]}}`, `{"subject":[{`, `{"x":nul`, "{\"a\x00\":\"\\u0000\"}", `{"Subject":{"Type":1}}`,
	strings.Repeat(`{"context":`, authzen.MaxDepth+1), strings.Repeat(`[`, authzen.MaxDepth) + strings.Repeat(`]`, authzen.MaxDepth),
}

func seed(f *testing.F, bodies ...string) {
	for _, body := range append(bodies, hostile...) {
		f.Add([]byte(body))
	}
}

func FuzzUnmarshalEvaluation(f *testing.F) {
	seed(f, evaluation,
		with(f, evaluation, "/context", `{ "time" : null , "deep" : [[[{"a":1}]]] }`),
		with(f, evaluation, "/subject/properties", `{"role":"\u0061dmin","😀":"\ud83d\ude00"}`),
		with(f, evaluation, "/resource/id", `null`),
		with(f, evaluation, "/action", `{"name":"","properties":null,"Name":1}`),
		without(f, evaluation, "/action"),
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		var request authzen.EvaluationRequest
		if refused(t, authzen.Unmarshal(body, &request)) {
			return
		}
		sound(t, body)
		survives(t, request)
	})
}

// FuzzUnmarshalSearch reads each body as a search of every kind.
func FuzzUnmarshalSearch(f *testing.F) {
	seed(f, evaluation,
		with(f, evaluation, "/page", `{"limit":10,"token":"AAEC","properties":{"sort":"id"},"other":1}`),
		with(f, evaluation, "/page", `{"limit":99999999999999999999}`),
		with(f, evaluation, "/page", `{"limit":-1}`),
		with(f, evaluation, "/page", `{"limit":1e2}`),
		with(f, evaluation, "/page", `{"limit":null,"token":null,"properties":null}`),
		with(f, evaluation, "/page", `null`),
		with(f, evaluation, "/subject", `{"type":"user","id":5}`),
		with(f, evaluation, "/resource", `{"type":"record","properties":"x"}`),
		without(f, evaluation, "/action"),
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		var subjects authzen.SubjectSearchRequest
		if !refused(t, authzen.Unmarshal(body, &subjects)) {
			sound(t, body)
			survives(t, subjects)
		}
		var resources authzen.ResourceSearchRequest
		if !refused(t, authzen.Unmarshal(body, &resources)) {
			sound(t, body)
			survives(t, resources)
		}
		var actions authzen.ActionSearchRequest
		if !refused(t, authzen.Unmarshal(body, &actions)) {
			sound(t, body)
			survives(t, actions)
		}
	})
}

func FuzzUnmarshalEvaluations(f *testing.F) {
	seed(f, evaluation,
		with(f, evaluation, "/evaluations", `[{},{"subject":{"id":"bob"}},{"action":null},{"resource":{"type":"x"}},"x",null,{"context":{}}]`),
		with(f, evaluation, "/options", `{"evaluations_semantic":"deny_on_first_deny","x":1}`),
		`{"options":{"evaluations_semantic":"none"}}`,
		`{"subject":{"type":"user"},"resource":{"id":5,"type":"record"},"evaluations":[`+evaluation+`,{"subject":{"id":"a"},"resource":{"id":"b"}}]}`,
		`{"subject":5}`, `{"evaluations":{}}`, `{"evaluations":[{"a":1,"a":2}]}`,
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		var batch authzen.EvaluationsRequest
		if refused(t, authzen.Unmarshal(body, &batch)) {
			return
		}
		sound(t, body)
		again := survives(t, batch)
		items := batch.Items()
		if len(items) != len(batch.Evaluations) {
			t.Errorf("%d evaluations, %d items", len(batch.Evaluations), len(items))
		}
		if diff := cmp.Diff(items, again.Items(), normal); diff != "" {
			t.Errorf("items of the batch read again (-before +after):\n%s", diff)
		}
		for i, item := range items {
			if (item.Request == nil) == (item.Err == nil) {
				t.Errorf("item %d: %v, %v", i, item.Request, item.Err)
			}
			if item.Err == nil {
				survives(t, *item.Request)
			} else if at := fmt.Sprintf("/evaluations/%d", i); item.Err.Path != at && !strings.HasPrefix(item.Err.Path, at+"/") {
				t.Errorf("item %d: %v", i, item.Err)
			}
		}
		if single, err := batch.Single(); !refused(t, err) {
			survives(t, *single)
		}
	})
}

func FuzzUnmarshalAuthorize(f *testing.F) {
	seed(f, authorize,
		with(f, authorize, "/context", `{ "workflow_id" : "wf" }`),
		with(f, authorize, "/context", `{}`),
		with(f, with(f, authorize, "/purpose", `"p"`), "/context", `{"p\u0075rpose":1}`),
		with(f, authorize, "/context", `{"supported_obligations":[]}`),
		with(f, authorize, "/actor/roles", `["a","\u0000\"",null]`),
		with(f, authorize, "/actor/roles", `["a","b"]`),
		with(f, authorize, "/actor/department_id", `"é"`),
		with(f, authorize, "/resource/labels", `{"a":{"b":[1]}}`),
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		var request authzen.AuthorizeRequest
		if refused(t, authzen.Unmarshal(body, &request)) {
			return
		}
		sound(t, body)
		again := survives(t, request)
		evaluation, err := request.Evaluation()
		if refused(t, err) {
			return
		}
		survives(t, *evaluation)
		second, err := again.Evaluation()
		if err != nil {
			t.Fatalf("read again: %v", err)
		}
		if diff := cmp.Diff(evaluation, second, normal); diff != "" {
			t.Errorf("evaluation of the request read again (-before +after):\n%s", diff)
		}
	})
}

// refused reports whether there is an error, which must be a ValidationError
// that says where and why.
func refused(t *testing.T, err error) bool {
	t.Helper()
	if err == nil {
		return false
	}
	var invalid *authzen.ValidationError
	if !errors.As(err, &invalid) || error(invalid) != err {
		t.Fatalf("%T: %v", err, err)
	}
	if invalid.Reason == "" || !jsontext.Pointer(invalid.Path).IsValid() {
		t.Errorf("%#v", invalid)
	}
	return true
}

// sound checks that a body that was accepted is text that no two parsers read
// differently.
func sound(t *testing.T, body []byte) {
	t.Helper()
	if !jsontext.Value(body).IsValid() {
		t.Errorf("accepted: %q", body)
	}
}

// survives checks that value is the same after it was written and read, and is
// then written the same. It returns what was read.
func survives[T any](t *testing.T, value T) T {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("%+v: %v", value, err)
	}
	var again T
	if err := authzen.Unmarshal(text, &again); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if diff := cmp.Diff(value, again, normal); diff != "" {
		t.Errorf("%s (-before +after):\n%s", text, diff)
	}
	second, err := json.Marshal(again)
	if err != nil || string(second) != string(text) {
		t.Errorf("written once %s, twice %s, %v", text, second, err)
	}
	return again
}

// normal compares JSON texts without their white space and escapes.
var normal = cmp.Transformer("normal", func(v jsontext.Value) string {
	if v == nil {
		return ""
	}
	text := v.Clone()
	if err := text.Format(); err != nil {
		return err.Error()
	}
	return string(text)
})
