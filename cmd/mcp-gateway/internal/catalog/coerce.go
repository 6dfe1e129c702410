package catalog

import (
	stdjson "encoding/json"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/number"
)

// maxCoercions is how often arguments are coerced and validated again.
const maxCoercions = 4

// Coerce converts arguments to the types of the input schema: a text that is a JSON
// number or boolean becomes one where the schema wants it. Valid arguments are
// returned unchanged. The error is that of [Tool.Check] about the original arguments.
func (t *Tool) Coerce(arguments jsontext.Value) (jsontext.Value, error) {
	value, err := readArguments(arguments)
	if err != nil {
		return nil, err
	}
	faults, first := t.schema.check(value)
	if first == nil {
		return arguments, nil
	}
	for range maxCoercions {
		if !coerceAll(value, faults) {
			break
		}
		if faults, err = t.schema.check(value); err == nil {
			return stdjson.Marshal(value)
		}
	}
	return nil, first
}

// coerceAll coerces the values within value that the schema refuses, and reports
// whether it changed any.
func coerceAll(value any, faults []*jsonschema.ValidationError) (changed bool) {
	for _, fault := range faults {
		wanted, ok := fault.ErrorKind.(*kind.Type)
		if !ok {
			continue
		}
		changed = replace(value, fault.InstanceLocation, func(old any) (any, bool) {
			text, ok := old.(string)
			if !ok {
				return nil, false
			}
			return coerced(text, wanted.Want)
		}) || changed
	}
	return changed
}

// coerced returns the value of a text as one of the wanted types.
func coerced(text string, types []string) (any, bool) {
	switch v := jsontext.Value(text); {
	case !v.IsValid() || len(text) == 0 || text[0] == ' ' || text[len(text)-1] == ' ':
		return nil, false
	case v.Kind() == '0' && (slices.Contains(types, "number") || slices.Contains(types, "integer")) && bounded(text) && number.Exact(text):
		return stdjson.Number(text), true
	case (v.Kind() == 't' || v.Kind() == 'f') && slices.Contains(types, "boolean"):
		return v.Kind() == 't', true
	}
	return nil, false
}

// replace changes the value at a location, and reports whether it did.
func replace(value any, location []string, change func(any) (any, bool)) bool {
	if len(location) == 0 {
		return false
	}
	name, rest := location[0], location[1:]
	switch within := value.(type) {
	case map[string]any:
		if len(rest) > 0 {
			return replace(within[name], rest, change)
		}
		other, ok := change(within[name])
		if ok {
			within[name] = other
		}
		return ok
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= len(within) {
			return false
		}
		if len(rest) > 0 {
			return replace(within[i], rest, change)
		}
		other, ok := change(within[i])
		if ok {
			within[i] = other
		}
		return ok
	}
	return false
}
