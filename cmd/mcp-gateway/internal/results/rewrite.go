package results

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/result"
)

// An edit changes the values at a path.
type edit struct {
	rule *result.Rule
	path result.Path // nil is the value itself
	hit  bool        // there is a value at the path
}

// A place is an edit and the rest of its path from a value.
type place struct {
	*edit
	rest result.Path
}

// rewrite returns a value with the edits made, or nil if one removes it.
func rewrite(v jsontext.Value, places []place) (jsontext.Value, error) {
	var below []place
	for _, p := range places {
		if len(p.rest) > 0 {
			below = append(below, p)
			continue
		}
		p.hit = true
		var err error
		if v, err = change(v, p.rule); err != nil || v == nil {
			return nil, err
		}
	}
	if len(below) == 0 {
		return v, nil
	}
	switch v.Kind() {
	case '{':
		return rewriteObject(v, below)
	case '[':
		return rewriteArray(v, below)
	}
	return v, nil
}

// change carries out a rule on a whole value. It returns nil to remove the value.
func change(v jsontext.Value, r *result.Rule) (jsontext.Value, error) {
	if r.Action == result.Redact {
		return r.With, nil
	}
	return maskValue(v, r)
}

func rewriteObject(v jsontext.Value, places []place) (jsontext.Value, error) {
	out := jsontext.Value{'{'}
	for name, value := range wire.Members(v) {
		value, err := rewrite(value, step(places, func(token string) bool { return strings.EqualFold(token, name) }))
		if err != nil {
			return nil, err
		}
		if value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		if out, err = jsontext.AppendQuote(out, name); err != nil {
			return nil, err
		}
		out = append(append(out, ':'), value...)
	}
	return append(out, '}'), nil
}

func rewriteArray(v jsontext.Value, places []place) (jsontext.Value, error) {
	out := jsontext.Value{'['}
	for i, value := range wire.Elements(v) {
		value, err := rewrite(value, step(places, func(token string) bool { return token == strconv.Itoa(i) }))
		if err != nil {
			return nil, err
		}
		if value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, value...)
	}
	return append(out, ']'), nil
}

// step returns the places within a member or element.
func step(places []place, covers func(token string) bool) (within []place) {
	for _, p := range places {
		if p.rest[0] == result.Any || covers(p.rest[0]) {
			within = append(within, place{p.edit, p.rest[1:]})
		}
	}
	return within
}

// maskValue masks every string and number of a value. A name that would have to be
// masked is an error.
func maskValue(v jsontext.Value, r *result.Rule) (jsontext.Value, error) {
	var out bytes.Buffer
	changed := false
	dec, enc := jsontext.NewDecoder(bytes.NewReader(v)), jsontext.NewEncoder(&out)
	for {
		token, err := dec.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && !changed:
			return v, nil
		case errors.Is(err, io.EOF):
			return bytes.TrimSpace(out.Bytes()), nil
		case err != nil:
			return nil, err
		}
		masked, is, err := maskToken(token, isName(dec), r)
		if err != nil {
			return nil, err
		}
		changed = changed || is
		if err := enc.WriteToken(masked); err != nil {
			return nil, err
		}
	}
}

// isName reports whether the last token is the name of a member.
func isName(dec *jsontext.Decoder) bool {
	kind, n := dec.StackIndex(dec.StackDepth())
	return kind == '{' && n%2 == 1
}

var errName = errors.New("the name of a member matches the pattern")

// maskToken returns a token as it is delivered, and whether it was changed.
func maskToken(token jsontext.Token, isName bool, r *result.Rule) (masked jsontext.Token, changed bool, err error) {
	if kind := token.Kind(); kind != '"' && kind != '0' {
		return token, false, nil
	}
	text := token.String()
	plain, err := maskText(text, r)
	switch {
	case err != nil || plain == text:
		return token, false, err
	case isName:
		return jsontext.Token{}, false, errName
	}
	return jsontext.String(plain), true, nil
}

var (
	errEscapes = errors.New("a text has the pattern in escapes")
	escapes    = regexp.MustCompile(`(\\u[0-9a-fA-F]{4})+`)
)

// maskText replaces what matches the pattern. A text that would match elsewhere if
// its JSON escapes were read is an error.
func maskText(text string, r *result.Rule) (string, error) {
	var with string
	if err := json.Unmarshal(r.With, &with); err != nil {
		return "", err
	}
	masked := r.Pattern.ReplaceAllLiteralString(text, with)
	plain := escapes.ReplaceAllStringFunc(text, unescape)
	if plain != text && r.Pattern.ReplaceAllLiteralString(plain, with) != escapes.ReplaceAllStringFunc(masked, unescape) {
		return "", errEscapes
	}
	return masked, nil
}

// unescape returns the text of JSON escapes.
func unescape(escaped string) string {
	var units []uint16
	for _, digits := range strings.Split(escaped, `\u`)[1:] {
		unit, _ := strconv.ParseUint(digits, 16, 16) // they are four digits
		units = append(units, uint16(unit))
	}
	return string(utf16.Decode(units))
}
