package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// pdp permits the resources that it lists, one decision an item.
type pdp struct {
	permits, requestable []string
	asked                int
	short                bool // by one decision
	down                 bool
}

func (p *pdp) ask(_ context.Context, batch *authzen.EvaluationsRequest) (*authzen.EvaluationsResponse, error) {
	if p.down {
		return nil, errors.New("the PDP is gone")
	}
	p.asked++
	answer := &authzen.EvaluationsResponse{}
	for _, item := range batch.Items() {
		decision := authzen.Decision{Decision: slices.Contains(p.permits, item.Request.Resource.ID)}
		if slices.Contains(p.requestable, item.Request.Resource.ID) {
			decision.Context = &authzen.DecisionContext{AccessRequest: &authzen.AccessRequest{}}
		}
		answer.Evaluations = append(answer.Evaluations, decision)
	}
	if p.short {
		answer.Evaluations = answer.Evaluations[1:]
	}
	return answer, nil
}

// question asks about an item by its name.
func question(name string, _ jsontext.Value) (*authzen.EvaluationRequest, error) {
	switch name {
	case "unmapped":
		return nil, errors.New("no mapping")
	case "free":
		return nil, nil
	}
	return &authzen.EvaluationRequest{
		Subject: authzen.Subject{Type: "identity", ID: "alice"}, Action: authzen.Action{Name: "use"}, Resource: authzen.Resource{Type: "item", ID: name},
	}, nil
}

// Where no decision hides an item, all of them are shown but those that the operator
// has to accept.
func TestFilterShowsAll(t *testing.T) {
	c, _ := fresh(t)
	list := catalog.List{
		Server: "crm", Method: "tools/list", Question: question, TTL: time.Minute, ShowAll: true,
		Ask: func(context.Context, *authzen.EvaluationsRequest) (*authzen.EvaluationsResponse, error) {
			return nil, nil
		},
	}
	for _, test := range []struct{ result, want string }{
		{`{"tools":[{"name":"a"},{"name":"unmapped"},{"name":"free"}]}`, `{"cacheScope":"private","tools":[{"name":"a"},{"name":"unmapped"},{"name":"free"}]}`},
		{`{"tools":[{"name":"a","description":"changed"},{"name":"unmapped"}]}`, `{"cacheScope":"private","tools":[{"name":"unmapped"}]}`},
	} {
		list.Result = jsontext.Value(test.result)
		got, err := c.Filter(t.Context(), list)
		if err != nil || string(got) != test.want {
			t.Errorf("%s, %v", got, err)
		}
	}
}

func TestFilter(t *testing.T) {
	for _, test := range []struct {
		name, method, result string
		pdp                  pdp
		want                 string // "" for an error
	}{
		{"tools", "tools/list", `{"tools":[{"name":"a"},{"name":"b","x":1e2},{"name":"c"}],"nextCursor":"2","_meta":{"k":1}}`, pdp{permits: []string{"b"}},
			`{"_meta":{"k":1},"cacheScope":"private","nextCursor":"2","tools":[{"name":"b","x":1e2}]}`},
		{"nothing", "tools/list", `{"tools":[{"name":"a"}]}`, pdp{}, `{"cacheScope":"private","tools":[]}`},
		{"none to begin with", "tools/list", `{"tools":[]}`, pdp{down: true}, `{"cacheScope":"private","tools":[]}`},
		{"what a person may approve", "tools/list", `{"tools":[{"name":"a"},{"name":"b"}]}`, pdp{requestable: []string{"a"}}, `{"cacheScope":"private","tools":[{"name":"a"}]}`},
		{"what cannot be asked about", "tools/list", `{"tools":[{"name":"unmapped"},{"name":"free"}]}`, pdp{permits: []string{"unmapped"}}, `{"cacheScope":"private","tools":[{"name":"free"}]}`},
		{"a scope for everybody", "tools/list", `{"tools":[],"cacheScope":"public","ttlMs":3600000,"resultType":"complete"}`, pdp{}, `{"cacheScope":"private","resultType":"complete","tools":[],"ttlMs":60000}`},
		{"a shorter time", "tools/list", `{"tools":[],"ttlMs":5}`, pdp{}, `{"cacheScope":"private","tools":[],"ttlMs":5}`},
		{"a time that is none", "tools/list", `{"tools":[],"ttlMs":"long"}`, pdp{}, `{"cacheScope":"private","tools":[],"ttlMs":60000}`},
		{"a time before now", "tools/list", `{"tools":[],"ttlMs":-1}`, pdp{}, `{"cacheScope":"private","tools":[],"ttlMs":60000}`},
		{"prompts", "prompts/list", `{"prompts":[{"name":"a"},{"name":"b"}]}`, pdp{permits: []string{"a"}}, `{"cacheScope":"private","prompts":[{"name":"a"}]}`},
		{"resources", "resources/list", `{"resources":[{"uri":"file:///a","name":"x"},{"uri":"file:///b","name":"x"}]}`, pdp{permits: []string{"file:///b", "x"}},
			`{"cacheScope":"private","resources":[{"uri":"file:///b","name":"x"}]}`},
		{"templates", "resources/templates/list", `{"resourceTemplates":[{"uriTemplate":"file:///{a}"},{"uriTemplate":"db:///{a}"}]}`, pdp{permits: []string{"db:///{a}"}},
			`{"cacheScope":"private","resourceTemplates":[{"uriTemplate":"db:///{a}"}]}`},
		{"no PDP", "tools/list", `{"tools":[{"name":"a"}]}`, pdp{down: true, permits: []string{"a"}}, ""},
		{"a decision too few", "tools/list", `{"tools":[{"name":"a"},{"name":"b"}]}`, pdp{short: true, permits: []string{"a", "b"}}, ""},
		{"another method", "tools/call", `{"tools":[]}`, pdp{}, ""},
		{"another list", "prompts/list", `{"tools":[{"name":"a"}]}`, pdp{permits: []string{"a"}}, ""},
		{"a list twice", "tools/list", `{"tools":[],"tools":[{"name":"a"}]}`, pdp{permits: []string{"a"}}, ""},
		{"a list in another case", "tools/list", `{"Tools":[{"name":"a"}]}`, pdp{permits: []string{"a"}}, ""},
		{"an item without a name", "prompts/list", `{"prompts":[{"name":"a"},{"title":"b"}]}`, pdp{permits: []string{"a"}}, ""},
		{"an item that is no object", "prompts/list", `{"prompts":["a"]}`, pdp{permits: []string{"a"}}, ""},
		{"an item with two names", "prompts/list", `{"prompts":[{"name":"a","name":"b"}]}`, pdp{permits: []string{"a", "b"}}, ""},
		{"two items of a name", "prompts/list", `{"prompts":[{"name":"a"},{"name":"a","x":1}]}`, pdp{permits: []string{"a"}}, ""},
		{"null", "prompts/list", `{"prompts":null}`, pdp{}, ""},
		{"an array", "prompts/list", `[]`, pdp{}, ""},
		{"cut off", "prompts/list", `{"prompts":[{"name":"a"}`, pdp{permits: []string{"a"}}, ""},
		{"two results", "prompts/list", `{"prompts":[]}{"prompts":[{"name":"a"}]}`, pdp{permits: []string{"a"}}, ""},
		{"a byte order mark", "prompts/list", "\uFEFF" + `{"prompts":[]}`, pdp{}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := fresh(t)
			got, err := c.Filter(t.Context(), catalog.List{
				Server: "crm", Method: test.method, Result: jsontext.Value(test.result), Question: question, Ask: test.pdp.ask, TTL: time.Minute,
			})
			if diff := cmp.Diff(test.want, string(got)); diff != "" || (err != nil) != (test.want == "") {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A tool whose definition has changed is not seen, in whatever list it changes.
// One that has not is seen as it was listed, with its mapping: CZ-38, CZ-66.
func TestFilterQuarantines(t *testing.T) {
	c, changes := fresh(t)
	filter := func(result string) string {
		p := pdp{permits: []string{"pay", "other"}}
		got, err := c.Filter(t.Context(), catalog.List{Server: "crm", Method: "tools/list", Result: jsontext.Value(result), Question: question, Ask: p.ask})
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	if got := filter(`{"tools":[` + pay + `]}`); got != `{"cacheScope":"private","tools":[`+pay+`]}` {
		t.Fatal(got)
	}
	if got := filter(`{"tools":[` + strings.Replace(pay, "Pays.", "Pays more.", 1) + `,{"name":"other"}]}`); got != `{"cacheScope":"private","tools":[{"name":"other"}]}` {
		t.Error(got)
	}
	if _, err := c.Tool("crm", "pay"); !errors.Is(err, catalog.ErrQuarantined) || len(*changes) != 1 {
		t.Errorf("%v, %v", err, *changes)
	}
}

// Decisions are asked for in batches.
func TestFilterBatches(t *testing.T) {
	c, _ := fresh(t)
	p := pdp{}
	var tools []string
	for i := range 120 {
		tools = append(tools, fmt.Sprintf(`{"name":"t%d"}`, i))
		if i%2 == 0 {
			p.permits = append(p.permits, fmt.Sprintf("t%d", i))
		}
	}
	got, err := c.Filter(t.Context(), catalog.List{
		Server: "crm", Method: "tools/list", Result: jsontext.Value(`{"tools":[` + strings.Join(tools, ",") + `]}`), Question: question, Ask: p.ask,
	})
	if n := strings.Count(string(got), `"name"`); err != nil || n != 60 || p.asked != 3 {
		t.Errorf("%d tools, %d batches, %v", n, p.asked, err)
	}
}

// FuzzFilter looks for an item that is seen and not permitted.
func FuzzFilter(f *testing.F) {
	f.Add([]byte(`{"prompts":[{"name":"a"},{"name":"b"}],"nextCursor":"x"}`))
	f.Add([]byte(`{"prompts":[{"name":"a","arguments":[{"name":"b"}]}],"prompts ":[]}`))
	f.Add([]byte(`{"prompts":[{"n\u0061me":"b"}]}`))
	c, _ := fresh(f)
	f.Fuzz(func(t *testing.T, result []byte) {
		p := pdp{permits: []string{"a"}}
		got, err := c.Filter(t.Context(), catalog.List{Server: "crm", Method: "prompts/list", Result: result, Question: question, Ask: p.ask, TTL: time.Minute})
		if err != nil {
			if got != nil {
				t.Errorf("%s and %v", got, err)
			}
			return
		}
		var seen struct {
			Prompts []struct {
				Name string `json:"name"`
			} `json:"prompts"`
			Scope string `json:"cacheScope"`
		}
		if err := json.Unmarshal(got, &seen); err != nil || seen.Scope != "private" {
			t.Fatalf("%s: %v", got, err)
		}
		for _, prompt := range seen.Prompts {
			if prompt.Name != "a" && prompt.Name != "free" {
				t.Errorf("%s lets %q be seen", got, prompt.Name)
			}
		}
	})
}
