package coaz

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/number"
)

// maxResult is the size of an expression's value as JSON, in bytes.
const maxResult = 64 << 10

// read returns the value of a JSON text for expressions. A number is an int64 if it is
// an integer, else a float64. A number that is exact in neither is an error where an
// expression uses it.
func read(text jsontext.Value) (any, error) {
	return number.Read(text, func(text string) (any, error) { return numberOf(text), nil })
}

// numberOf returns the value of a JSON number.
func numberOf(text string) any {
	if i, ok := number.Integer(text); ok {
		return i
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !number.Exact(text) {
		return types.NewErr("the number is not one that every parser reads alike")
	}
	return f
}

var errTooLong = errors.New("the value is too long")

// write returns the JSON text of an expression's value, with sorted members. An absent
// optional is nil.
func write(v ref.Val) (jsontext.Value, error) {
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return nil, nil
		}
		v = o.GetValue()
	}
	var out bytes.Buffer
	enc := jsontext.NewEncoder(&out)
	if err := encode(enc, v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

func encode(enc *jsontext.Encoder, v ref.Val) error {
	if enc.OutputOffset() > maxResult {
		return errTooLong
	}
	switch v := v.(type) {
	case types.Null:
		return enc.WriteToken(jsontext.Null)
	case types.Bool:
		return enc.WriteToken(jsontext.Bool(bool(v)))
	case types.Int:
		return enc.WriteToken(jsontext.Int(int64(v)))
	case types.Uint:
		return enc.WriteToken(jsontext.Uint(uint64(v)))
	case types.String:
		return enc.WriteToken(jsontext.String(string(v)))
	case types.Double:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return errors.New("the number is not finite")
		}
		return enc.WriteToken(jsontext.Float(float64(v)))
	case traits.Mapper:
		return encodeMap(enc, v)
	case traits.Lister:
		return encodeList(enc, v)
	case *types.Err:
		return v
	}
	return fmt.Errorf("a value of type %s is not JSON", v.Type().TypeName())
}

func encodeList(enc *jsontext.Encoder, list traits.Lister) error {
	if err := enc.WriteToken(jsontext.BeginArray); err != nil {
		return err
	}
	for it := list.Iterator(); it.HasNext() == types.True; {
		if err := encode(enc, it.Next()); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndArray)
}

func encodeMap(enc *jsontext.Encoder, m traits.Mapper) error {
	var names []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		name, ok := it.Next().(types.String)
		if !ok {
			return errors.New("a map has a key that is not a string")
		}
		names = append(names, string(name))
	}
	slices.Sort(names)
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, name := range names {
		if err := enc.WriteToken(jsontext.String(name)); err != nil {
			return err
		}
		if err := encode(enc, m.Get(types.String(name))); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}
