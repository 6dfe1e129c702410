package gateway

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// declareTasks adds to the capabilities of a server that it may answer with a task.
func declareTasks(result jsontext.Value) (jsontext.Value, error) {
	within := func(object jsontext.Value, name string, change func(jsontext.Value) (jsontext.Value, error)) (jsontext.Value, error) {
		members, err := jsonobject.Parse(object)
		if err != nil {
			return nil, err
		}
		if members[name], err = change(members[name]); err != nil {
			return nil, err
		}
		return members.Encode()
	}
	return within(result, "capabilities", func(all jsontext.Value) (jsontext.Value, error) {
		return within(all, "extensions", func(extensions jsontext.Value) (jsontext.Value, error) {
			return within(extensions, wire.ExtensionTasks, func(jsontext.Value) (jsontext.Value, error) { return jsontext.Value("{}"), nil })
		})
	})
}
