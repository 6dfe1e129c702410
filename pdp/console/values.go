package console

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/plain"
)

// A value longer than mostShown characters is shown by its first and last ones, and whole on demand.
const (
	mostShown  = 2000
	firstShown = 1000
	lastShown  = 200
)

// A leaf is a value of a JSON document that has no members: text, a number, true, false, null, or an empty object
// or array.
type leaf struct {
	At     jsontext.Pointer
	Name   []part // within the part of the document that is shown
	Value  []part // whole
	First  []part // of a long value, else nil
	Last   []part
	Length int  // of a long value, in characters
	Masked bool // a secret that the service masks
	Hidden bool // it has characters that would not be visible as themselves
}

// A part is text that is shown as it is, or the escape of a character that would not be visible.
type part struct {
	Text   string
	Escape bool
}

// escapes are what plain.Text writes for characters that would not be visible, and a doubled
// backslash.
var escapes = regexp.MustCompile(`\\\\|\\u\{[0-9A-F]+\}|\\x[0-9A-F]{2}`)

// parts returns text with its invisible characters escaped.
func parts(text string) (all []part) { return partsOf(plain.Text(text)) }

// quotedParts returns text as parts does, in quotation marks that nothing in it ends.
func quotedParts(text string) []part { return partsOf(plain.Quoted(text)) }

// partsOf returns the parts of a text in which escapes are written.
func partsOf(shown string) (all []part) {
	if shown != "" && !strings.Contains(shown, `\`) {
		return []part{{Text: shown}}
	}
	add := func(text string, escape bool) {
		if text != "" {
			all = append(all, part{text, escape})
		}
	}
	at := 0
	for _, found := range escapes.FindAllStringIndex(shown, -1) {
		if text := shown[found[0]:found[1]]; text != `\\` {
			add(shown[at:found[0]], false)
			add(text, true)
			at = found[1]
		}
	}
	add(shown[at:], false)
	return all
}

// hasEscape reports whether a character is written as an escape.
func hasEscape(parts []part) bool {
	return slices.ContainsFunc(parts, func(p part) bool { return p.Escape })
}

// otherValue matches numbers, literals, and empty objects and arrays.
var otherValue = regexp.MustCompile(`^(-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null|\{\}|\[\])$`)

// looksOtherwise reports whether a text could pass for another value if it had no quotes: numbers,
// literals, empty values, quoted text, and text with blanks around it.
func looksOtherwise(text string) bool {
	if text == "" {
		return true
	}
	first, last := text[0], text[len(text)-1]
	blank := func(b byte) bool { return strings.IndexByte(" \t\n\f\r", b) >= 0 }
	return blank(first) || blank(last) || len(text) > 1 && first == '"' && last == '"' || otherValue.MatchString(text)
}

// maskShape matches what the service writes in place of a secret.
var maskShape = regexp.MustCompile(`masked:[A-Za-z0-9_+/=-]+`)

// newLeaf returns the leaf of a value.
func newLeaf(at jsontext.Pointer, name string, value jsontext.Value) leaf {
	text := string(value)
	quoted := false
	if value.Kind() == '"' {
		_ = json.Unmarshal(value, &text) // is a string
		quoted = looksOtherwise(text)
	}
	l := leaf{At: at, Name: parts(name), Masked: value.Kind() == '"' && maskShape.MatchString(text)}
	if n := utf8.RuneCountInString(text); n > mostShown {
		runes := []rune(text)
		l.Length, l.First, l.Last = n, parts(string(runes[:firstShown])), parts(string(runes[n-lastShown:]))
	}
	l.Value = parts(text)
	l.Hidden = hasEscape(l.Value) || hasEscape(l.Name)
	if quoted {
		l.Value = slices.Concat([]part{{Text: `"`}}, l.Value, []part{{Text: `"`}})
	}
	return l
}

// leaves returns the leaves of a JSON document in the order of their names, without those in the parts
// that are to be left out. name is that of the document itself.
func leaves(at jsontext.Pointer, name string, value jsontext.Value, without ...jsontext.Pointer) (all []leaf) {
	if slices.Contains(without, at) {
		return nil
	}
	switch value.Kind() {
	case '{':
		var members map[string]jsontext.Value
		if json.Unmarshal(value, &members) != nil || len(members) == 0 {
			break
		}
		for _, member := range slices.Sorted(maps.Keys(members)) {
			all = append(all, leaves(at.AppendToken(member), joined(name, member), members[member], without...)...)
		}
		return all
	case '[':
		var elements []jsontext.Value
		if json.Unmarshal(value, &elements) != nil || len(elements) == 0 {
			break
		}
		for i, element := range elements {
			all = append(all, leaves(at.AppendToken(strconv.Itoa(i)), joined(name, strconv.Itoa(i)), element, without...)...)
		}
		return all
	case 0:
		return nil
	}
	return []leaf{newLeaf(at, name, bytes.TrimSpace(value))}
}

// joined returns the name of a member within another.
func joined(name, member string) string {
	if strings.Contains(member, "›") {
		member = strconv.Quote(member)
	}
	if name == "" {
		return member
	}
	return fmt.Sprintf("%s › %s", name, member)
}

// plainly returns the text of parts.
func plainly(parts []part) string {
	var text strings.Builder
	for _, p := range parts {
		text.WriteString(p.Text)
	}
	return text.String()
}
