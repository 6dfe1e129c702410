package coaz

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// isBare reports whether a mapping has the format of April 2026: a batch without an
// envelope, whose strings are all expressions. Its evaluations are an array; those of
// the envelope are an object.
func isBare(mapping jsontext.Value) bool {
	m, err := readMembers(mapping)
	return err == nil && m[partEvaluations].Kind() == '['
}

// isArrays reports whether a mapping has the format of March and April 2026.
func isArrays(mapping jsontext.Value) bool {
	m, err := readMembers(mapping)
	return err == nil && m[partResource].Kind() == '['
}

// bare compiles a mapping of the format of April 2026.
func (c *compiler) bare(text jsontext.Value) (*mapping, error) {
	if _, err := readMapping(text); err != nil {
		return nil, err
	}
	r := &reader{compiler: c, language: bare}
	return r.mapping("", text, true)
}

// olderParts reads the members of an x-coaz-mapping: subject, resource and
// context are required.
func olderParts(text jsontext.Value) (members, error) {
	if text == nil {
		return nil, unmapped("the tool says coaz: true and has no x-coaz-mapping")
	}
	m, err := readMapping(text)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{partSubject, partResource, partContext} {
		if m[name] == nil {
			return nil, unmapped("x-coaz-mapping has no %s", name)
		}
	}
	return m, m.only("x-coaz-mapping", partSubject, partAction, partResource, partContext)
}

// objects returns the compiler of the oldest dialect: objects whose strings are
// literals or JSONPaths below $.properties and $.token.
func (d declaration) objects(c *compiler) func(jsontext.Value) (*mapping, error) {
	return func(text jsontext.Value) (*mapping, error) {
		parts, err := olderParts(text)
		if err != nil {
			return nil, err
		}
		for _, name := range parts.names() {
			if parts[name].Kind() != '{' {
				return nil, unmapped("%s of x-coaz-mapping is not an object", name)
			}
		}
		quote := func(name string) jsontext.Value { return fmt.Appendf(nil, `{"name":%s}`, quoted(name)) }
		return d.compileLegacy(c, paths, parts, nil, quote)
	}
}

// arrays returns the compiler of the dialect of arrays, whose strings are all
// expressions. If some have several elements, the n-th of each make a question.
func (d declaration) arrays(c *compiler) func(jsontext.Value) (*mapping, error) {
	return func(text jsontext.Value) (*mapping, error) {
		parts, err := olderParts(text)
		if err != nil {
			return nil, err
		}
		single, entries, err := zip(parts)
		if err != nil {
			return nil, err
		}
		quote := func(name string) jsontext.Value {
			return fmt.Appendf(nil, `{"name":%s}`, quoted(strconv.QuoteToASCII(name)))
		}
		return d.compileLegacy(c, bare, single, entries, quote)
	}
}

func quoted(text string) jsontext.Value {
	value, _ := jsontext.AppendQuote(nil, text)
	return value
}

// zip separates the parts with one element from the entries that the other parts make.
func zip(parts members) (single members, entries []members, err error) {
	single = members{}
	for _, name := range parts.names() {
		var elements []jsontext.Value
		if err := json.Unmarshal(parts[name], &elements); err != nil || len(elements) == 0 {
			return nil, nil, &MappingError{name + " of x-coaz-mapping is not an array with elements", err}
		}
		switch {
		case len(elements) == 1:
			single[name] = elements[0]
			continue
		case len(elements) > maxEntries:
			return nil, nil, unmapped("%s of x-coaz-mapping has %d elements: there may be %d", name, len(elements), maxEntries)
		case entries == nil:
			entries = make([]members, len(elements))
		case len(entries) != len(elements):
			return nil, nil, unmapped("the arrays of x-coaz-mapping have %d and %d elements", len(entries), len(elements))
		}
		for i, element := range elements {
			if entries[i] == nil {
				entries[i] = members{}
			}
			entries[i][name] = element
		}
	}
	return single, entries, nil
}

// compileLegacy writes the parts as a body of the current draft and compiles it. A
// missing action is the tool's name.
func (d declaration) compileLegacy(c *compiler, l language, parts members, entries []members, action func(string) jsontext.Value) (*mapping, error) {
	if _, ok := parts[partAction]; !ok && (entries == nil || entries[0][partAction] == nil) {
		parts[partAction] = action(d.tool)
	}
	if entries != nil {
		list, err := json.Marshal(entries)
		if err != nil {
			return nil, err
		}
		parts[partEvaluations] = list
	}
	body, err := parts.text()
	if err != nil {
		return nil, err
	}
	r := &reader{compiler: c, language: l}
	m, err := r.mapping("", body, entries != nil)
	if err == nil && !m.readsToken() {
		return nil, unmapped("nothing of x-coaz-mapping's subject and context is of the token")
	}
	return m, err
}

// readsToken reports whether the subject or a context has a value of the token.
func (m *mapping) readsToken() bool {
	all := append([]map[string]node{m.parts}, m.entries...)
	for _, parts := range all {
		if ofToken(parts[partSubject]) || ofToken(parts[partContext]) {
			return true
		}
	}
	return false
}

func ofToken(n node) bool {
	switch n := n.(type) {
	case *expression:
		return n.token
	case caller:
		return true
	case object:
		for _, f := range n {
			if ofToken(f.value) {
				return true
			}
		}
	case list:
		for _, element := range n.elements {
			if ofToken(element) {
				return true
			}
		}
	}
	return false
}

// paths is the language of the oldest dialect: $.properties are the arguments.
func paths(text string, required bool) (string, bool, error) {
	if !strings.HasPrefix(text, "$") {
		return text, false, nil
	}
	selectors, err := path(text)
	if err != nil {
		return "", false, err
	}
	root := map[string]string{"properties": "params.arguments", "token": "token"}[selectors[0].name]
	if root == "" || len(selectors) < 2 || !selectors[1].isName {
		return "", false, fmt.Errorf("%q is not a member of $.properties or $.token", text)
	}
	expression := root
	for _, s := range selectors[1:] {
		expression = s.expression(expression, required)
	}
	return expression, true, nil
}

// A selector selects a member or an element (RFC 9535, "Name Selector" and "Index
// Selector").
type selector struct {
	isName bool
	name   string
	index  int64 // from the end if negative
}

// expression returns the expression of CEL for what s selects of a value.
func (s selector) expression(of string, required bool) string {
	mark := "?"
	if required {
		mark = ""
	}
	switch {
	case s.isName:
		return of + "[" + mark + strconv.QuoteToASCII(s.name) + "]"
	case s.index >= 0:
		return of + "[" + mark + strconv.FormatInt(s.index, 10) + "]"
	case required:
		return fmt.Sprintf("%s[size(%s) - %d]", of, of, -s.index)
	}
	return fmt.Sprintf("%s.optFlatMap(v, dyn(v)[?size(dyn(v)) - %d])", of, -s.index)
}

const (
	blanks    = `[ \t\n\r]*`
	nameStart = `A-Za-z_\x{80}-\x{10FFFF}`
)

var segment = regexp.MustCompile(`^` + blanks + `(?:\.([` + nameStart + `][0-9` + nameStart + `]*)|\[` + blanks +
	`(?:'((?:[^'\\]|\\.)*)'|("(?:[^"\\]|\\.)*")|(0|-?[1-9][0-9]*))` + blanks + `\])`)

// maxIndex is the largest index of a path (I-JSON).
const maxIndex = 1<<53 - 1

// path returns the selectors of a singular query (RFC 9535), which selects one value
// at most.
func path(text string) (selectors []selector, err error) {
	rest := text[1:]
	for rest != "" {
		m := segment.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("%q is not a JSONPath of names and indexes", text)
		}
		s := selector{isName: m[4] == "", name: m[1]}
		switch {
		case !s.isName:
			s.index, err = strconv.ParseInt(m[4], 10, 64)
			if err != nil || s.index > maxIndex || s.index < -maxIndex {
				return nil, fmt.Errorf("%q: an index is too large", text)
			}
		case s.name == "":
			if s.name, err = unescape(m[2], m[3]); err != nil {
				return nil, fmt.Errorf("%q: %w", text, err)
			}
		}
		selectors, rest = append(selectors, s), rest[len(m[0]):]
	}
	if len(selectors) == 0 {
		return nil, errors.New("$ alone does not select a member")
	}
	return selectors, nil
}

// unescape reads a quoted name. Double quotes are those of JSON.
func unescape(single, double string) (string, error) {
	if double == "" {
		double = `"` + strings.ReplaceAll(strings.ReplaceAll(single, `\'`, `'`), `"`, `\"`) + `"`
		if strings.Contains(single, `\"`) {
			return "", errors.New(`\" is not an escape between single quotes`)
		}
	}
	name, err := jsontext.AppendUnquote(nil, double)
	return string(name), err
}
