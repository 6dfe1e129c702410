package approval

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Unmasked returns the value that the mask has replaced at a place of the request's sheet. The place is a
// JSON Pointer (RFC 6901). Other places, also those with several masked values, are
// [authzen.ValidationError]. The caller decides who may see the value, and records that first.
func (s *Service) Unmasked(r *Request, place jsontext.Pointer) (jsontext.Value, error) {
	clear, masked, err := s.sheetTexts(r)
	if err != nil {
		return nil, err
	}
	value, ok := at(clear, place)
	mask, isShown := at(masked, place)
	if !ok || !isShown || mask.Kind() != '"' || bytes.Equal(value, mask) {
		return nil, authzen.Invalid("/path", "is no place of a masked value in the sheet")
	}
	return value, nil
}

// at returns the value at a place of a value, except the whole.
func at(value jsontext.Value, place jsontext.Pointer) (jsontext.Value, bool) {
	ok := place.IsValid() && place != ""
	for name := range place.Tokens() {
		if !ok {
			break
		}
		value, ok = member(value, name)
	}
	return value, ok
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
