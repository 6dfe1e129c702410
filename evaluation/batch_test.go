package evaluation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// How far a batch is carried on: AZ-27, AZ-29, AZ-30. Items are y for yes, n
// for no and e for an error.
func TestSemantics(t *testing.T) {
	tests := []struct {
		semantic, items, want string
	}{
		{"", "yn", "yn"},
		{"execute_all", "yneny", "ynnny"},
		{"execute_all", "e", "n"},
		{"deny_on_first_deny", "yyy", "yyy"},
		{"deny_on_first_deny", "yynyn", "yyn"},
		{"deny_on_first_deny", "yey", "yn"}, // a failure is a denial
		{"deny_on_first_deny", "ny", "n"},
		{"permit_on_first_permit", "nnn", "nnn"},
		{"permit_on_first_permit", "nnyn", "nny"},
		{"permit_on_first_permit", "neyn", "nny"},
		{"permit_on_first_permit", "yn", "y"},
	}
	for _, test := range tests {
		t.Run(test.semantic+" "+test.items, func(t *testing.T) {
			e, l := engine(t, `@id("yes") permit (principal, action == Action::"y", resource);`, evaluation.Config{})
			var items []string
			for _, item := range test.items {
				items = append(items, map[rune]string{
					'y': `{"action":{"name":"y"}}`,
					'n': `{"action":{"name":"n"}}`,
					'e': `{"action":{}}`,
				}[item])
			}
			options := ""
			if test.semantic != "" {
				options = fmt.Sprintf(`,"options":{"evaluations_semantic":%q}`, test.semantic)
			}
			answer, err := e.Evaluations(t.Context(), evaluation.Call{}, batch(t, `{"subject":{"type":"user","id":"alice"},"resource":{"type":"doc","id":"1"},"evaluations":[`+
				strings.Join(items, ",")+`]`+options+`}`))
			if err != nil {
				t.Fatal(err)
			}
			if got := spell(answer.Evaluations); got != test.want || answer.Decision != nil {
				t.Errorf("answered %s and %v, want %s", got, answer.Decision, test.want)
			}

			// What is answered is what is recorded: one entry.
			log := entries(t, l)
			if len(log) != 1 || log[0].Kind != decisionlog.KindEvaluations || log[0].Result != nil {
				t.Fatalf("recorded %+v", log)
			}
			var recorded []authzen.Decision
			for _, r := range log[0].Evaluations {
				recorded = append(recorded, authzen.Decision{Decision: r.Decision})
			}
			if got := spell(recorded); got != test.want {
				t.Errorf("recorded %s, want %s", got, test.want)
			}
		})
	}
}

func spell(decisions []authzen.Decision) string {
	var b strings.Builder
	for _, d := range decisions {
		b.WriteString(map[bool]string{true: "y", false: "n"}[d.Decision])
	}
	return b.String()
}

// What is wrong with one item is that item's denial: AZ-34, AZ-104.
func TestItemErrors(t *testing.T) {
	const body = `{
		"subject": {"type": "user", "id": "alice"},
		"action": {"name": "read"},
		"evaluations": [
			{"resource": {"type": "doc", "id": "1"}},
			{},
			{"resource": {"type": "doc"}},
			{"resource": {"type": "do-c", "id": "1"}},
			{"resource": {"type": "doc", "id": "1"}, "context": {"action": 1}},
			{"resource": {"type": "doc", "id": "1", "properties": {"a": [1, null]}}},
			{"resource": "doc"},
			"doc"
		]}`
	const notAType = `/resource/type is not the name of a Cedar entity type and has no alias in config.yaml: "do-c"`
	messages := []string{
		"",
		"/evaluations/1/resource is required",
		"/evaluations/2/resource/id is required",
		"/evaluations/3" + notAType,
		"/evaluations/4/context/action is where policies find the action's properties: send those",
		"/evaluations/5/resource/properties/a/1 must not be null",
		"/evaluations/6/resource must be an object, not a string",
		"/evaluations/7 must be an object, not a string",
	}

	t.Run("shown", func(t *testing.T) {
		e, l := engine(t, open, evaluation.Config{ItemError: func(err error) *authzen.Error {
			var invalid *authzen.ValidationError
			if !errors.As(err, &invalid) {
				t.Errorf("an item's error is a %T", err)
			}
			return &authzen.Error{Status: 400, Message: err.Error()}
		}})
		answer, err := e.Evaluations(t.Context(), evaluation.Call{}, batch(t, body))
		if err != nil {
			t.Fatal(err)
		}
		var want []authzen.Decision
		for _, message := range messages {
			d := authzen.Decision{Decision: message == ""}
			if !d.Decision {
				d.Context = &authzen.DecisionContext{Error: &authzen.Error{Status: 400, Message: message}}
			}
			want = append(want, d)
		}
		if diff := cmp.Diff(want, answer.Evaluations); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
		for i, r := range entries(t, l)[0].Evaluations {
			if r.Decision != (i == 0) || i > 0 && (len(r.Errors) != 1 || r.Errors[0].Message != messages[i]) {
				t.Errorf("item %d is recorded as %+v", i, r)
			}
		}
	})
	t.Run("not shown", func(t *testing.T) {
		e, _ := engine(t, open, evaluation.Config{})
		answer, err := e.Evaluations(t.Context(), evaluation.Call{}, batch(t, body))
		if err != nil {
			t.Fatal(err)
		}
		want := append([]authzen.Decision{{Decision: true}}, make([]authzen.Decision, len(messages)-1)...)
		if diff := cmp.Diff(want, answer.Evaluations); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
	})
}

// Obligations are unique within a response, and are those of the entry: OB-31.
func TestItemObligations(t *testing.T) {
	e, l := engine(t, recorded, evaluation.Config{})
	answer, err := e.Evaluations(t.Context(), evaluation.Call{}, batch(t, `{
		"subject": {"type": "user", "id": "alice"},
		"action": {"name": "read"},
		"resource": {"type": "doc", "id": "1"},
		"evaluations": [
			{},
			{"action": {"name": "write"}, "context": {"supported_obligations": ["custom"]}},
			{"action": {"name": "write"}},
			{}
		]}`))
	if err != nil {
		t.Fatal(err)
	}
	ids := func(obligations []authzen.Obligation) (all []string) {
		for _, o := range obligations {
			all = append(all, o.ID)
		}
		return all
	}
	var told, recorded [][]string
	for i, d := range answer.Evaluations {
		told = append(told, ids(d.Context.Obligations))
		recorded = append(recorded, ids(entries(t, l)[0].Evaluations[i].Obligations))
	}
	want := [][]string{{"0.obligation-1"}, {"1.obligation-1"}, nil, {"3.obligation-1"}}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("answered ids (-want +got):\n%s", diff)
	}
	want[2] = []string{"2.obligation-1"} // for want of which it is denied
	if diff := cmp.Diff(want, recorded); diff != "" {
		t.Errorf("recorded ids (-want +got):\n%s", diff)
	}
}

// An array without items is a single request: AZ-18.
func TestSingleForm(t *testing.T) {
	const single = `"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}`
	for _, body := range []string{`{` + single + `}`, `{` + single + `,"evaluations":[]}`, `{"evaluations":null,` + single + `}`} {
		e, l := engine(t, open, evaluation.Config{})
		answer, err := e.Evaluations(t.Context(), evaluation.Call{}, batch(t, body))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(answer); string(got) != `{"decision":true}` {
			t.Errorf("%s\nis answered %s, %v", body, got, err)
		}
		log := entries(t, l)
		if len(log) != 1 || log[0].Kind != decisionlog.KindEvaluation || log[0].Result == nil || log[0].Evaluations != nil ||
			string(log[0].Request) != `{`+single+`}` {
			t.Errorf("%s\nis recorded as %+v", body, log)
		}
	}
}

func TestTooManyItems(t *testing.T) {
	items := func(n int) *authzen.EvaluationsRequest {
		return batch(t, `{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"evaluations":[{}`+
			strings.Repeat(",{}", n-1)+`]}`)
	}
	for limit, config := range map[int]evaluation.Config{3: {MaxItems: 3}, 1000: {}} {
		e, l := engine(t, open, config)
		if answer, err := e.Evaluations(t.Context(), evaluation.Call{}, items(limit+1)); answer != nil || !errors.Is(err, evaluation.ErrTooManyItems) {
			t.Errorf("%d items are answered %v, %v", limit+1, answer, err)
		}
		if got := export(t, l); len(got) > 0 {
			t.Errorf("the log has\n%s", got)
		}
		answer, err := e.Evaluations(t.Context(), evaluation.Call{}, items(limit))
		if err != nil || len(answer.Evaluations) != limit {
			t.Errorf("%d items are answered %v, %v", limit, answer, err)
		}
	}
}

// Every item is answered as it is alone: AZ-19.
func TestItemsAreRequests(t *testing.T) {
	e, _ := engine(t, crowd, evaluation.Config{})
	s := compile(t, crowd)
	requests := crowdRequests(t)
	var items []string
	for _, req := range requests {
		item, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, string(item))
	}
	answer, err := e.Evaluations(t.Context(), evaluation.Call{}, batch(t, `{"subject":{"type":"user","id":"mallory"},"context":{"level":9},"evaluations":[`+
		strings.Join(items, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, req := range requests {
		if req.Context == nil { // an item without a context has the default one
			req.Context = []byte(`{"level":9}`)
		}
		outcome, err := s.Decide(req, environment)
		if err != nil {
			t.Fatal(err)
		}
		alone := authzen.Decision{Decision: outcome.Decision, Context: outcome.Context}
		if alone.Context != nil {
			for k := range alone.Context.Obligations {
				alone.Context.Obligations[k].ID = fmt.Sprintf("%d.%s", i, alone.Context.Obligations[k].ID)
			}
		}
		if diff := cmp.Diff(alone, answer.Evaluations[i]); diff != "" {
			t.Errorf("%s (-alone +item):\n%s", items[i], diff)
		}
	}
}
