package yamldoc

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// A checker compares a document with the type to decode into. The decoder alone would truncate
// fractions, convert between text and numbers, and decode missing values as zero.
type checker struct {
	doc    *Document
	faults []Fault
}

var (
	typeDuration = reflect.TypeFor[time.Duration]()
	typeText     = reflect.TypeFor[encoding.TextUnmarshaler]()
	typeNode     = reflect.TypeFor[yaml.NodeUnmarshaler]()
)

// fault records a fault of a node and returns nil, so that the node is not decoded.
func (c *checker) fault(node ast.Node, path []string, message, hint string) ast.Node {
	if len(c.faults) <= maxFaults {
		c.faults = append(c.faults, c.doc.at(node, named(path, message), hint))
	}
	return nil
}

// named returns a message with its key in front.
func named(path []string, message string) string {
	if len(path) == 0 {
		return message
	}
	return strings.Join(path, ".") + ": " + message
}

// must records that a value is not what it must be.
func (c *checker) must(node ast.Node, path []string, be, hint string) ast.Node {
	return c.fault(node, path, "must be "+be+", not "+show(node), hint)
}

// check compares a node with a type. It returns the decodable part of the node, or nil. Numbers may
// be negative if signed is set.
func (c *checker) check(node ast.Node, t reflect.Type, path []string, signed bool) ast.Node {
	if t.Kind() == reflect.Pointer && !t.Implements(typeNode) {
		return c.check(node, t.Elem(), path, signed)
	}
	switch {
	case t.Kind() == reflect.Interface, reflect.PointerTo(t).Implements(typeNode):
		return node
	case t == typeDuration:
		return c.duration(node, path)
	case isNull(node):
		return c.must(node, path, kindOf(t), "leave the key out, or give it a value")
	case reflect.PointerTo(t).Implements(typeText):
		return c.unmarshals(node, t, path)
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return c.mapping(node, t, path)
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		return c.elements(node, t, path, signed)
	}
	return c.scalar(node, t, path, signed)
}

// unmarshals checks a node against a type with an UnmarshalText method.
func (c *checker) unmarshals(node ast.Node, t reflect.Type, path []string) ast.Node {
	if _, ok := node.(ast.ScalarNode); !ok {
		return c.must(node, path, "text", "")
	}
	if plain, ok := text(node); ok {
		if err := reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(plain)); err != nil {
			return c.fault(node, path, err.Error(), "")
		}
	}
	return node
}

// kindOf returns the YAML name for values of a type.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a mapping"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "text"
}

// show returns a value as text for a message.
func show(node ast.Node) string {
	switch n := node.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return quoted(n.Value)
	case *ast.LiteralNode:
		return quoted(n.Value.Value)
	case *ast.TagNode:
		return show(n.Value)
	}
	return node.GetToken().Value
}

func isNull(node ast.Node) bool {
	_, null := node.(*ast.NullNode)
	return node == nil || null
}

// text returns the text of a text node.
func text(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.TagNode: // tag !!str
		return n.Value.GetToken().Value, true
	}
	return "", false
}

func (c *checker) duration(node ast.Node, path []string) ast.Node {
	value, ok := text(node)
	if n, isNumber := node.(*ast.IntegerNode); isNumber {
		value, ok = n.GetToken().Value, n.GetToken().Value == "0"
	}
	if _, err := ParseDuration(value); !ok {
		return c.must(node, path, strings.TrimPrefix(errDuration.Error(), "must be "), "")
	} else if err != nil {
		return c.fault(node, path, err.Error(), "")
	}
	return node
}

func (c *checker) scalar(node ast.Node, t reflect.Type, path []string, signed bool) ast.Node {
	be, hint, ok := kindOf(t), "", false
	switch be {
	case "true or false":
		_, ok = node.(*ast.BoolNode)
	case "a whole number":
		ok = isWhole(node, t)
	case "a number":
		ok = isNumber(node)
	default:
		if _, isScalar := node.(ast.ScalarNode); isScalar {
			hint = "put it in quotes"
		}
		_, ok = text(node)
	}
	if ok && !signed && isNegative(node) {
		be, ok = be+" from 0", false
	}
	if !ok {
		return c.must(node, path, be, hint)
	}
	return node
}

// isWhole reports whether a node is an integer in the range of the type.
func isWhole(node ast.Node, t reflect.Type) bool {
	n, ok := node.(*ast.IntegerNode)
	if !ok {
		return false
	}
	value := reflect.New(t).Elem()
	switch v := n.Value.(type) {
	case int64:
		return value.CanInt() && !value.OverflowInt(v) || value.CanUint() && v >= 0 && !value.OverflowUint(uint64(v))
	case uint64:
		return value.CanUint() && !value.OverflowUint(v) || value.CanInt() && v <= math.MaxInt64 && !value.OverflowInt(int64(v))
	}
	return false
}

func isNumber(node ast.Node) bool {
	switch node.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return true
	}
	return false
}

func isNegative(node ast.Node) bool {
	return isNumber(node) && strings.HasPrefix(node.GetToken().Value, "-")
}

func (c *checker) elements(node ast.Node, t reflect.Type, path []string, signed bool) ast.Node {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		return c.must(node, path, "a list", "")
	}
	whole := *list
	whole.Values = make([]ast.Node, len(list.Values))
	for i, element := range list.Values {
		whole.Values[i] = c.check(element, t.Elem(), below(path, strconv.Itoa(i)), signed)
	}
	if slices.Contains(whole.Values, nil) {
		return nil
	}
	return &whole
}

func below(path []string, name string) []string { return append(slices.Clip(path), name) }

// mapping checks the members of a map or struct and removes those with faults.
func (c *checker) mapping(node ast.Node, t reflect.Type, path []string) ast.Node {
	m, ok := node.(*ast.MappingNode)
	if !ok {
		return c.must(node, path, "a mapping", "")
	}
	good := *m
	good.Values = make([]*ast.MappingValueNode, 0, len(m.Values))
	member := c.members(t)
	for _, pair := range m.Values {
		var value ast.Node
		if pair.Key.IsMergeKey() {
			value = c.check(pair.Value, t, path, false)
		} else {
			value = member(pair, path)
		}
		if value != nil {
			kept := *pair
			kept.Value = value
			good.Values = append(good.Values, &kept)
		}
	}
	return &good
}

// members returns a function that checks a member of a map or struct of type t.
func (c *checker) members(t reflect.Type) func(*ast.MappingValueNode, []string) ast.Node {
	if t.Kind() == reflect.Map {
		return func(pair *ast.MappingValueNode, path []string) ast.Node {
			return c.check(pair.Value, t.Elem(), below(path, keyOf(pair)), false)
		}
	}
	fields := fieldsOf(t)
	known := keysOf(fields)
	return func(pair *ast.MappingValueNode, path []string) ast.Node {
		i := slices.Index(known, keyOf(pair))
		if i < 0 {
			return c.fault(pair.Key, nil, fmt.Sprintf("unknown field %q", keyOf(pair)), hintFor(keyOf(pair), fields))
		}
		if list, ok := pair.Value.(*ast.SequenceNode); ok && len(list.Values) == 0 && fields[i].some {
			return c.fault(pair.Key, below(path, keyOf(pair)), "is an empty list", "leave the key out, or name some")
		}
		if fields[i].some && fields[i].is == typeDuration && isNothing(pair.Value) {
			return c.must(pair.Value, below(path, keyOf(pair)), "more than 0", "leave the key out for the default")
		}
		return c.check(pair.Value, fields[i].is, below(path, keyOf(pair)), fields[i].signed)
	}
}

// isNothing reports whether a node is a duration of 0.
func isNothing(node ast.Node) bool {
	value, isText := text(node)
	if !isText && node != nil {
		value = node.GetToken().Value
	}
	d, err := ParseDuration(value)
	return err == nil && d == 0
}

// A field is a struct field with its key.
type field struct {
	key     string
	is      reflect.Type
	signed  bool
	some    bool     // a list must not be empty, a duration must not be 0
	instead []string // keys that people write by mistake for this one
	hint    string   // hint for such a key
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// hintFor returns a hint which field an unknown key may stand for, or "".
func hintFor(key string, fields []field) string {
	for _, f := range fields {
		if slices.Contains(f.instead, key) {
			return "write " + f.key + ", " + f.hint
		}
	}
	return DidYouMean(key, keysOf(fields))
}

// fieldsOf lists the fields of a struct, including those of inline structs.
func fieldsOf(t reflect.Type) (fields []field) {
	for f := range t.Fields() {
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case key == "-" || !f.IsExported():
		case strings.Contains(options, "inline"):
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			fields = append(fields, fieldsOf(inner)...)
		case key == "":
			fields = append(fields, newField(strings.ToLower(f.Name), f))
		default:
			fields = append(fields, newField(key, f))
		}
	}
	return fields
}

func newField(key string, f reflect.StructField) field {
	return field{
		key: key, is: f.Type, signed: f.Tag.Get("number") == "signed", some: f.Tag.Get("list") == "some" || f.Tag.Get("duration") == "some",
		instead: strings.Fields(f.Tag.Get("instead")), hint: f.Tag.Get("hint"),
	}
}
