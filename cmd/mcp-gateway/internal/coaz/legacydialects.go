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
	names, err := path(text)
	if err != nil {
		return "", false, err
	}
	root, names := names[0], names[1:]
	expression := map[string]string{"properties": "params.arguments", "token": "token"}[root]
	if expression == "" || len(names) == 0 {
		return "", false, fmt.Errorf("%q is not a member of $.properties or $.token", text)
	}
	for _, name := range names {
		mark := "?"
		if required {
			mark = ""
		}
		expression += "[" + mark + strconv.QuoteToASCII(name) + "]"
	}
	return expression, true, nil
}

var selector = regexp.MustCompile(`^(?:\.([\pL_][\pL\pN_]*)|\['((?:[^'\\]|\\.)*)'\]|\[("(?:[^"\\]|\\.)*")\])`)

// path returns the names of a JSONPath that selects members only (RFC 9535).
func path(text string) (names []string, err error) {
	rest := text[1:]
	for rest != "" {
		m := selector.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("%q is a JSONPath of more than members", text)
		}
		name := m[1]
		if name == "" {
			if name, err = unescape(m[2], m[3]); err != nil {
				return nil, fmt.Errorf("%q: %w", text, err)
			}
		}
		names, rest = append(names, name), rest[len(m[0]):]
	}
	if len(names) == 0 {
		return nil, errors.New("$ alone does not select a member")
	}
	return names, nil
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
