package coaz

import (
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Limits of a mapping.
const (
	maxMapping = 32 << 10 // bytes
	maxLeaves  = 256
	maxLevels  = 16
	maxEntries = 50 // of evaluations
)

// inputs are the values that expressions see, and the cost so far.
type inputs struct {
	params any
	claims map[string]any // of the token
	token  any            // claims as expressions see them; nil until one does
	caller string         // id of who calls, or ""
	cost   uint64
}

// readToken sets token.
func (in *inputs) readToken() error {
	if in.token != nil {
		return nil
	}
	claims, err := json.Marshal(in.claims)
	if err == nil {
		in.token, err = read(claims)
	}
	if err != nil {
		return &MappingError{"the claims cannot be read", err}
	}
	return nil
}

// A node is a value of a template. It resolves to JSON, or to nil if it is absent.
type node interface {
	resolve(*inputs) (jsontext.Value, error)
}

type (
	literal jsontext.Value
	list    struct {
		at       string
		elements []node
	}
	object []field
	field  struct {
		name  string
		value node
	}
)

func (l literal) resolve(*inputs) (jsontext.Value, error) { return jsontext.Value(l), nil }

// resolve keeps each element: a list has the length that its author wrote.
func (l list) resolve(in *inputs) (jsontext.Value, error) {
	out := jsontext.Value{'['}
	for i, element := range l.elements {
		value, err := element.resolve(in)
		if err != nil {
			return nil, err
		}
		if value == nil {
			return nil, unmapped("the element at %s/%d is absent", l.at, i)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, value...)
	}
	return append(out, ']'), nil
}

// resolve leaves out members that are absent or null.
func (o object) resolve(in *inputs) (jsontext.Value, error) {
	members := make(members, len(o))
	for _, f := range o {
		value, err := f.value.resolve(in)
		if err != nil {
			return nil, err
		}
		members.set(f.name, value)
	}
	return members.text()
}

// hasOnly reports whether the template has no other members than these.
func (o object) hasOnly(names []string) bool {
	return !slices.ContainsFunc(o, func(f field) bool { return !slices.Contains(names, f.name) })
}

// members are the members of a JSON object.
type members jsonobject.Object

func readMembers(text jsontext.Value) (members, error) {
	o, err := jsonobject.Parse(text)
	return members(o), err
}

// set sets a member, unless its value is absent or null.
func (m members) set(name string, value jsontext.Value) {
	if value != nil && value.Kind() != 'n' {
		m[name] = value
	}
}

func (m members) setString(name, value string) {
	m[name], _ = jsontext.AppendQuote(nil, value)
}

// string returns a member that is a string, or "".
func (m members) string(name string) string {
	if value, ok := m[name]; ok && value.Kind() == '"' {
		text, _ := jsontext.AppendUnquote(nil, value)
		return string(text)
	}
	return ""
}

// text returns the object, with its members sorted.
func (m members) text() (jsontext.Value, error) {
	return jsonobject.Object(m).Encode()
}

// names returns the sorted names, so that of several faults always the same one is
// reported.
func (m members) names() []string { return slices.Sorted(maps.Keys(m)) }

// only reports members other than these.
func (m members) only(at string, names ...string) error {
	for _, name := range m.names() {
		if !slices.Contains(names, name) {
			return unmapped("%s has a member %q: there may be %q", at, name, names)
		}
	}
	return nil
}

// A language says what a string of a template is. For an expression it returns the
// text; required says that the value must not be absent.
type language func(text string, required bool) (expression string, is bool, err error)

// marked is the language of the current draft: $ begins an expression, and $$ a
// literal with one $.
func marked(text string, _ bool) (string, bool, error) {
	switch {
	case text == "" || text[0] != '$':
		return text, false, nil
	case len(text) > 1 && text[1] == '$':
		return text[1:], false, nil
	}
	return text[1:], true, nil
}

// bare is the language in which every string is an expression.
func bare(text string, _ bool) (string, bool, error) { return text, true, nil }

// A reader compiles one mapping.
type reader struct {
	*compiler
	language language
	leaves   int
	bytes    int // of expressions
}

// value compiles a value of a template.
func (r *reader) value(at string, text jsontext.Value, required bool, levels int) (node, error) {
	if levels == 0 {
		return nil, unmapped("%s nests too deep", at)
	}
	switch text.Kind() {
	case '{':
		return r.object(at, text, required, levels)
	case '[':
		return r.list(at, text, levels)
	}
	if r.leaves++; r.leaves > maxLeaves {
		return nil, unmapped("the mapping has more than %d values", maxLeaves)
	}
	if text.Kind() != '"' {
		return literal(text.Clone()), nil
	}
	return r.text(at, text, required)
}

func (r *reader) text(at string, quoted jsontext.Value, required bool) (node, error) {
	raw, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return nil, &MappingError{at + " is not a string", err}
	}
	text, is, err := r.language(string(raw), required)
	if err != nil {
		return nil, unmapped("%s: %v", at, err)
	}
	if !is {
		value, err := jsontext.AppendQuote(nil, text)
		return literal(value), err
	}
	if r.bytes += len(text); r.bytes > maxExpressions {
		return nil, unmapped("the mapping has expressions of more than %d bytes", maxExpressions)
	}
	return r.expression(at, text)
}

func (r *reader) list(at string, text jsontext.Value, levels int) (node, error) {
	var elements []jsontext.Value
	if err := json.Unmarshal(text, &elements); err != nil {
		return nil, &MappingError{at + " cannot be read", err}
	}
	out := list{at: at}
	for i, element := range elements {
		n, err := r.value(at+"/"+strconv.Itoa(i), element, false, levels-1)
		if err != nil {
			return nil, err
		}
		out.elements = append(out.elements, n)
	}
	return out, nil
}

func (r *reader) object(at string, text jsontext.Value, required bool, levels int) (node, error) {
	members, err := readMembers(text)
	if err != nil {
		return nil, &MappingError{at + " cannot be read", err}
	}
	out := object{}
	for _, name := range members.names() {
		n, err := r.value(string(jsontext.Pointer(at).AppendToken(name)), members[name], required && name != "properties", levels-1)
		if err != nil {
			return nil, err
		}
		out = append(out, field{name, n})
	}
	return out, nil
}
