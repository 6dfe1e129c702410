package coaz

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// A rule is the default mapping of a method.
type rule struct {
	resource string // its type
	id       string // an expression; "" for the server itself
	context  string // members beside the agent, each after a comma
}

const serverType = "mcp_server"

// rules are the default mappings of the binding ("Default Mappings"). Their subject is
// the subject of the token.
var rules = map[string]rule{
	"initialize":            {serverType, "", `,"protocol_version":"$params.protocolVersion"`},
	"tools/list":            {serverType, "", ""},
	"tools/call":            {"tool", "$params.name", ""},
	"resources/list":        {serverType, "", ""},
	"resources/read":        {"resource", "$params.uri", ""},
	"resources/subscribe":   {"resource", "$params.uri", ""},
	"resources/unsubscribe": {"resource", "$params.uri", ""},
	"prompts/list":          {serverType, "", ""},
	"prompts/get":           {"prompt", "$params.name", ""},
	// The binding has a $ before each name, which is not CEL: a mapping has the $ only
	// at the start of an expression.
	"completion/complete": {"$params.ref.type == 'ref/prompt' ? 'prompt' : 'resource'",
		"$params.ref.type == 'ref/prompt' ? params.ref.name : params.ref.uri", ""},
	"logging/setLevel": {serverType, "", `,"level":"$params.level"`},
	"tasks/get":        {"task", "$params.taskId", ""},
	"tasks/result":     {"task", "$params.taskId", ""},
	"tasks/cancel":     {"task", "$params.taskId", ""},
	"tasks/list":       {serverType, "", ""},
}

const listen = "subscriptions/listen"

// extras are methods for which the binding has no mapping, and which it denies. An
// operator may add them.
var extras = map[string]rule{
	"server/discover":          {serverType, "", ""},
	"resources/templates/list": {serverType, "", ""},
	listen:                     {serverType, "", ""}, // and a resources/subscribe for each URI
	"tasks/update":             {"task", "$params.taskId", ""},
}

// Methods returns the methods with a default mapping, sorted.
func Methods() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for _, table := range []map[string]rule{rules, extras} {
			for method := range table {
				if !yield(method) {
					return
				}
			}
		}
	})
}

// Extras returns the methods that [Upstream.Extra] may name.
func Extras() []string { return slices.Sorted(maps.Keys(extras)) }

// defaults compiles all rules.
func (c *compiler) defaults() (map[string]*mapping, error) {
	all := make(map[string]*mapping)
	for _, table := range []map[string]rule{rules, extras} {
		for method, r := range table {
			m, err := c.enveloped(r.template(method))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", method, err)
			}
			m.dialect, m.server = Default, r.id == ""
			all[method] = m
		}
	}
	return all, nil
}

func (r rule) template(method string) jsontext.Value {
	return fmt.Appendf(nil, `{"evaluation":{"action":{"name":%q},"resource":{"type":%q,"id":%q},"context":{"agent":"$token.?client_id"%s}}}`,
		method, r.resource, r.id, r.context)
}
