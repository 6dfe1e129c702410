package pdp_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas"
)

// The examples of requests for decisions are answered as their answers say, by
// the policy store that the document names: for records certification, for
// tools agent-tools.
func TestOpenAPIExamplesAreAnswered(t *testing.T) {
	type examples map[string]struct {
		Value map[string]any `yaml:"value"`
	}
	type body struct {
		Content map[string]struct {
			Examples examples `yaml:"examples"`
		} `yaml:"content"`
	}
	var document struct {
		Paths map[string]struct {
			Post struct {
				RequestBody body            `yaml:"requestBody"`
				Responses   map[string]body `yaml:"responses"`
			} `yaml:"post"`
		} `yaml:"paths"`
	}
	if err := yaml.Unmarshal(schemas.OpenAPI(), &document); err != nil {
		t.Fatal(err)
	}
	records := start(t, pdp.Config{})
	tools := start(t, pdp.Config{Policies: policySet(t, "agent-tools")})
	asked := 0
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		operation := document.Paths[path].Post
		answers := operation.Responses["200"].Content["application/json"].Examples
		for name, example := range operation.RequestBody.Content["application/json"].Examples {
			if answers[name].Value == nil || strings.Contains(path, "/requests") || strings.Contains(path, "/capabilities") {
				continue
			}
			request, err := json.Marshal(example.Value)
			if err != nil {
				t.Fatal(err)
			}
			service := records
			if strings.Contains(string(request), `"tool`) {
				service = tools
			}
			response, text := post(t, http.DefaultClient, service.main+path, string(request))
			var got any
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%s %s: %s: %v", path, name, response.Status, err)
			}
			if diff := cmp.Diff(lasting(answers[name].Value), lasting(got)); diff != "" {
				t.Errorf("%s: example %s (-document +service):\n%s", path, name, diff)
			}
			asked++
		}
	}
	if asked < 10 {
		t.Errorf("only %d examples were asked", asked)
	}
}

// lasting returns a body without what is of the moment, its numbers as JSON has
// them.
func lasting(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, value := range v {
			if !slices.Contains([]string{"evaluation_id", "evaluated_at", "expires_at", "binding_token", "access_request"}, name) {
				out[name] = lasting(value)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = lasting(value)
		}
		return out
	case uint64:
		return float64(v)
	}
	return v
}
