package evaluation

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// What config.yaml may be, before the YAML reader sees it: it takes quadratic
// time on nested text.
const (
	maxYAML        = 1 << 20 // bytes
	maxYAMLNesting = 64      // brackets open, or dashes in a row, at once
)

// A document is a YAML file of a policy store. Its methods say where in it a
// fault is.
type document struct {
	file string
	dec  *yaml.Decoder // which knows the anchors
	root ast.Node      // nil for a document with nothing in it
}

// parseYAML reads the one document of a file.
func parseYAML(file string, src []byte) (d *document, err error) {
	defer recovered(&err)
	if len(src) > maxYAML || nestsYAML(src) {
		return nil, fmt.Errorf("the text is longer than %d bytes or nests deeper than %d levels", maxYAML, maxYAMLNesting)
	}
	if bytes.ContainsRune(bytes.ReplaceAll(src, []byte("\r\n"), nil), '\r') { // which the reader counts as a line and an editor does not
		return nil, errors.New("a carriage return stands alone: end lines with a line feed")
	}
	d = &document{file: file, dec: yaml.NewDecoder(bytes.NewReader(src), yaml.Strict())}
	if err := d.dec.Decode(&d.root); errors.Is(err, io.EOF) {
		return d, nil
	} else if err != nil {
		return nil, err
	}
	if err := d.dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document")
	}
	return d, nil
}

// recovered makes whatever the YAML reader throws an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("is not understood: %v", p)
	}
}

// decode reads the document strictly, each of its keys on its own, so that what
// is wrong with one hides nothing of another.
func (d *document) decode(into any) (faults Faults) {
	whole, ok := d.root.(*ast.MappingNode)
	if !ok {
		return d.decodeNode(d.root, into)
	}
	for _, value := range whole.Values {
		one := *whole
		one.Values = []*ast.MappingValueNode{value}
		faults = append(faults, d.decodeNode(&one, into)...)
	}
	return faults
}

func (d *document) decodeNode(node ast.Node, into any) Faults {
	if node == nil {
		return nil
	}
	err := func() (err error) {
		defer recovered(&err)
		return d.dec.DecodeFromNode(node, into)
	}()
	if err != nil {
		return Faults{yamlFault(d.file, err)}
	}
	return nil
}

// fault returns a fault at the place to which a path leads, of the names of keys
// and the indexes of elements, or as near to it as the path leads.
func (d *document) fault(message, hint string, path ...string) Fault {
	fault := Fault{File: d.file, Message: message, Hint: hint}
	node := d.root
	for _, name := range path {
		var key ast.Node
		if key, node = member(node, name); key == nil {
			break
		}
		if at := key.GetToken(); at != nil && at.Position != nil {
			fault.Line, fault.Column = at.Position.Line, at.Position.Column
		}
	}
	return fault
}

// has reports whether the path leads somewhere.
func (d *document) has(path ...string) bool {
	node := d.root
	for _, name := range path {
		if _, node = member(node, name); node == nil {
			return false
		}
	}
	return node != nil
}

// elements returns how many elements the sequence has to which the path leads.
func (d *document) elements(path ...string) int {
	n := 0
	for d.has(append(slices.Clone(path), strconv.Itoa(n))...) {
		n++
	}
	return n
}

// member returns a member of a mapping, or an element of a sequence, and where
// it begins; nil where there is none.
func member(node ast.Node, name string) (key, value ast.Node) {
	switch node := unwrapped(node).(type) {
	case *ast.MappingNode:
		for _, pair := range node.Values {
			if pair.Key.GetToken().Value == name {
				return pair.Key, pair.Value
			}
		}
	case *ast.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i < len(node.Values) {
			return node.Values[i], node.Values[i]
		}
	}
	return nil, nil
}

// unwrapped returns what an anchor or a tag is put on.
func unwrapped(node ast.Node) ast.Node {
	switch n := node.(type) {
	case *ast.AnchorNode:
		return unwrapped(n.Value)
	case *ast.TagNode:
		return unwrapped(n.Value)
	}
	return node
}

// yamlFault turns what the YAML reader says into a Fault.
func yamlFault(file string, err error) Fault {
	fault := Fault{File: file, Message: strings.TrimSpace(err.Error())}
	var at yaml.Error
	if errors.As(err, &at) {
		fault.Message = at.GetMessage()
		if token := at.GetToken(); token != nil && token.Position != nil {
			fault.Line, fault.Column = token.Position.Line, token.Position.Column
		}
	}
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) && unknown.Token != nil {
		fault.Hint = didYouMean(unknown.Token.Value, settingsKeys())
	}
	var mistyped *yaml.TypeError
	if errors.As(err, &mistyped) {
		fault.Message = "must be " + yamlName(mistyped.DstType) + ", not " + yamlName(mistyped.SrcType)
	}
	return fault
}

// yamlName is what a value of a Go type is called in YAML.
func yamlName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a mapping"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		return "a number"
	}
	return "text"
}

// nestsYAML reports whether text nests too deep, whether or not it is YAML.
func nestsYAML(src []byte) bool {
	open, dashes := 0, 0
	for _, c := range src {
		switch c {
		case '[', '{':
			open++
		case ']', '}':
			open = max(0, open-1)
		case '-', '?':
			dashes++
			if dashes > maxYAMLNesting {
				return true
			}
			continue
		case ' ':
			continue
		}
		dashes = 0
		if open > maxYAMLNesting {
			return true
		}
	}
	return false
}
