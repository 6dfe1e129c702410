package authzen

import (
	"bytes"
	"errors"
	"fmt"
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

// A member is a member of an object: its name, and where its value goes.
type member struct {
	name     string
	into     any    // *string, *[]string, *[jsontext.Value] of an object, [json.UnmarshalerFrom], or a function that reads the value
	required bool   // the object must have it; null is absence
	hint     string // what to do where a required member is absent, or ""
	present  bool   // set by readMembers
}

// readMembers reads an object with these members. It ignores other members, as
// AuthZEN 1.0 asks. It does not look for required members, see [checkRequired].
func readMembers(dec *jsontext.Decoder, all []member) error {
	if err := expect(dec, '{', "an object"); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadValue()
		if err != nil {
			return err
		}
		m, err := find(all, name)
		if err != nil {
			return err
		}
		switch {
		case m == nil || dec.PeekKind() == 'n':
			err = dec.SkipValue()
		default:
			m.present = true
			err = readInto(dec, m.into)
		}
		if err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// find returns the member whose name is written so, or nil.
func find(all []member, written jsontext.Value) (*member, error) {
	name := written[1 : len(written)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		var err error
		if name, err = jsontext.AppendUnquote(nil, written); err != nil {
			return nil, err
		}
	}
	for i := range all {
		if all[i].name == string(name) {
			return &all[i], nil
		}
	}
	return nil, nil
}

// readInto reads a value that is not null.
func readInto(dec *jsontext.Decoder, into any) (err error) {
	switch into := into.(type) {
	case *string:
		*into, err = readText(dec)
	case *[]string:
		err = readArray(dec, "an array of strings", func() error {
			text, err := readText(dec)
			if err != nil {
				return err
			}
			*into = append(*into, text)
			return nil
		})
	case *jsontext.Value:
		*into, err = readObject(dec)
	case json.UnmarshalerFrom:
		err = into.UnmarshalJSONFrom(dec)
	case func(*jsontext.Decoder) error:
		err = into(dec)
	default:
		err = fmt.Errorf("a member cannot be read into %T", into)
	}
	return err
}

// checkRequired reports the first required member that an object does not have.
// It is called right after the object was read, so that the path is the object's.
func checkRequired(dec *jsontext.Decoder, all []member) error {
	for _, m := range all {
		if m.required && !m.present {
			return Invalid(string(dec.StackPointer().AppendToken(m.name)), "is required%s", m.hint)
		}
	}
	return nil
}

// unmarshalMembers reads an object with these members, and checks that it has all
// that are required.
func unmarshalMembers(dec *jsontext.Decoder, all ...member) error {
	if err := readMembers(dec, all); err != nil {
		return err
	}
	return checkRequired(dec, all)
}

// optional returns what reads a member into a new value.
func optional[T any, P interface {
	*T
	json.UnmarshalerFrom
}](into **T) func(*jsontext.Decoder) error {
	return func(dec *jsontext.Decoder) error {
		*into = new(T)
		return P(*into).UnmarshalJSONFrom(dec)
	}
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

func readText(dec *jsontext.Decoder) (string, error) {
	if err := expect(dec, '"', "a string"); err != nil {
		return "", err
	}
	token, err := dec.ReadToken()
	if err != nil {
		return "", err
	}
	return token.String(), nil
}

// readObject returns an object as the text it came as.
func readObject(dec *jsontext.Decoder) (jsontext.Value, error) {
	if err := expect(dec, '{', "an object"); err != nil {
		return nil, err
	}
	value, err := dec.ReadValue()
	return value.Clone(), err
}

// readArray calls read for each element of an array, which is what wanted says.
func readArray(dec *jsontext.Decoder, wanted string, read func() error) error {
	if err := expect(dec, '[', wanted); err != nil {
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
