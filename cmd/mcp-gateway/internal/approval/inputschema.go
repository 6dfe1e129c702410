package approval

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// maxSchema bounds the schema that approvers get, in bytes.
const maxSchema = 4 << 10

// bounding are the members of a schema that approvers get: those that bound the value of
// an argument, and no text of the server.
var bounding = []string{"type", "enum", "default", "minimum", "maximum"}

// inputSchema returns what the input schema of a tool says of the values of single
// arguments, or nil.
func inputSchema(tool *enforce.Tool) jsontext.Value {
	if tool == nil {
		return nil
	}
	properties := jsonobject.Object{}
	for name, schema := range object(object(object(tool.Definition)["inputSchema"])["properties"]) {
		bounds := jsonobject.Object{}
		for _, member := range bounding {
			if value := object(schema)[member]; value != nil {
				bounds[member] = value
			}
		}
		if len(bounds) > 0 && properties.Set(name, bounds) != nil {
			return nil
		}
	}
	if len(properties) == 0 {
		return nil
	}
	schema := jsonobject.Object{}
	if schema.Set("properties", properties) != nil {
		return nil
	}
	text, err := schema.Encode()
	if err != nil || len(text) > maxSchema {
		return nil
	}
	return text
}

// object returns the members of an object, nil of any other value.
func object(value jsontext.Value) jsonobject.Object {
	if value.Kind() != '{' {
		return nil
	}
	members, err := jsonobject.Parse(value)
	if err != nil {
		return nil
	}
	return members
}
