package coaz_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A request asks for tools/request on the tool, and what a mapping of the tool asks
// about the call: a guardrail of the mapping holds for requested calls as well.
func TestMapRequest(t *testing.T) {
	const declares = `{"name":"send","inputSchema":{"type":"object","x-authzen-mapping":{"evaluation":{"action":{"name":"post"},"resource":{"type":"channel","id":"$params.arguments.to"}}}}}`
	const plain = `{"name":"send","inputSchema":{"type":"object"}}`
	const request, post = `tools/request tool desk:send`, `post channel all`
	for _, c := range []struct {
		upstream coaz.Upstream
		tool     string
		want     string
	}{
		{coaz.Upstream{}, plain, request},
		{coaz.Upstream{}, declares, request + ", " + post},
		{coaz.Upstream{Trust: coaz.Declared}, declares, request + ", " + post},
		{coaz.Upstream{Trust: coaz.DefaultOnly}, declares, request},
		{coaz.Upstream{Profile: coaz.ProfileToolInvoke}, plain, request},
		{coaz.Upstream{Profile: coaz.ProfileCOAZ}, plain, "tools/request tool send"},
		{coaz.Upstream{Tools: map[string]coaz.Tool{"send": {Mapping: `{"evaluation":{"action":{"name":"mine"},"resource":{"type":"a","id":"b"}}}`}}}, plain, request + ", mine a b"},
	} {
		m, err := coaz.New(map[string]coaz.Upstream{"desk": c.upstream})
		if err != nil {
			t.Fatal(err)
		}
		q, err := m.MapRequest(coaz.Call{
			Method: "tools/call", Params: jsontext.Value(`{"name":"send","arguments":{"to":"all"}}`), Tool: jsontext.Value(c.tool),
			Subject: authzen.Subject{Type: "agent", ID: "a"}, Claims: map[string]any{"sub": "a"}, Server: "desk",
		})
		if err != nil {
			t.Errorf("%+v: %v", c.upstream, err)
			continue
		}
		if got := asked(t, q); got != c.want {
			t.Errorf("%+v: %s, not %s", c.upstream, got, c.want)
		}
	}
}

// A tool does not say which request a call fulfils, nor what else policies believe of the
// gateway.
func TestDeclaredFacts(t *testing.T) {
	m, err := coaz.New(map[string]coaz.Upstream{"desk": {}})
	if err != nil {
		t.Fatal(err)
	}
	for _, fact := range []string{"fulfils", "capability", "approval", "session"} {
		tool := `{"name":"send","inputSchema":{"type":"object","x-authzen-mapping":{"evaluation":{"action":{"name":"post"},"resource":{"type":"a","id":"b"},"context":{"` + fact + `":{}}}}}}`
		_, err := m.Map(coaz.Call{
			Method: "tools/call", Params: jsontext.Value(`{"name":"send"}`), Tool: jsontext.Value(tool),
			Subject: authzen.Subject{Type: "agent", ID: "a"}, Claims: map[string]any{"sub": "a"}, Server: "desk",
		})
		if err == nil || !strings.Contains(err.Error(), "not a mapping's to say") {
			t.Errorf("%s: %v", fact, err)
		}
	}
}

// asked returns the actions and resources of questions.
func asked(t *testing.T, q coaz.Questions) string {
	t.Helper()
	all := []*authzen.EvaluationRequest{q.Evaluation}
	if q.Evaluations != nil {
		all = nil
		for _, text := range q.Evaluations.Evaluations {
			request := new(authzen.EvaluationRequest)
			if err := json.Unmarshal(text, request); err != nil {
				t.Fatal(err)
			}
			all = append(all, request)
		}
	}
	var said []string
	for _, r := range all {
		said = append(said, r.Action.Name+" "+r.Resource.Type+" "+r.Resource.ID)
	}
	return strings.Join(said, ", ")
}
