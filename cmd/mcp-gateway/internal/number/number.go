// Package number reads JSON without loss of precision, and finds the numbers that
// parsers read differently.
//
// The law it keeps: the server uses the number that was decided on. JavaScript reads
// every number as a double, Python and others read integers exactly, so that
// 9007199254740993 and 1e400 are different numbers in different programs. A number is
// exact if it equals the double nearest to it.
package number

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Read returns the value of a JSON text: maps, slices, strings, booleans, nil, and the
// result of the function of for each number.
func Read(text jsontext.Value, of func(number string) (any, error)) (any, error) {
	r := &reader{of: of}
	err := json.Unmarshal(text, r)
	return r.value, err
}

// A reader reads a value for [Read].
type reader struct {
	of    func(number string) (any, error)
	value any
}

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (r *reader) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	r.value, err = r.read(dec)
	return err
}

func (r *reader) read(dec *jsontext.Decoder) (any, error) {
	if dec.PeekKind() == '0' {
		raw, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		value, err := r.of(string(raw))
		if err != nil {
			err = &json.SemanticError{JSONPointer: dec.StackPointer(), Err: err}
		}
		return value, err
	}
	token, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '{':
		return r.object(dec)
	case '[':
		return r.array(dec)
	case '"':
		return token.String(), nil
	case 't', 'f':
		return token.Bool(), nil
	}
	return nil, nil
}

// object reads what follows the beginning of an object.
func (r *reader) object(dec *jsontext.Decoder) (map[string]any, error) {
	members := make(map[string]any)
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		name := token.String()
		if members[name], err = r.read(dec); err != nil {
			return nil, err
		}
	}
	_, err := dec.ReadToken()
	return members, err
}

// array reads what follows the beginning of an array.
func (r *reader) array(dec *jsontext.Decoder) ([]any, error) {
	elements := []any{}
	for dec.PeekKind() != ']' {
		element, err := r.read(dec)
		if err != nil {
			return nil, err
		}
		elements = append(elements, element)
	}
	_, err := dec.ReadToken()
	return elements, err
}

// exactDigits is the length up to which every integer is exact: 2^53 has 16 digits.
const exactDigits = 15

// longest is the length of the longest accepted number.
const longest = 400

// Exact reports whether a JSON number is the same for parsers that read doubles and
// for parsers that read all digits.
func Exact(text string) bool {
	if _, err := strconv.Atoi(text); err == nil && len(text) <= exactDigits {
		return true
	}
	double, err := strconv.ParseFloat(text, 64)
	if err != nil || len(text) > longest {
		return false
	}
	if double == 0 { // one that is only rounded to zero has an exponent of any size
		digits, _, _ := strings.Cut(strings.ToLower(text), "e")
		return strings.Trim(digits, "-0.") == ""
	}
	whole, ok := new(big.Rat).SetString(text)
	written, _ := new(big.Rat).SetString(strconv.FormatFloat(double, 'g', -1, 64))
	return ok && whole.Cmp(written) == 0
}

// Integer returns the number if it is an integer of 64 bits in any notation: 5, 5.0,
// 50e-1.
func Integer(text string) (int64, bool) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, true
	}
	if !Exact(text) {
		return 0, false
	}
	whole, ok := new(big.Rat).SetString(text)
	if !ok { // the exponent of a zero may be of any size
		return 0, true
	}
	if !whole.IsInt() || !whole.Num().IsInt64() {
		return 0, false
	}
	return whole.Num().Int64(), true
}
