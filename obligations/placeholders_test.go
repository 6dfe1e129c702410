package obligations_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Values of the request are inserted as text and never as JSON.
func TestFill(t *testing.T) {
	evaluation := &authzen.EvaluationRequest{
		Subject:  authzen.Subject{Type: "user", ID: `a"b{{resource.id}}`},
		Action:   authzen.Action{Name: "read"},
		Resource: authzen.Resource{Type: "doc", ID: "1\n"},
	}
	for annotation, want := range map[string]string{
		`{"subject":"alice"}`:                                        `{"subject":"alice"}`,
		`{"subject":"{{subject.id}}"}`:                               `{"subject":"a\"b{{resource.id}}"}`,
		`{"subject":"{{ subject.type }}::{{action.name}}"}`:          `{"subject":"user::read"}`,
		`{"subject":"x","a":[{"b":"{{resource.id}}"}]}`:              `{"a":[{"b":"1\n"}],"subject":"x"}`,
		`{"subject":"x","{{subject.id}}":"{{resource.type}}","n":1}`: `{"n":1,"subject":"x","{{subject.id}}":"doc"}`,
		`{"subject":"\u007b{subject.type}}"}`:                        `{"subject":"user"}`,
	} {
		terms, err := obligations.Parse(false, map[string]string{"obligation_session_termination": annotation})
		if err != nil {
			t.Errorf("%s: %v", annotation, err)
			continue
		}
		got := obligations.Compose(false, []*obligations.Terms{&terms}, obligations.Request{Evaluation: evaluation})
		if string(got.Obligations[0].Properties) != want {
			t.Errorf("%s: %s, want %s", annotation, got.Obligations[0].Properties, want)
		}
		if again := terms.Obligations[0].Properties; strings.Contains(annotation, "{{") && string(again) == want {
			t.Errorf("%s: the terms themselves are filled in: %s", annotation, again)
		}
	}
}

// An unknown placeholder is a fault when policies are loaded.
func TestFillFaults(t *testing.T) {
	for annotation, want := range map[string]string{
		`{"subject":"{{subject.name}}"}`:           "{{subject.name}} stands for nothing; known are action.name, resource.id, resource.type, subject.id, subject.type",
		`{"subject":"{{}}"}`:                       "{{}} stands for nothing",
		`{"subject":"{{subject.id}"}`:              "has no end",
		`{"subject":"x","a":["{{context.time}}"]}`: "{{context.time}} stands for nothing",
	} {
		_, err := obligations.Parse(false, map[string]string{"obligation_session_termination": annotation})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", annotation, err)
		}
	}
}

// For any request, an obligation has the members of its type, and they are strings (OB-3, OB-5,
// OB-9 to OB-15 in conformance/testdata/rows.txt).
func FuzzFill(f *testing.F) {
	f.Add("alice", "{{subject.id}}")
	f.Add("\xff\"", "a{{action.name}}b{{resource.id}}")
	f.Fuzz(func(t *testing.T, id, text string) {
		quoted, err := jsontext.AppendQuote(nil, text)
		if err != nil {
			return
		}
		terms, err := obligations.Parse(true, map[string]string{"obligation_notification": `{"to":` + string(quoted) + `,"body":"b"}`})
		if err != nil {
			return
		}
		got := obligations.Compose(true, []*obligations.Terms{&terms}, obligations.Request{Evaluation: &authzen.EvaluationRequest{Subject: authzen.Subject{ID: id}}})
		var properties struct {
			To    []string `json:"to"`
			About *string  `json:"decision_subject"`
		}
		if err := authzen.Unmarshal(got.Obligations[0].Properties, &properties); err != nil || len(properties.To) != 1 || properties.About == nil {
			t.Errorf("%q in %q: %s", id, text, got.Obligations[0].Properties)
		}
	})
}

// The fast path and the token path give the same result.
func FuzzFillText(f *testing.F) {
	f.Add("alice", "{{subject.id}}", "k")
	f.Add("\xff\"\\", "a{{ action.name }}b{{resource.id}}}}", "{{subject.id}}")
	f.Add("\n\u2028<", "\t{{\tsubject.id}}\\", `\"`)
	f.Fuzz(func(t *testing.T, id, text, name string) {
		written, err := json.Marshal(map[string]any{name: text, "n": []any{1, text, map[string]any{"m": text}}})
		if err != nil {
			return
		}
		terms, err := obligations.Parse(true, map[string]string{"obligation_custom": string(written)})
		if err != nil {
			return
		}
		r := &authzen.EvaluationRequest{Subject: authzen.Subject{ID: id}, Action: authzen.Action{Name: text}, Resource: authzen.Resource{ID: id + text}}
		byText, byTokens, ok := obligations.Fill(terms.Obligations[0].Properties, r)
		if ok && string(byText) != string(byTokens) {
			t.Errorf("%s: by its text %s, by its tokens %s", written, byText, byTokens)
		}
		if ok && !byText.IsValid() {
			t.Errorf("%s: %s is no JSON", written, byText)
		}
	})
}
