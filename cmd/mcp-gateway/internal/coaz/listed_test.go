package coaz_test

import (
	"errors"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
)

func TestListed(t *testing.T) {
	mapper, err := coaz.New(map[string]coaz.Upstream{
		"careful": {}, "draft": {Profile: coaz.ProfileCOAZ}, "trusting": {Trust: coaz.Declared}, "seed": {Profile: coaz.ProfileToolInvoke},
		"operated": {Tools: map[string]coaz.Tool{"pay": {Mapping: `{"evaluation":{"action":{"name":"pay"},"resource":{"type":"account","id":"$params.arguments.to"}}}`}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const (
		plain    = `{"name":"pay"}`
		declares = `{"name":"pay","inputSchema":{"x-authzen-mapping":{"evaluation":{"action":{"name":"pay"},"resource":{"type":"account","id":"$params.arguments.to"}}}}}`
		broken   = `{"name":"pay","inputSchema":{"x-authzen-mapping":{}}}`
	)
	for _, test := range []struct{ name, server, method, tool, item, want string }{
		{"a tool", "careful", "tools/list", plain, "pay", "tools/call tool::careful:pay"},
		{"a tool with a mapping", "careful", "tools/list", declares, "pay", "tools/call tool::careful:pay"},
		{"a tool whose mapping counts", "trusting", "tools/list", declares, "pay", "seen"},
		{"a tool without one that could count", "trusting", "tools/list", plain, "pay", "tools/call tool::trusting:pay"},
		{"a tool whose mapping is broken", "trusting", "tools/list", broken, "pay", "error"},
		{"a tool as the draft has it", "draft", "tools/list", plain, "pay", "tools/call tool::pay"},
		{"a tool of the operator", "operated", "tools/list", plain, "pay", "seen"},
		{"a tool by its server", "seed", "tools/list", plain, "pay", "tool.invoke tool::seed:pay"},
		{"a prompt", "careful", "prompts/list", "", "review", "prompts/get prompt::careful:review"},
		{"a resource", "careful", "resources/list", "", "file:///a", "resources/read resource::careful:file:///a"},
		{"a template", "careful", "resources/templates/list", "", "file:///{a}", "resources/read resource::careful:file:///{a}"},
		{"no list", "careful", "tools/call", plain, "pay", "unknown"},
		{"another server", "other", "tools/list", plain, "pay", "error"},
	} {
		call := coaz.Call{Method: test.method, Claims: caller, Server: test.server, Params: jsontext.Value(`{"cursor":"x"}`)}
		if test.tool != "" {
			call.Tool = jsontext.Value(test.tool)
		}
		question, err := mapper.Listed(call, test.item)
		var invalid *coaz.MappingError
		got := "seen"
		switch {
		case errors.Is(err, coaz.ErrUnknownMethod):
			got = "unknown"
		case errors.As(err, &invalid):
			got = "error"
		case err != nil:
			t.Fatal(err)
		case question != nil:
			got = question.Action.Name + " " + question.Resource.Type + "::" + question.Resource.ID
		}
		if got != test.want || err != nil && question != nil {
			t.Errorf("%s: %s, want %s (%v)", test.name, got, test.want, err)
		}
	}
}

// What an operator writes is checked at the start, all of it.
func TestUpstreamIsChecked(t *testing.T) {
	for name, upstream := range map[string]coaz.Upstream{
		"trust":     {Trust: "full"},
		"profile":   {Profile: "seed"},
		"hints":     {Annotations: "believed"},
		"a method":  {Extra: []string{"tools/call"}},
		"a mapping": {Tools: map[string]coaz.Tool{"pay": {Mapping: `{"evaluation":{"subject":{"id":"$user"}}}`}}},
	} {
		if _, err := coaz.New(map[string]coaz.Upstream{"good": {}, "bad": upstream}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
