package result_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations/result"
)

func TestParse(t *testing.T) {
	r, err := result.Parse(jsontext.Value(`{"action":"redact","paths":["/a~1b/*/~0c","/x"],"with":"gone","required":true}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]result.Path{{"a/b", "*", "~c"}, {"x"}}, r.Paths); diff != "" || string(r.With) != `"gone"` || !r.Required {
		t.Errorf("%+v\n%s", r, diff)
	}
	if r, err = result.Parse(jsontext.Value(`{"action":"mask","pattern":"[0-9]{4}"}`)); err != nil || string(r.With) != `"***"` || r.Paths != nil || !r.Pattern.MatchString("a 1234") {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = result.Parse(jsontext.Value(`{"action":"max_bytes","bytes":10}`)); err != nil || r.Bytes != 10 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = result.Parse(jsontext.Value(`{"action":"label","labels":["untrusted","from:web/a.b"]}`)); err != nil || len(r.Labels) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = result.Parse(jsontext.Value(`{"action":"scopes","scopes":["contacts.read","https://a.example/b"]}`)); err != nil || len(r.Scopes) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Properties that are not understood as a whole are an error.
func TestParseRefuses(t *testing.T) {
	for properties, want := range map[string]string{
		`[]`:                                  "no object",
		`null`:                                "no object",
		`{"action":"label","action":"label"}`: "no object",
		`{"action":"redact"}`:                 `"paths" is required`,
		`{"action":"redact","paths":["/a"],"path":"/b"}`:                   `"path" is not known`,
		`{"action":"redact","paths":[]}`:                                   "1 to 64",
		`{"action":"redact","paths":[null]}`:                               "1 to 64",
		`{"action":"redact","paths":"/a"}`:                                 "1 to 64",
		`{"action":"redact","paths":["a"]}`:                                "no JSON Pointer",
		`{"action":"redact","paths":["/a~2"]}`:                             "no JSON Pointer",
		`{"action":"redact","paths":[""]}`:                                 "no JSON Pointer",
		`{"action":"redact","paths":["/{{subject.id}}"]}`:                  "placeholder",
		`{"action":"redact","paths":["/a"],"required":"no"}`:               "true or false",
		`{"action":"redact","paths":["` + strings.Repeat("/a", 33) + `"]}`: "more than 32",
		`{"action":"mask"}`:                                                `"pattern" is required`,
		`{"action":"mask","pattern":"("}`:                                  "missing closing",
		`{"action":"mask","pattern":"a*"}`:                                 "empty text",
		`{"action":"mask","pattern":"a{{resource.id}}"}`:                   "placeholder",
		`{"action":"mask","pattern":"a","with":1}`:                         "with must be a text",
		`{"action":"mask","pattern":"a","required":true}`:                  "required needs paths",
		`{"action":"max_bytes","bytes":0}`:                                 "from 1",
		`{"action":"max_bytes","bytes":1.5}`:                               "from 1",
		`{"action":"max_bytes","bytes":"10"}`:                              "from 1",
		`{"action":"label","labels":[]}`:                                   "1 to 16",
		`{"action":"label","labels":["{{resource.id}}"]}`:                  "letters, digits",
		`{"action":"scopes","scopes":[]}`:                                  "1 to 64",
		`{"action":"scopes","scopes":"read"}`:                              "1 to 64",
		`{"action":"scopes","scopes":["a b"]}`:                             "no spaces",
		`{"action":"scopes","scopes":[""]}`:                                "no spaces",
		`{"action":"scopes","scopes":["{{subject.id}}"]}`:                  "placeholders",
		`{"action":"label","labels":[""]}`:                                 "letters, digits",
		`{"action":"label","labels":["` + strings.Repeat("a", 65) + `"]}`:  "letters, digits",
	} {
		if _, err := result.Parse(jsontext.Value(properties)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", properties, err, want)
		}
	}
	for _, properties := range []string{`{}`, `{"action":"watermark"}`, `{"action":"Redact","paths":["/a"]}`, `{"action":1}`} {
		if _, err := result.Parse(jsontext.Value(properties)); !errors.Is(err, result.ErrAction) {
			t.Errorf("%s: %v", properties, err)
		}
	}
}
