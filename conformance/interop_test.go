package conformance_test

import (
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

var interopDir = flag.String("interop", "", "run the public AuthZEN interop fixtures in this `directory` (relative ones are below conformance)")

// scenarios are the public interop scenarios: the policy set that serves each
// and what its files ask.
var scenarios = []struct {
	name, set string
	parts     []fixturePart
}{
	{"todo", "todo", []fixturePart{
		{"todo-1_0-01.json", "evaluation", authzen.PathEvaluation, decisionBody},
		{"todo-1_0-02.json", "evaluation", authzen.PathEvaluation, decisionBody},
		{"todo-1_0-02.json", "evaluations", authzen.PathEvaluations, decisionsBody},
	}},
	{"gateways", "gateways", []fixturePart{
		{"gateways.json", "evaluation", authzen.PathEvaluation, decisionBody},
	}},
	{"search", "search", []fixturePart{
		{"search-subject.json", "evaluation", authzen.PathSearchSubject, resultsBody},
		{"search-resource.json", "evaluation", authzen.PathSearchResource, resultsBody},
		{"search-action.json", "evaluation", authzen.PathSearchAction, resultsBody},
	}},
	{"idp", "search", []fixturePart{
		{"idp.json", "search", authzen.PathSearchResource, resultsBody},
	}},
}

// A fixturePart is one list of a fixture file.
type fixturePart struct {
	file, key string
	path      string                      // where its requests go
	body      func(jsontext.Value) string // the whole answer to one that is expected so
}

func decisionBody(expected jsontext.Value) string { return `{"decision":` + string(expected) + `}` }

func decisionsBody(expected jsontext.Value) string {
	expected = expected.Clone()
	if err := expected.Compact(); err != nil {
		return err.Error()
	}
	return `{"evaluations":` + string(expected) + `}`
}

// resultsBody puts results in order: their own means nothing.
func resultsBody(expected jsontext.Value) string {
	var body struct {
		Results []jsontext.Value `json:"results"`
	}
	if err := json.Unmarshal(expected, &body); err != nil {
		return err.Error()
	}
	results := make([]string, len(body.Results))
	for i, result := range body.Results {
		if err := result.Compact(); err != nil {
			return err.Error()
		}
		results[i] = string(result)
	}
	slices.Sort(results)
	return `{"results":[` + strings.Join(results, ",") + `]}`
}

// A fixture is a request, to be sent as it stands in its file.
type fixture struct {
	Request  jsontext.Value `json:"request"`
	Expected jsontext.Value `json:"expected"`
}

// TestInterop compares whole bodies, byte for byte, as the strictest of the
// public runners do; of a search they sort the results.
func TestInterop(t *testing.T) {
	if *interopDir == "" {
		t.Skip("no -interop directory")
	}
	for _, scenario := range scenarios {
		t.Run(scenario.name, func(t *testing.T) {
			s := serve(t, scenario.set)
			passed, total := 0, 0
			for _, part := range scenario.parts {
				for i, f := range part.load(t) {
					total++
					status, got := s.post(t, part.path, f.Request)
					if strings.HasPrefix(got, `{"results":`) {
						got = resultsBody(jsontext.Value(got))
					}
					if want := part.body(f.Expected); status != http.StatusOK || got != want {
						t.Errorf("%s %s %d: %d %s, want %s for %s", part.file, part.key, i, status, got, want, f.Request)
						continue
					}
					passed++
				}
			}
			t.Logf("%s %d/%d", scenario.name, passed, total)
		})
	}
}

func (p fixturePart) load(t *testing.T) []fixture {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(*interopDir, p.file))
	if err != nil {
		t.Fatal(err)
	}
	var lists map[string][]fixture
	if err := json.Unmarshal(text, &lists); err != nil {
		t.Fatalf("%s: %v", p.file, err)
	}
	if len(lists[p.key]) == 0 {
		t.Fatalf("%s has no %s", p.file, p.key)
	}
	return lists[p.key]
}
