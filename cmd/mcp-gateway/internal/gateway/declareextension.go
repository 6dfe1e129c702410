package gateway

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// declareExtension adds an extension of the gateway to the capabilities of a server.
func declareExtension(result jsontext.Value, extension string) (jsontext.Value, error) {
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
			return within(extensions, extension, func(jsontext.Value) (jsontext.Value, error) { return jsontext.Value("{}"), nil })
		})
	})
}
