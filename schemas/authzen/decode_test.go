package authzen_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A plain request of each shape: what is required and nothing else.
const (
	evaluation = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"record","id":"record-1"}}`
	authorize  = `{"tenant_id":"acme","actor":{"actor_id":"agent-1","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":"jira"}}`
)

// shapes are the requests that are read whole.
var shapes = map[string]struct {
	body      string
	unmarshal func(body string) error
}{
	"evaluation": {evaluation, unmarshal[authzen.EvaluationRequest]},
	"authorize":  {authorize, unmarshal[authzen.AuthorizeRequest]},
}

// wants says of which JSON type the members of each shape are.
var wants = map[string][]struct {
	path     string
	wanted   string
	required bool
}{
	"evaluation": {
		{"/subject", "an object", true},
		{"/subject/type", "a string", true},
		{"/subject/id", "a string", true},
		{"/subject/properties", "an object", false},
		{"/action", "an object", true},
		{"/action/name", "a string", true},
		{"/action/properties", "an object", false},
		{"/resource", "an object", true},
		{"/resource/type", "a string", true},
		{"/resource/id", "a string", true},
		{"/resource/properties", "an object", false},
		{"/context", "an object", false},
	},
	"authorize": {
		{"/tenant_id", "a string", true},
		{"/actor", "an object", true},
		{"/actor/actor_id", "a string", true},
		{"/actor/actor_type", "a string", true},
		{"/actor/roles", "an array of strings", false},
		{"/actor/department_id", "a string", false},
		{"/actor/act", "an object", false},
		{"/action", "a string", true},
		{"/resource", "an object", true},
		{"/resource/type", "a string", true},
		{"/resource/id", "a string", true},
		{"/resource/labels", "an object", false},
		{"/purpose", "a string", false},
		{"/context", "an object", false},
	},
}

// AZ-44, AZ-98: a member that is not there, or is null, is missing.
func TestMissingMembers(t *testing.T) {
	for name, shape := range shapes {
		for _, member := range wants[name] {
			var want error
			if member.required {
				want = authzen.Invalid(member.path, "is required")
			}
			check(t, shape.unmarshal, without(t, shape.body, member.path), want)
			check(t, shape.unmarshal, with(t, shape.body, member.path, `null`), want)
		}
	}
}

// AZ-8, AZ-9, AZ-97: a member of another JSON type is refused.
func TestWrongTypes(t *testing.T) {
	values := []struct{ text, kind string }{
		{`"x"`, "a string"}, {`5`, "a number"}, {`true`, "a boolean"}, {`false`, "a boolean"}, {`[]`, "an array"}, {`{}`, "an object"},
	}
	for name, shape := range shapes {
		for _, member := range wants[name] {
			for _, value := range values {
				if strings.HasPrefix(member.wanted, value.kind) {
					continue
				}
				want := authzen.Invalid(member.path, "must be %s, not %s", member.wanted, value.kind)
				check(t, shape.unmarshal, with(t, shape.body, member.path, value.text), want)
			}
		}
	}
	check(t, unmarshal[authzen.AuthorizeRequest], with(t, authorize, "/actor/roles", `["a",null]`),
		authzen.Invalid("/actor/roles/1", "must be a string, not null"))
	check(t, unmarshal[authzen.AuthorizeRequest], with(t, authorize, "/actor/roles", `["a","b",["c"]]`),
		authzen.Invalid("/actor/roles/2", "must be a string, not an array"))
}

// AZ-42, AZ-95, AZ-96: a body is one JSON object.
func TestNotOneObject(t *testing.T) {
	end := fmt.Sprintf("is not valid JSON at byte %d", len(evaluation))
	tests := []struct {
		name, body, path, reason string
	}{
		{"empty", "", "", "is empty: send a JSON object"},
		{"whitespace", " \r\n\t", "", "is empty: send a JSON object"},
		{"null", `null`, "", "must be an object, not null"},
		{"array", `[` + evaluation + `]`, "", "must be an object, not an array"},
		{"string", `"x"`, "", "must be an object, not a string"},
		{"number", `5`, "", "must be an object, not a number"},
		{"boolean", `true`, "", "must be an object, not a boolean"},
		{"cut short", evaluation[:40], "", "is not valid JSON: it ends too early"},
		{"cut short in a literal", `nul`, "", "is not valid JSON: it ends too early"},
		{"a byte order mark", "\ufeff" + evaluation, "", "is not valid JSON at byte 0"},
		{"UTF-16", "{\x00\"\x00", "", "is not valid JSON at byte 1"},
		{"trailing bytes", evaluation + `x`, "", end},
		{"a trailing byte that is no text", evaluation + "\x00", "", end},
		{"two bodies", evaluation + evaluation, "", end},
		{"a comma too many", `{"subject":{"type":"user","id":"alice",}}`, "/subject", "is not valid JSON at byte 38"},
		{"a comment", `{/**/}`, "", "is not valid JSON at byte 1"},
		{"single quotes", `{'subject':{}}`, "", "is not valid JSON at byte 1"},
		{"no literal", `{"subject":nil}`, "/subject", "is not valid JSON at byte 12"},
		{"no number", `{"context":{"a":NaN}}`, "/context/a", "is not valid JSON at byte 16"},
		{"a leading zero", `{"context":{"a":01}}`, "/context", "is not valid JSON at byte 17"},
		{"a control character", "{\"context\":{\"a\":\"\n\"}}", "/context/a", "is not valid JSON at byte 17"},
		{"an unknown escape", `{"context":{"a":"\x41"}}`, "/context/a", "is not valid JSON at byte 17"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			check(t, unmarshal[authzen.EvaluationRequest], test.body, authzen.Invalid(test.path, "%s", test.reason))
		})
	}
	check(t, unmarshal[authzen.EvaluationRequest], " \r\n\t"+evaluation+" \r\n\t", nil)
}

// AZ-84: a member is named once, however its name is written, at every level.
func TestNamedTwice(t *testing.T) {
	tests := []struct {
		name, path, object, duplicate string
	}{
		{"a member", "", `"subject":{"type":"user","id":"alice"}`, "/subject"},
		{"an escaped member", "", `"subj\u0065ct":{"type":"user","id":"mallory"}`, "/subject"},
		{"null", "", `"subject":null`, "/subject"},
		{"an unknown member", "", `"x":1,"x":1`, "/x"},
		{"a member of an unknown member", "", `"x":{"y":[{},{"z":1,"z":2}]}`, "/x/y/1/z"},
		{"an empty name", "", `"":1,"":2`, "/"},
		{"a name to be escaped in a pointer", "", `"a/b~c":1,"a/b~c":2`, "/a~1b~0c"},
		{"a member of the subject", "/subject", `"id":"mallory"`, "/subject/id"},
		{"an escaped member of the subject", "/subject", `"\u0069d":"mallory"`, "/subject/id"},
		{"an unknown member of the action", "/action", `"x":1,"\u0078":1`, "/action/x"},
		{"a member of the resource", "/resource", `"type":"record"`, "/resource/type"},
		{"a property of the subject", "/subject", `"properties":{"role":"user","role":"admin"}`, "/subject/properties/role"},
		{"an escaped property of the resource", "/resource", `"properties":{"status":1,"stat\u0075s":2}`, "/resource/properties/status"},
		{"a property of the action, deeper", "/action", `"properties":{"a":{"b":[{"c":1,"c":1}]}}`, "/action/properties/a/b/0/c"},
		{"a member of the context", "", `"context":{"time":1,"time":1}`, "/context/time"},
		{"a surrogate pair", "", `"context":{"😀":1,"\ud83d\ude00":2}`, "/context/😀"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			body := within(t, evaluation, test.path, test.object)
			check(t, unmarshal[authzen.EvaluationRequest], body, authzen.Invalid(test.duplicate, "is named twice"))
		})
	}
	for _, test := range []struct{ path, object, duplicate string }{
		{"", `"tenant_id":"other"`, "/tenant_id"},
		{"/actor", `"actor_\u0069d":"other"`, "/actor/actor_id"},
		{"/resource", `"labels":{"a":1,"a":1}`, "/resource/labels/a"},
		{"", `"context":{"a":1,"a":1}`, "/context/a"},
	} {
		body := within(t, authorize, test.path, test.object)
		check(t, unmarshal[authzen.AuthorizeRequest], body, authzen.Invalid(test.duplicate, "is named twice"))
	}
	check(t, unmarshal[authzen.EvaluationsRequest], `{"evaluations":[{},{"subject":{"id":"a","\u0069d":"b"}}]}`,
		authzen.Invalid("/evaluations/1/subject/id", "is named twice"))
}

// AZ-82: text is Unicode.
func TestNotUnicode(t *testing.T) {
	tests := []struct {
		name, path, object, at string
	}{
		{"a byte in an id", "/subject", "\"properties\":{\"a\":\"\xff\"}", "/subject/properties/a"},
		{"a byte in a name", "/subject", "\"\xff\":1", "/subject"},
		{"a byte in an unknown member", "", "\"x\":[\"\xc3\"]", "/x/0"},
		{"an overlong form", "", "\"context\":{\"a\":\"\xc0\xaf\"}", "/context/a"},
		{"an encoded surrogate", "", "\"context\":{\"a\":\"\xed\xa0\x80\"}", "/context/a"},
		{"beyond Unicode", "", "\"context\":{\"a\":\"\xf4\x90\x80\x80\"}", "/context/a"},
		{"a high surrogate alone", "", `"context":{"a":"\ud800"}`, "/context/a"},
		{"a low surrogate alone", "", `"context":{"a":"\udc00x"}`, "/context/a"},
		{"surrogates in the wrong order", "", `"context":{"a":"\ude00\ud83d"}`, "/context/a"},
		{"a surrogate in a name", "", `"context":{"\ud800":1}`, "/context"},
		{"a surrogate in an unknown member", "/action", `"x":"\ud800"`, "/action/x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			body := within(t, evaluation, test.path, test.object)
			err := unmarshal[authzen.EvaluationRequest](body)
			invalid, ok := err.(*authzen.ValidationError)
			if !ok || invalid.Path != test.at || !strings.HasPrefix(invalid.Reason, "is not valid JSON at byte ") {
				t.Errorf("%s: %#v", body, err)
			}
		})
	}
	for path := range strings.FieldsSeq("/subject/type /subject/id /action/name /resource/type /resource/id") {
		for _, text := range []string{"\"\xff\"", `"\ud800"`} {
			body := with(t, evaluation, path, text)
			if invalid, ok := unmarshal[authzen.EvaluationRequest](body).(*authzen.ValidationError); !ok || invalid.Path != path {
				t.Errorf("%s: %#v", body, invalid)
			}
		}
	}
}

// AZ-80: unknown members are ignored at every level, and a member in other
// letters is unknown.
func TestUnknownMembers(t *testing.T) {
	var want authzen.EvaluationRequest
	if err := authzen.Unmarshal([]byte(evaluation), &want); err != nil {
		t.Fatal(err)
	}
	for _, object := range []string{
		`"foo":"bar"`, `"futureField":{"a":[1,{}]}`, `"":null`, `"Subject":{"type":"user","id":"mallory"}`,
		`"SUBJECT":5`, `"Type":"admin"`, `"ID":"mallory"`, `"Id":5`, `"Name":"delete"`, `"Properties":{"role":"admin"}`,
		`"Context":5`, `"subject ":5`, `"\u0000":5`, `"ſubject":5`,
	} {
		for _, path := range []string{"", "/subject", "/action", "/resource"} {
			var got authzen.EvaluationRequest
			body := within(t, evaluation, path, object)
			if err := authzen.Unmarshal([]byte(body), &got); err != nil {
				t.Errorf("%s: %v", body, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", body, diff)
			}
		}
	}
	for _, test := range []struct{ path, renamed string }{
		{"/subject", `"Subject":{"type":"user","id":"alice"}`},
		{"/subject/id", `"ID":"alice"`},
		{"/action/name", `"NAME":"read"`},
	} {
		parent := test.path[:strings.LastIndexByte(test.path, '/')]
		body := within(t, without(t, evaluation, test.path), parent, test.renamed)
		check(t, unmarshal[authzen.EvaluationRequest], body, authzen.Invalid(test.path, "is required"))
	}
}

// The order of members means nothing, and their names may be escaped.
func TestMemberOrder(t *testing.T) {
	const body = `{"context":{"b":1,"a":2},"r\u0065source":{"properties":{"z":0},"id":"record-1","type":"record"},
		"action":{"properties":{},"name":"read"},"\u0073ubject":{"\u0069d":"al\u0069ce","type":"user"}}`
	var got authzen.EvaluationRequest
	if err := authzen.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	want := authzen.EvaluationRequest{
		Subject:  authzen.Subject{Type: "user", ID: "alice"},
		Action:   authzen.Action{Name: "read", Properties: jsontext.Value(`{}`)},
		Resource: authzen.Resource{Type: "record", ID: "record-1", Properties: jsontext.Value(`{"z":0}`)},
		Context:  jsontext.Value(`{"b":1,"a":2}`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// AZ-91: nesting has a limit, which brackets within strings do not count to.
func TestDepth(t *testing.T) {
	tooDeep := authzen.Invalid("", "nests deeper than %d levels", authzen.MaxDepth)
	nest := func(levels int, open, inner, shut string) string {
		return strings.Repeat(open, levels) + inner + strings.Repeat(shut, levels)
	}
	tests := []struct {
		name, path, object string
		want               error
	}{
		{"arrays to the limit", "", `"x":` + nest(authzen.MaxDepth-1, "[", "", "]"), nil},
		{"arrays above it", "", `"x":` + nest(authzen.MaxDepth, "[", "", "]"), tooDeep},
		{"objects to the limit", "", `"context":` + nest(authzen.MaxDepth-1, `{"a":`, "1", "}"), nil},
		{"objects above it", "", `"context":` + nest(authzen.MaxDepth, `{"a":`, "1", "}"), tooDeep},
		{"properties to the limit", "/subject", `"properties":` + nest(authzen.MaxDepth-2, `{"a":`, "1", "}"), nil},
		{"properties above it", "/subject", `"properties":` + nest(authzen.MaxDepth-1, `{"a":`, "1", "}"), tooDeep},
		{"side by side", "", `"x":[` + strings.Repeat("[],{},", authzen.MaxDepth) + `0]`, nil},
		{"in a string", "", `"x":"` + strings.Repeat(`[{\"`, authzen.MaxDepth) + `"`, nil},
		{"behind an escaped quote", "", `"x":["\\",` + nest(authzen.MaxDepth, "[", "", "]") + `]`, tooDeep},
		{"far above it", "", `"x":` + nest(100_000, "[", "", "]"), tooDeep},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			check(t, unmarshal[authzen.EvaluationRequest], within(t, evaluation, test.path, test.object), test.want)
		})
	}
	check(t, unmarshal[authzen.EvaluationRequest], strings.Repeat("[", 1<<20), tooDeep)
	check(t, unmarshal[authzen.EvaluationRequest], strings.Repeat(`{"subject":`, 1<<16), tooDeep)
}

// AZ-83, AZ-108: properties and contexts are kept as they were written. Null
// is absence, and an empty object is not.
func TestKeptVerbatim(t *testing.T) {
	for _, object := range []string{
		`{}`, `{ "a" : [ 1 , null ] }`, `{"b":1,"a":2}`, `{"n":9007199254740993}`, `{"n":-0,"m":1.10,"e":1E+2}`,
		`{"n":123456789012345678901234567890.000}`, `{"n":1e400}`, `{"s":"\u0041\/\ud83d\ude00"}`, `{"null":null}`,
	} {
		var got authzen.EvaluationRequest
		body := evaluation
		for _, path := range []string{"/subject/properties", "/action/properties", "/resource/properties", "/context"} {
			parent, name := path[:strings.LastIndexByte(path, '/')], path[strings.LastIndexByte(path, '/')+1:]
			body = within(t, body, parent, `"`+name+`":`+object)
		}
		if err := authzen.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		for _, kept := range []jsontext.Value{got.Subject.Properties, got.Action.Properties, got.Resource.Properties, got.Context} {
			if string(kept) != object {
				t.Errorf("sent %s, kept %s", object, kept)
			}
		}
	}
	var got, want authzen.EvaluationRequest
	body := within(t, evaluation, "/subject", `"properties":null`)
	if err := authzen.Unmarshal([]byte(within(t, body, "", `"context":null`)), &got); err != nil {
		t.Fatal(err)
	}
	if err := authzen.Unmarshal([]byte(evaluation), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("null (-want +got):\n%s", diff)
	}
}

// What is kept is a copy: the caller may use the body's bytes again.
func TestKeepsACopy(t *testing.T) {
	properties := with(t, with(t, evaluation, "/subject/properties", `{"a":"b"}`), "/context", `{"c":1}`)
	keepsACopy[authzen.EvaluationRequest](t, properties)
	keepsACopy[authzen.EvaluationsRequest](t, with(t, properties, "/evaluations", `[{"context":{"d":2}}]`))
	keepsACopy[authzen.AuthorizeRequest](t, with(t, with(t, authorize, "/resource/labels", `{"a":"b"}`), "/actor/roles", `["reader"]`))
}

func keepsACopy[T any](t *testing.T, text string) {
	t.Helper()
	var want, got T
	body := []byte(text)
	if err := authzen.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	clear(body)
	if err := authzen.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", text, diff)
	}
}

// An empty string is a string: it is nobody's type, id or name. No tenant can
// have it as its name.
func TestEmptyStrings(t *testing.T) {
	for name, shape := range shapes {
		body := shape.body
		for _, member := range wants[name] {
			if member.wanted == "a string" && member.path != "/tenant_id" {
				body = with(t, body, member.path, `""`)
			}
		}
		check(t, shape.unmarshal, body, nil)
	}
}

func TestValidationError(t *testing.T) {
	tests := []struct {
		err  *authzen.ValidationError
		want string
	}{
		{authzen.Invalid("", "is empty"), "the request is empty"},
		{authzen.Invalid("/subject/id", "must be %s, not %s", "a string", "null"), "/subject/id must be a string, not null"},
		{authzen.Invalid("/subject", "is required").Below("/evaluations/3"), "/evaluations/3/subject is required"},
		{authzen.Invalid("", "must be an object").Below("/evaluations/3"), "/evaluations/3 must be an object"},
	}
	for _, test := range tests {
		if got := test.err.Error(); got != test.want {
			t.Errorf("%#v: %q, want %q", test.err, got, test.want)
		}
	}
}
