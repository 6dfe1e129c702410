package authzen

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep arrays and objects of a request may nest.
const MaxDepth = 32

// Unmarshal reads a request body into v, strictly (see the package comment).
// Every error it returns is a *[ValidationError].
func Unmarshal(body []byte, v any) error { return unmarshal(body, v) }

// UnmarshalKnown is [Unmarshal] for a body in which a member that v does not
// have is a fault: it would be taken for something that was said and is not
// done. It holds for types of plain fields, which read no members themselves.
func UnmarshalKnown(body []byte, v any) error {
	return unmarshal(body, v, json.RejectUnknownMembers(true))
}

func unmarshal(body []byte, v any, options ...json.Options) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return Invalid("", "is empty: send a JSON object")
	}
	if depth(body) > MaxDepth {
		return Invalid("", "nests deeper than %d levels", MaxDepth)
	}
	return asValidationError(json.Unmarshal(body, v, options...))
}

// depth counts the deepest nesting of body, whether or not it is valid JSON. Of
// one that has too few brackets to nest deeply it only says how many.
func depth(body []byte) int {
	if all := bytes.Count(body, []byte{'{'}) + bytes.Count(body, []byte{'['}); all <= MaxDepth {
		return all
	}
	deepest, open, quoted := 0, 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			open++
			deepest = max(deepest, open)
		case c == '}', c == ']':
			open--
		}
	}
	return deepest
}

// asValidationError turns what the JSON reader says into the one typed error
// of this package.
func asValidationError(err error) error {
	if err == nil {
		return nil
	}
	var invalid *ValidationError
	if errors.As(err, &invalid) {
		return invalid
	}
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax):
		return Invalid(string(syntax.JSONPointer), "is named twice")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Invalid("", "is not valid JSON: it ends too early")
	case errors.As(err, &syntax):
		return Invalid(string(syntax.JSONPointer), "is not valid JSON at byte %d: %v", syntax.ByteOffset, syntax.Err)
	case errors.Is(err, json.ErrUnknownName) && errors.As(err, &semantic):
		return Invalid(string(semantic.JSONPointer), "is not known: %s", membersOf(semantic.GoType))
	case errors.As(err, &semantic):
		return Invalid(string(semantic.JSONPointer), "is not of the type it must be")
	}
	return Invalid("", "is not valid JSON")
}

// membersOf says which members an object of a type has.
func membersOf(t reflect.Type) string {
	names := slices.Sorted(slices.Values(namesOf(t)))
	if len(names) == 0 {
		return "there are no members"
	}
	return "there are " + strings.Join(names, ", ")
}

func namesOf(t reflect.Type) (names []string) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name != "":
			names = append(names, name)
		case field.Anonymous:
			names = append(names, namesOf(field.Type)...)
		}
	}
	return names
}

// members reads a JSON object. It calls read with each name; what read leaves
// unread is skipped, which is how unknown members are ignored.
func members(dec *jsontext.Decoder, read func(name string) error) error {
	if err := expect(dec, '{', "an object"); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() == '"' {
		raw, err := dec.ReadValue()
		if err != nil {
			return err
		}
		name, err := unquoted(raw)
		if err != nil {
			return err
		}
		before := dec.InputOffset()
		if err := read(name); err != nil {
			return err
		}
		if dec.InputOffset() == before {
			if err := dec.SkipValue(); err != nil {
				return err
			}
		}
	}
	_, err := dec.ReadToken()
	return err
}

// usual are names that nearly every request has, by how they are written.
var usual = map[string]string{
	`"subject"`: "subject", `"action"`: "action", `"resource"`: "resource", `"context"`: "context", `"evaluations"`: "evaluations",
	`"type"`: "type", `"id"`: "id", `"name"`: "name", `"properties"`: "properties",
}

// unquoted returns the name that a member has as it is written.
func unquoted(raw jsontext.Value) (string, error) {
	if name, ok := usual[string(raw)]; ok {
		return name, nil
	}
	name, err := jsontext.AppendUnquote(nil, raw)
	return string(name), err
}

// expect reports a value of another kind than wanted. A syntax error at that
// place is left to the read that follows.
func expect(dec *jsontext.Decoder, kind jsontext.Kind, wanted string) error {
	got := dec.PeekKind()
	if got == kind || got == jsontext.KindInvalid {
		return nil
	}
	if _, err := dec.ReadToken(); err != nil { // so that the pointer is the value's
		return err
	}
	return Invalid(string(dec.StackPointer()), "must be %s, not %s", wanted, kindName(got))
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	}
	return "a boolean"
}

// null consumes a null, which stands for an absent member, and says whether
// there was one.
func null(dec *jsontext.Decoder) bool {
	if dec.PeekKind() != 'n' {
		return false
	}
	_, err := dec.ReadToken()
	return err == nil
}

// text reads a string and notes that it was there. Null is absence.
func text(dec *jsontext.Decoder, into *string, present *bool) error {
	if null(dec) {
		return nil
	}
	if err := expect(dec, '"', "a string"); err != nil {
		return err
	}
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	*into, *present = token.String(), true
	return nil
}

// object keeps an object as the text it came as. Null is absence.
func object(dec *jsontext.Decoder, into *jsontext.Value) error {
	if null(dec) {
		return nil
	}
	if err := expect(dec, '{', "an object"); err != nil {
		return err
	}
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	*into = value.Clone()
	return nil
}

// required reports the first of an object's members that was not there. It is
// called right after the object was read, so that the path is the object's.
func required(dec *jsontext.Decoder, members ...member) error {
	for _, m := range members {
		if !m.present {
			return Invalid(string(dec.StackPointer().AppendToken(m.name)), "is required")
		}
	}
	return nil
}

type member struct {
	name    string
	present bool
}

// optional reads a member that may be missing. Null is absence.
func optional[T any](dec *jsontext.Decoder, into **T, read func(*T, *jsontext.Decoder) error) error {
	if null(dec) {
		return nil
	}
	*into = new(T)
	return read(*into, dec)
}

// array calls read for each element of an array. Null is absence.
func array(dec *jsontext.Decoder, read func() error) error {
	if null(dec) {
		return nil
	}
	if err := expect(dec, '[', "an array"); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		if err := read(); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}
