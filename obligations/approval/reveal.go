package approval

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Unmasked returns the value at a place of the request's sheet without its mask. The place is a JSON
// Pointer (RFC 6901). The caller decides who may see it, and records that first.
func (r *Request) Unmasked(place jsontext.Pointer) (jsontext.Value, error) {
	at, err := json.Marshal(r.sheet())
	if err != nil {
		return nil, err
	}
	value, ok := jsontext.Value(at), place.IsValid() && place != ""
	for name := range place.Tokens() {
		if !ok {
			break
		}
		value, ok = member(value, name)
	}
	if !ok {
		return nil, authzen.Invalid("/path", "is no place of the sheet")
	}
	return value, nil
}

// member returns a member of an object by name, or an element of an array by index.
func member(of jsontext.Value, name string) (jsontext.Value, bool) {
	if of.Kind() == '{' {
		members, err := jsonobject.Parse(of)
		return members[name], err == nil && members[name] != nil
	}
	var elements []jsontext.Value
	n, err := strconv.Atoi(name)
	if of.Kind() != '[' || err != nil || json.Unmarshal(of, &elements) != nil || n < 0 || n >= len(elements) {
		return nil, false
	}
	return elements[n], true
}
