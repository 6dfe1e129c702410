package coaz_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A pathCase is one of the compliance test suite of RFC 9535.
type pathCase struct {
	Name     string             `json:"name"`
	Selector string             `json:"selector"`
	Document jsontext.Value     `json:"document"`
	Result   []jsontext.Value   `json:"result"`
	Results  [][]jsontext.Value `json:"results"`
	Invalid  bool               `json:"invalid_selector"`
}

// singular reports whether a valid selector is a singular query (RFC 9535, 2.3.5.1).
var singular = regexp.MustCompile(`^\$(?s:[ \t\n\r]*(?:\.[^.*\[\s]+|\[[ \t\n\r]*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?[0-9]+)[ \t\n\r]*\]))*$`)

// names matches a selector that begins with a name.
var names = regexp.MustCompile(`^\$(?:\.\w|\[['"])`)

// A path of a mapping is a singular query, as the compliance test suite of RFC 9535
// reads it. Every other query is an error of the mapping, and so is a name where
// there is an array.
func TestPaths(t *testing.T) {
	text, err := os.ReadFile("testdata/jsonpath/cts.json")
	if err != nil {
		t.Fatal(err)
	}
	var suite struct {
		Tests []pathCase `json:"tests"`
	}
	if err := json.Unmarshal(text, &suite); err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, c := range suite.Tests {
		if !strings.HasPrefix(c.Selector, "$") {
			continue // it is a literal
		}
		got, err := mapPath(t, "$.token.sub", "$.properties.d"+c.Selector[1:], c.Document)
		switch {
		case c.Invalid || !singular.MatchString(c.Selector) || c.Document.Kind() == '[' && names.MatchString(c.Selector):
			var fault *coaz.MappingError
			if !errors.As(err, &fault) {
				t.Errorf("%s: %q selects %s, %v; want an error of the mapping", c.Name, c.Selector, got, err)
			}
		case err != nil || len(c.Result) == 0 && got != nil || len(c.Result) > 0 && !same(t, got, c.Result[0]):
			t.Errorf("%s: %q selects %s, %v; want %s", c.Name, c.Selector, got, err, c.Result)
		default:
			read++
		}
	}
	if read < 70 {
		t.Errorf("%d singular queries are read, want those of the suite", read)
	}
}

// A path that must have a value is an error without one.
func TestRequiredPaths(t *testing.T) {
	for path, want := range map[string]string{"$.properties.d[0]": "a", "$.properties.d[-1]": "b", "$.properties.d[-2]": "a", "$.properties.d[2]": "", "$.properties.d[-3]": "", "$.properties[0]": "", "$.properties.d['x']": ""} {
		_, err := mapPath(t, path, "x", jsontext.Value(`["a","b"]`))
		if failed := err != nil; failed != (want == "") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// mapPath returns the value of a path of a mapping's context in a document. Id is
// the id of the resource, which must have a value.
func mapPath(t *testing.T, id, path string, document jsontext.Value) (jsontext.Value, error) {
	t.Helper()
	quoted, err := json.Marshal(path)
	if err != nil {
		return nil, &coaz.MappingError{Reason: "not UTF-8"}
	}
	if document == nil {
		document = jsontext.Value("{}")
	}
	m, err := coaz.New(map[string]coaz.Upstream{"crm": {Trust: coaz.Declared}})
	if err != nil {
		t.Fatal(err)
	}
	q, err := m.Map(coaz.Call{
		Method: "tools/call", Server: "crm", Claims: map[string]any{"sub": "alice"},
		Params: fmt.Appendf(nil, `{"name":"find","arguments":{"d":%s}}`, document),
		Tool:   fmt.Appendf(nil, `{"name":"find","coaz":true,"inputSchema":{"type":"object","x-coaz-mapping":{"subject":{"id":"$.token.sub"},"resource":{"type":"t","id":%q},"context":{"v":%s}}}}`, id, quoted),
	})
	if err != nil {
		return nil, err
	}
	return contextOf(t, q.Evaluation)["v"], nil
}

func contextOf(t *testing.T, r *authzen.EvaluationRequest) map[string]jsontext.Value {
	t.Helper()
	var members map[string]jsontext.Value
	if r == nil {
		t.Fatal("there is no question")
	}
	if err := json.Unmarshal(r.Context, &members); err != nil {
		t.Fatal(err)
	}
	return members
}

// same reports whether two texts have the same value.
func same(t *testing.T, a, b jsontext.Value) bool {
	t.Helper()
	a, b = a.Clone(), b.Clone()
	if err := errors.Join(a.Canonicalize(), b.Canonicalize()); err != nil {
		t.Fatal(err)
	}
	return string(a) == string(b)
}
