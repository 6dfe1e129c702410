package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A Document is a YAML file or part of one. Its methods locate faults in the file.
type Document struct {
	file string
	path []string // path of the part from the root of the file
	root ast.Node // nil for an empty document
}

// Parse parses a file with a single document. The error is a [Fault].
func Parse(file string, src []byte) (d *Document, err error) {
	d = &Document{file: file}
	defer func() {
		if err != nil {
			d = nil
		}
	}()
	defer d.recovered(&err)
	if marked(src) {
		return nil, Fault{File: file, Line: 1, Column: 1, Message: "the file begins with a byte order mark", Hint: "save it as UTF-8 without a byte order mark (BOM)"}
	}
	if err := bounded(src); err != nil {
		return nil, d.whole(err.Error())
	}
	parsed, err := parser.ParseBytes(src, 0)
	if err != nil {
		return nil, d.parseFault(err)
	}
	for _, doc := range parsed.Docs {
		switch {
		case doc.Body == nil:
		case d.root != nil:
			return nil, d.at(doc.Body, "there is more than one document", "leave out what is behind ---")
		default:
			d.root = doc.Body
		}
	}
	if d.root == nil {
		return d, nil
	}
	x := expansion{doc: d, anchors: map[string]*anchored{}}
	d.root, _ = x.expand(d.root)
	return d, nil
}

// recovered turns a panic into an error: the [Fault] of an expansion, or a panic of the YAML
// parser.
func (d *Document) recovered(err *error) {
	switch p := recover().(type) {
	case nil:
	case Fault:
		*err = p
	default:
		*err = d.whole(fmt.Sprintf("is not understood: %v", p))
	}
}

func (d *Document) whole(message string) Fault { return Fault{File: d.file, Message: message} }

// at returns a fault at a node. The place of a mapping is its first key.
func (d *Document) at(node ast.Node, message, hint string) Fault {
	fault := Fault{File: d.file, Message: message, Hint: hint}
	if mapping, ok := node.(*ast.MappingNode); ok && len(mapping.Values) > 0 {
		node = mapping.Values[0].Key
	}
	if node == nil {
		return fault
	}
	if at := node.GetToken(); at != nil && at.Position != nil {
		fault.Line, fault.Column = at.Position.Line, at.Position.Column
	}
	return fault
}

// parseFault turns an error of the YAML parser into a fault.
func (d *Document) parseFault(err error) Fault {
	var at yaml.Error
	if !errors.As(err, &at) {
		return d.whole(strings.TrimSpace(err.Error()))
	}
	fault := d.whole(at.GetMessage())
	if token := at.GetToken(); token != nil && token.Position != nil {
		fault.Line, fault.Column = token.Position.Line, token.Position.Column
	}
	return fault
}

// File returns the file name that Parse received.
func (d *Document) File() string { return d.file }

// Empty reports whether the document is empty.
func (d *Document) Empty() bool { return isNull(d.root) }

// IsText reports whether the document is a single text.
func (d *Document) IsText() bool {
	_, ok := text(d.root)
	return ok
}

// maxFaults is the maximum number of faults reported for a document.
const maxFaults = 100

// Decode decodes the document into a pointer. A fault in one value does not affect the others.
//
// A struct accepts the keys of its yaml tags and no others. Numbers must not be negative unless the
// field has the tag number:"signed". A list may be empty unless the field has the tag list:"some".
// A [time.Duration] has the form of [ParseDuration] and may be 0 unless the field has the tag
// duration:"some". The tag instead lists wrong keys that people write for the field, and the tag
// hint describes the value. An empty value, as in "key:", is a fault.
func (d *Document) Decode(into any) []Fault {
	if d.root == nil {
		return nil
	}
	c := checker{doc: d}
	good := c.check(d.root, reflect.TypeOf(into).Elem(), slices.Clone(d.path), false)
	faults := c.faults
	if good != nil {
		faults = append(faults, d.decode(good, into)...)
	}
	if len(faults) > maxFaults {
		faults = append(faults[:maxFaults], d.whole("there are more faults than these"))
	}
	return faults
}

// decode decodes a node that passed all checks. It decodes each key of a struct separately, because
// the decoder stops at the first fault. A duplicate key through a merge shows only when all keys
// are decoded together.
func (d *Document) decode(node ast.Node, into any) (faults []Fault) {
	whole, ok := node.(*ast.MappingNode)
	if !ok || reflect.TypeOf(into).Elem().Kind() != reflect.Struct || slices.ContainsFunc(whole.Values, isMerge) {
		return d.decodeNode(node, into)
	}
	for _, pair := range whole.Values {
		one := *whole
		one.Values = []*ast.MappingValueNode{pair}
		faults = append(faults, d.decodeNode(&one, into)...)
	}
	return faults
}

func isMerge(pair *ast.MappingValueNode) bool { return pair.Key.IsMergeKey() }

func (d *Document) decodeNode(node ast.Node, into any) []Fault {
	err := func() (err error) {
		defer d.recovered(&err)
		return yaml.NewDecoder(bytes.NewReader(nil), yaml.Strict(), durations).DecodeFromNode(node, into)
	}()
	if err == nil {
		return nil
	}
	var fault Fault
	if !errors.As(err, &fault) {
		fault = d.parseFault(err)
	}
	if fault.Line == 0 { // error of a type's UnmarshalText
		at := d.at(node, "", "")
		fault.Line, fault.Column, fault.Message = at.Line, at.Column, named(d.path, fault.Message)
	}
	return []Fault{fault}
}

// durations decodes durations with [ParseDuration].
var durations = yaml.CustomUnmarshaler(func(into *time.Duration, text []byte) (err error) {
	var plain string
	if err := yaml.Unmarshal(text, &plain); err != nil {
		return err
	}
	*into, err = ParseDuration(plain)
	return err
})

// Fault returns a fault at a path of keys and list indexes, or at the nearest existing parent.
func (d *Document) Fault(message, hint string, path ...string) Fault {
	fault := Fault{File: d.file, Message: message, Hint: hint}
	fault.Line, fault.Column = d.Place(path...)
	return fault
}

// Place returns the line and column of a path, or of its nearest existing parent. It returns zeros
// for the whole file.
func (d *Document) Place(path ...string) (line, column int) {
	node := d.root
	if len(d.path) > 0 {
		at := d.at(node, "", "")
		line, column = at.Line, at.Column
	}
	for _, name := range path {
		var key ast.Node
		if key, node = member(node, name); key == nil {
			break
		}
		at := d.at(key, "", "")
		line, column = at.Line, at.Column
	}
	return line, column
}

// Has reports whether the path exists.
func (d *Document) Has(path ...string) bool { return d.Part(path...) != nil }

// Part returns the part of the document at the path, or nil.
func (d *Document) Part(path ...string) *Document {
	node := d.root
	for _, name := range path {
		if _, node = member(node, name); node == nil {
			return nil
		}
	}
	if node == nil {
		return nil
	}
	return &Document{file: d.file, path: append(slices.Clone(d.path), path...), root: node}
}

// Line returns the first line of a part.
func (d *Document) Line() int { return d.at(d.root, "", "").Line }

// Elements returns the length of the sequence at the path.
func (d *Document) Elements(path ...string) int {
	part := d.Part(path...)
	if part == nil {
		return 0
	}
	if list, ok := part.root.(*ast.SequenceNode); ok {
		return len(list.Values)
	}
	return 0
}

// Keys returns the keys of the mapping at the path, as written.
func (d *Document) Keys(path ...string) (keys []string) {
	part := d.Part(path...)
	if part == nil {
		return nil
	}
	if mapping, ok := part.root.(*ast.MappingNode); ok {
		for _, pair := range mapping.Values {
			keys = append(keys, keyOf(pair))
		}
	}
	return keys
}

// keyOf returns the text of a key.
func keyOf(pair *ast.MappingValueNode) string { return pair.Key.GetToken().Value }

// member returns a member of a mapping or an element of a sequence, and its first node; or nil.
func member(node ast.Node, name string) (key, value ast.Node) {
	switch node := node.(type) {
	case *ast.MappingNode:
		for _, pair := range node.Values {
			if keyOf(pair) == name {
				return pair.Key, pair.Value
			}
		}
	case *ast.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(node.Values) {
			return node.Values[i], node.Values[i]
		}
	}
	return nil, nil
}
