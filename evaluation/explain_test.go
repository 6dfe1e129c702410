package evaluation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/policies"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// TestExplain holds explanations against testdata/explain/*.txtar.
//
// The comment of a file says what situation it shows; a line "policies: NAME"
// names an embedded set. Otherwise the sections store/… are the policy store.
// A case is NAME.request, an AuthZEN request, and NAME.txt, its explanation;
// NAME.json, where there is one, is the explanation as JSON, but
// for the revision.
func TestExplain(t *testing.T) {
	files, err := filepath.Glob("testdata/explain/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no situations: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			testSituation(t, file)
		})
	}
}

func testSituation(t *testing.T, file string) {
	text, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := situation(t, text)
	requests := map[string]*authzen.EvaluationRequest{}
	for i := range text.Files {
		section := &text.Files[i]
		name, form := strings.TrimSuffix(section.Name, filepath.Ext(section.Name)), filepath.Ext(section.Name)
		switch {
		case strings.HasPrefix(section.Name, "store/"):
		case form == ".request":
			requests[name] = request(t, string(section.Data))
		default:
			checkExplanation(t, s, requests[name], section)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// situation compiles the policy store of a file.
func situation(t *testing.T, text *txtar.Archive) *snapshot.Snapshot {
	t.Helper()
	store := snapshot.Archive{}
	for line := range strings.Lines(string(text.Comment)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "policies: ")
		if !ok {
			continue
		}
		set, err := policies.Set(name)
		if err == nil {
			store, err = policystore.Read(set)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, section := range text.Files {
		if name, ok := strings.CutPrefix(section.Name, "store/"); ok {
			store[name] = section.Data
		}
	}
	s, err := snapshot.Compile(store)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkExplanation explains a request in the form that the section has.
func checkExplanation(t *testing.T, s *snapshot.Snapshot, asked *authzen.EvaluationRequest, section *txtar.File) {
	t.Helper()
	explanation, err := explain.Explain(s, asked, environment)
	if err != nil {
		t.Fatalf("%s: %v", section.Name, err)
	}
	got := explanation.String()
	if strings.HasSuffix(section.Name, ".json") {
		body, err := json.Marshal(explanation, jsontext.Multiline(true))
		if err != nil {
			t.Fatal(err)
		}
		got = strings.Replace(string(body), s.Revision(), "REVISION", 1) + "\n"
	}
	if *update {
		section.Data = []byte(got)
	}
	if diff := gocmp.Diff(string(section.Data), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", section.Name, diff)
	}
}

// An explanation explains the decision that is made, whatever the store and
// the request, and is the same every time, also at the same time.
func TestExplainIsTheDecision(t *testing.T) {
	traceTrials(t, func(t *testing.T, c *trial, s *snapshot.Snapshot) {
		for i, request := range c.requests {
			env := snapshot.Environment{Time: trialTime}
			outcome, wantErr := s.Decide(request, env)
			var explanation, again *explain.Explanation
			var err error
			var both sync.WaitGroup
			both.Go(func() { explanation, err = explain.Explain(s, request, env) })
			both.Go(func() { again, _ = explain.Explain(s, request, env) })
			both.Wait()
			if err != nil || wantErr != nil {
				if diff := gocmp.Diff(fmt.Sprint(wantErr), fmt.Sprint(err)); diff != "" {
					t.Errorf("request %d: error (-decide +explain):\n%s", i, diff)
				}
				continue
			}
			checkDetermining(t, outcome, explanation)
			if diff := gocmp.Diff(explanation, again, ignoreErrorTexts); diff != "" {
				t.Errorf("request %d (-one +the other):\n%s", i, diff)
			}
			if lines := strings.Count(explanation.String(), "\n"); lines > 80 {
				t.Errorf("request %d: %d lines", i, lines)
			}
		}
	})
}

// ignoreErrorTexts compares explanations but for what Cedar says of an error,
// which of several in a set or record it meets first being left to chance.
var ignoreErrorTexts = gocmp.Options{
	cmpopts.IgnoreUnexported(explain.Step{}),
	cmpopts.IgnoreFields(explain.Step{}, "Error"),
	cmpopts.IgnoreFields(explain.NearMiss{}, "Because"),
}

func checkDetermining(t *testing.T, outcome *snapshot.Outcome, explanation *explain.Explanation) {
	t.Helper()
	var determining []string
	for _, d := range explanation.Determining {
		determining = append(determining, d.Policy)
	}
	if explanation.Decision != outcome.Decision || !slices.Equal(determining, outcome.Policies) {
		t.Errorf("explained as %t by %q, decided %t by %q", explanation.Decision, determining, outcome.Decision, outcome.Policies)
	}
}
