// Package jsonobject changes members of JSON objects whose other members are of
// no concern.
//
// An object is parsed into its members, changed, and encoded again, with its
// members in the order of their names. The values of members that are not changed
// keep their bytes. As everywhere in the module, an object that has a name twice
// cannot be parsed.
//
// Values are compared in their canonical form; see [Equal].
package jsonobject

import (
	"errors"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// An Object has the values of the members of a JSON object by their names.
type Object map[string]jsontext.Value

// Parse returns the members of an object. An absent one, which is nil or null, has
// none.
func Parse(text jsontext.Value) (Object, error) {
	var o Object
	if text == nil {
		return Object{}, nil
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	if o == nil {
		o = Object{}
	}
	return o, nil
}

// UnmarshalJSONFrom reads an object or null.
func (o *Object) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch begin, err := dec.ReadToken(); {
	case err != nil:
		return err
	case begin.Kind() == 'n':
		*o = nil
		return nil
	case begin.Kind() != '{':
		return errNoObject
	}
	*o = make(Object)
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		text := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		(*o)[text] = value.Clone()
	}
	_, err := dec.ReadToken()
	return err
}

var errNoObject = errors.New("the value is not an object")

// MarshalJSONTo writes the members in the order of their names.
func (o Object) MarshalJSONTo(enc *jsontext.Encoder) error {
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if err := enc.WriteToken(jsontext.String(name)); err != nil {
			return err
		}
		value := o[name]
		if value == nil {
			value = jsontext.Value("null")
		}
		if err := enc.WriteValue(value); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}

// Put sets the value of a member as it is, or removes the member if value is nil.
func (o Object) Put(name string, value jsontext.Value) {
	if value == nil {
		delete(o, name)
		return
	}
	o[name] = value
}

// Set sets the value of a member to the JSON of v.
func (o Object) Set(name string, v any) error {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return err
	}
	o[name] = text
	return nil
}

// Remove removes members.
func (o Object) Remove(names ...string) {
	for _, name := range names {
		delete(o, name)
	}
}

// Encode returns the object as JSON.
func (o Object) Encode() (jsontext.Value, error) {
	return json.Marshal(o)
}

// EncodeMembers is Encode, with nil for an object without members.
func (o Object) EncodeMembers() (jsontext.Value, error) {
	if len(o) == 0 {
		return nil, nil
	}
	return o.Encode()
}
