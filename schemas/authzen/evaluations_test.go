package authzen_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// item is what an item resolves to: a request, or a complaint.
func item(subject authzen.Subject, action authzen.Action, resource authzen.Resource, context string) authzen.Item {
	request := &authzen.EvaluationRequest{Subject: subject, Action: action, Resource: resource}
	if context != "" {
		request.Context = jsontext.Value(context)
	}
	return authzen.Item{Request: request}
}

func fault(path, reason string) authzen.Item {
	return authzen.Item{Err: authzen.Invalid(path, "%s", reason)}
}

var (
	alice   = authzen.Subject{Type: "user", ID: "alice"}
	bob     = authzen.Subject{Type: "user", ID: "bob"}
	read    = authzen.Action{Name: "read"}
	write   = authzen.Action{Name: "write"}
	record1 = authzen.Resource{Type: "record", ID: "record-1"}
	record2 = authzen.Resource{Type: "record", ID: "record-2"}
)

// AZ-20, AZ-21, AZ-34, AZ-104: items over defaults. The defaults are alice,
// read, record-1 where a test has no others.
func TestItems(t *testing.T) {
	const complete = `"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"record","id":"record-1"}`
	tests := []struct {
		name     string
		defaults string
		items    string
		want     []authzen.Item
	}{
		{
			"an empty item inherits all",
			complete + `,"context":{"a":1}`, `[{},{"subject":null,"action":null,"resource":null,"context":null}]`,
			[]authzen.Item{item(alice, read, record1, `{"a":1}`), item(alice, read, record1, `{"a":1}`)},
		},
		{
			"a key replaces the default of that key",
			complete, `[{"subject":{"type":"user","id":"bob"}},{"action":{"name":"write"}},{"resource":{"type":"record","id":"record-2"}}]`,
			[]authzen.Item{item(bob, read, record1, ""), item(alice, write, record1, ""), item(alice, read, record2, "")},
		},
		{
			"complete items need no defaults",
			``, `[` + evaluation + `,{"subject":{"type":"user","id":"bob"},"action":{"name":"write"},"resource":{"type":"record","id":"record-2"},"context":{}}]`,
			[]authzen.Item{item(alice, read, record1, ""), item(bob, write, record2, `{}`)},
		},
		{
			"properties are replaced, not merged",
			`"subject":{"type":"user","id":"alice","properties":{"role":"admin"}},"action":{"name":"read","properties":{"soft":true}},` +
				`"resource":{"type":"record","id":"record-1","properties":{"status":"active"}}`,
			`[{"subject":{"type":"user","id":"bob"},"action":{"name":"write"},"resource":{"type":"record","id":"record-2"}}]`,
			[]authzen.Item{item(bob, write, record2, "")},
		},
		{
			"context is replaced, not merged",
			complete + `,"context":{"a":1,"b":2}`, `[{"context":{"a":3}},{"context":{}},{"context":{ "c" : [ ] }}]`,
			[]authzen.Item{item(alice, read, record1, `{"a":3}`), item(alice, read, record1, `{}`), item(alice, read, record1, `{ "c" : [ ] }`)},
		},
		{
			"context needs no default",
			complete, `[{"context":{"a":3}},{}]`,
			[]authzen.Item{item(alice, read, record1, `{"a":3}`), item(alice, read, record1, "")},
		},
		{
			"an id is not inherited",
			complete, `[{"subject":{"type":"user"}},{"resource":{}},{"resource":{"properties":{"id":"record-1"}}}]`,
			[]authzen.Item{
				fault("/evaluations/0/subject/id", "is required"),
				fault("/evaluations/1/resource/id", "is required"),
				fault("/evaluations/2/resource/id", "is required"),
			},
		},
		{
			"a name is not inherited",
			complete, `[{"action":{}},{"action":{"name":null}}]`,
			[]authzen.Item{fault("/evaluations/0/action/name", "is required"), fault("/evaluations/1/action/name", "is required")},
		},
		{
			"a type is inherited from the default of the same key",
			`"subject":{"type":"user"},"action":{"name":"read"},"resource":{"type":"record"}`,
			`[{"subject":{"id":"alice"},"resource":{"id":"record-1"}},{"subject":{"type":null,"id":"bob"},"resource":{"id":"record-2"}}]`,
			[]authzen.Item{item(alice, read, record1, ""), item(bob, read, record2, "")},
		},
		{
			"a type is inherited, its properties are not",
			`"subject":{"type":"user","id":"bob","properties":{"role":"admin"}},"action":{"name":"read"},"resource":{"type":"record","id":"record-1"}`,
			`[{"subject":{"id":"alice"}}]`,
			[]authzen.Item{item(alice, read, record1, "")},
		},
		{
			"a type of its own stands",
			complete, `[{"resource":{"type":"folder","id":"f"}},{"resource":{"type":"","id":"f"}}]`,
			[]authzen.Item{
				item(alice, read, authzen.Resource{Type: "folder", ID: "f"}, ""),
				item(alice, read, authzen.Resource{ID: "f"}, ""),
			},
		},
		{
			"a type is not inherited from another key",
			`"subject":{"type":"user","id":"alice"},"action":{"name":"read"}`, `[{"resource":{"id":"record-1"}}]`,
			[]authzen.Item{fault("/evaluations/0/resource/type", "is required")},
		},
		{
			"a type is not inherited from the item before",
			`"subject":{"type":"user","id":"alice"},"action":{"name":"read"}`, `[{"resource":{"type":"record","id":"record-1"}},{"resource":{"id":"record-2"}}]`,
			[]authzen.Item{item(alice, read, record1, ""), fault("/evaluations/1/resource/type", "is required")},
		},
		{
			"no default, no key",
			`"subject":{"type":"user","id":"alice"},"action":{"name":"read"}`, `[{"resource":{"type":"record","id":"record-1"}},{}]`,
			[]authzen.Item{item(alice, read, record1, ""), fault("/evaluations/1/resource", "is required")},
		},
		{
			"no default at all",
			``, `[{},{"subject":{"type":"user","id":"alice"}},{"subject":{"type":"user","id":"alice"},"action":{"name":"read"}}]`,
			[]authzen.Item{
				fault("/evaluations/0/subject", "is required"),
				fault("/evaluations/1/action", "is required"),
				fault("/evaluations/2/resource", "is required"),
			},
		},
		{
			"an incomplete default matters to those that inherit it",
			`"subject":{"type":"user","id":"alice"},"action":{},"resource":{}`,
			`[{},{"action":{"name":"read"}},{"action":{"name":"read"},"resource":{"type":"record","id":"record-1"}}]`,
			[]authzen.Item{
				fault("/evaluations/0/action/name", "is required"),
				fault("/evaluations/1/resource/type", "is required"),
				item(alice, read, record1, ""),
			},
		},
		{
			"so does one with a member of the wrong type",
			`"subject":{"type":"user","id":5},"action":{"name":["read"]},"resource":{"type":"record","id":"record-1","properties":[]}`,
			`[{},{"subject":{"type":"user","id":"alice"},"action":{"name":"read"}},{"subject":{"type":"user","id":"alice"}},` + evaluation + `]`,
			[]authzen.Item{
				fault("/evaluations/0/subject/id", "must be a string, not a number"),
				fault("/evaluations/1/resource/properties", "must be an object, not an array"),
				fault("/evaluations/2/action/name", "must be a string, not an array"),
				item(alice, read, record1, ""),
			},
		},
		{
			"whose type is not inherited: it stands before the wrong member",
			`"subject":{"type":"user","id":5},"action":{"name":"read"},"resource":{"type":"record","id":"record-1"}`, `[{"subject":{"id":"alice"}}]`,
			[]authzen.Item{fault("/evaluations/0/subject/type", "is required")},
		},
		{
			"or behind it",
			`"subject":{"id":5,"type":"user"},"action":{"name":"read"},"resource":{"type":"record","id":"record-1"}`, `[{"subject":{"id":"alice"}}]`,
			[]authzen.Item{fault("/evaluations/0/subject/type", "is required")},
		},
		{
			"an item that is no object",
			complete, `["x",{},null,5,[],true]`,
			[]authzen.Item{
				fault("/evaluations/0", "must be an object, not a string"),
				item(alice, read, record1, ""),
				fault("/evaluations/2", "must be an object, not null"),
				fault("/evaluations/3", "must be an object, not a number"),
				fault("/evaluations/4", "must be an object, not an array"),
				fault("/evaluations/5", "must be an object, not a boolean"),
			},
		},
		{
			"an item with a key of the wrong type",
			complete, `[{"subject":"alice"},{"action":"read"},{"resource":[]},{"context":"x"},{"subject":{"type":"user","id":5}},{"action":{"name":123}},{"resource":{"id":"r","properties":5}}]`,
			[]authzen.Item{
				fault("/evaluations/0/subject", "must be an object, not a string"),
				fault("/evaluations/1/action", "must be an object, not a string"),
				fault("/evaluations/2/resource", "must be an object, not an array"),
				fault("/evaluations/3/context", "must be an object, not a string"),
				fault("/evaluations/4/subject/id", "must be a string, not a number"),
				fault("/evaluations/5/action/name", "must be a string, not a number"),
				fault("/evaluations/6/resource/properties", "must be an object, not a number"),
			},
		},
		{
			"unknown keys of an item are ignored, those of a batch too",
			complete, `[{"foo":1,"Subject":{"type":"user","id":"mallory"},"evaluations":5,"options":"x"}]`,
			[]authzen.Item{item(alice, read, record1, "")},
		},
		{
			"an item keeps its properties verbatim",
			complete, `[{"resource":{"id":"record-1","properties":{ "n" : 9007199254740993 }}}]`,
			[]authzen.Item{item(alice, read, authzen.Resource{Type: "record", ID: "record-1", Properties: jsontext.Value(`{ "n" : 9007199254740993 }`)}, "")},
		},
		{"no items", complete, `[]`, []authzen.Item{}},
		{"null", complete, `null`, []authzen.Item{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			batch := batch(t, join(test.defaults, `"evaluations":`+test.items))
			if diff := cmp.Diff(test.want, batch.Items()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// AZ-18: a batch without items is read as the single request is.
func TestSingle(t *testing.T) {
	tests := []struct {
		body string
		want error
	}{
		{evaluation, nil},
		{with(t, evaluation, "/evaluations", `[]`), nil},
		{with(t, evaluation, "/evaluations", `null`), nil},
		{`{}`, authzen.Invalid("/subject", "is required")},
		{without(t, evaluation, "/subject"), authzen.Invalid("/subject", "is required")},
		{without(t, evaluation, "/action"), authzen.Invalid("/action", "is required")},
		{without(t, evaluation, "/resource"), authzen.Invalid("/resource", "is required")},
		{without(t, evaluation, "/subject/type"), authzen.Invalid("/subject/type", "is required")},
		{without(t, evaluation, "/subject/id"), authzen.Invalid("/subject/id", "is required")},
		{without(t, evaluation, "/action/name"), authzen.Invalid("/action/name", "is required")},
		{with(t, evaluation, "/resource/id", `5`), authzen.Invalid("/resource/id", "must be a string, not a number")},
		{with(t, evaluation, "/resource/properties", `[]`), authzen.Invalid("/resource/properties", "must be an object, not an array")},
	}
	for _, test := range tests {
		got, err := batch(t, test.body).Single()
		if diff := cmp.Diff(test.want, err); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.body, diff)
		}
		if err != nil {
			continue
		}
		var want authzen.EvaluationRequest
		if err := authzen.Unmarshal([]byte(test.body), &want); err != nil {
			t.Errorf("%s: %v", test.body, err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s (-single request +batch):\n%s", test.body, diff)
		}
	}
	const context = `{ "time" : 1 }`
	got, err := batch(t, with(t, evaluation, "/context", context)).Single()
	if err != nil || string(got.Context) != context {
		t.Errorf("context: %v, %v", got, err)
	}
}

// AZ-24, AZ-25, AZ-33: what concerns the batch as a whole.
func TestUnmarshalEvaluations(t *testing.T) {
	tests := []struct {
		body string
		want error
	}{
		{`{}`, nil},
		{``, authzen.Invalid("", "is empty: send a JSON object")},
		{`[]`, authzen.Invalid("", "must be an object, not an array")},
		{`{"subject":"alice"}`, authzen.Invalid("/subject", "must be an object, not a string")},
		{`{"action":5}`, authzen.Invalid("/action", "must be an object, not a number")},
		{`{"resource":[]}`, authzen.Invalid("/resource", "must be an object, not an array")},
		{`{"context":true}`, authzen.Invalid("/context", "must be an object, not a boolean")},
		{`{"subject":null,"action":null,"resource":null,"context":null,"evaluations":null,"options":null}`, nil},
		{`{"subject":{"type":5},"action":{},"resource":{"id":null}}`, nil},
		{`{"evaluations":{}}`, authzen.Invalid("/evaluations", "must be an array, not an object")},
		{`{"evaluations":"x"}`, authzen.Invalid("/evaluations", "must be an array, not a string")},
		{`{"evaluations":[1,"x",null,[]]}`, nil},
		{`{"evaluations":[{},`, authzen.Invalid("", "is not valid JSON: it ends too early")},
		{`{"evaluations":[{}}`, authzen.Invalid("/evaluations", "is not valid JSON at byte 18")},
		{`{"evaluations":[{},nul]}`, authzen.Invalid("/evaluations/1", "is not valid JSON at byte 22")},
		{`{"evaluations":[{"a":"` + "\xff" + `"}]}`, authzen.Invalid("/evaluations/0/a", "is not valid JSON at byte 22")},
		{`{"options":[]}`, authzen.Invalid("/options", "must be an object, not an array")},
		{`{"options":"execute_all"}`, authzen.Invalid("/options", "must be an object, not a string")},
		{`{"options":{}}`, nil},
		{`{"options":{"other":5,"Evaluations_semantic":"none"}}`, nil},
		{`{"options":{"evaluations_semantic":null}}`, nil},
		{`{"options":{"evaluations_semantic":5}}`, authzen.Invalid("/options/evaluations_semantic", "must be a string, not a number")},
		{`{"options":{"evaluations_semantic":""}}`, unknownSemantic(``)},
		{`{"options":{"evaluations_semantic":"EXECUTE_ALL"}}`, unknownSemantic(`EXECUTE_ALL`)},
		{`{"options":{"evaluations_semantic":"first"}}`, unknownSemantic(`first`)},
		{`{"options":{"evaluations_semantic":"execute_all","evaluations_semantic":"execute_all"}}`,
			authzen.Invalid("/options/evaluations_semantic", "is named twice")},
	}
	for _, test := range tests {
		check(t, unmarshal[authzen.EvaluationsRequest], test.body, test.want)
	}
}

func unknownSemantic(name string) error {
	return authzen.Invalid("/options/evaluations_semantic",
		"must be execute_all, deny_on_first_deny or permit_on_first_permit, not %q", name)
}

// AZ-26 to AZ-30: which decision ends a batch.
func TestSemantics(t *testing.T) {
	tests := []struct {
		options                string
		want                   authzen.Semantic
		permitStops, denyStops bool
	}{
		{`null`, "", false, false},
		{`{}`, "", false, false},
		{`{"evaluations_semantic":null}`, "", false, false},
		{`{"evaluations_semantic":"execute_all"}`, authzen.ExecuteAll, false, false},
		{`{"evaluations_semantic":"deny_on_first_deny"}`, authzen.DenyOnFirstDeny, false, true},
		{`{"evaluations_semantic":"permit_on_first_permit"}`, authzen.PermitOnFirstPermit, true, false},
	}
	for _, test := range tests {
		got := batch(t, `{"options":`+test.options+`}`).Options.Semantic
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.options, got, test.want)
		}
		if got.Stops(true) != test.permitStops || got.Stops(false) != test.denyStops {
			t.Errorf("%s: a permit ends it: %t, a denial: %t", test.options, got.Stops(true), got.Stops(false))
		}
	}
}

// Resolving a batch twice gives the same, and leaves the batch as it was.
func TestItemsArePure(t *testing.T) {
	const body = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"record"},"context":{"a":1},
		"evaluations":[{"resource":{"id":"record-1"}},{},{"context":{"b":2}}]}`
	first, second := batch(t, body), batch(t, body)
	if diff := cmp.Diff(first.Items(), first.Items()); diff != "" {
		t.Errorf("items:\n%s", diff)
	}
	if diff := cmp.Diff(second, first); diff != "" {
		t.Errorf("batch (-before +after):\n%s", diff)
	}
}

// batch reads a batch that is in order as a whole.
func batch(t testing.TB, body string) *authzen.EvaluationsRequest {
	t.Helper()
	var r authzen.EvaluationsRequest
	if err := authzen.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return &r
}

// join makes an object of the texts of its members.
func join(members ...string) string {
	body := ""
	for _, text := range members {
		if text != "" && body != "" {
			body += ","
		}
		body += text
	}
	return "{" + body + "}"
}
