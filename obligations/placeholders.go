package obligations

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// fields are what {{…}} in the strings of an obligation stands for. Every
// request has them, so that there is always something to fill in.
var fields = map[string]func(*authzen.EvaluationRequest) string{
	"subject.type":  func(r *authzen.EvaluationRequest) string { return r.Subject.Type },
	"subject.id":    func(r *authzen.EvaluationRequest) string { return r.Subject.ID },
	"action.name":   func(r *authzen.EvaluationRequest) string { return r.Action.Name },
	"resource.type": func(r *authzen.EvaluationRequest) string { return r.Resource.Type },
	"resource.id":   func(r *authzen.EvaluationRequest) string { return r.Resource.ID },
}

// fillPlaceholders returns properties with what {{…}} stands for in a request.
func fillPlaceholders(properties jsontext.Value, r *authzen.EvaluationRequest) jsontext.Value {
	if r == nil || !bytes.Contains(properties, opening) {
		return properties
	}
	if filled, ok := fillText(properties, r); ok {
		return filled
	}
	return fillTokens(properties, r)
}

var opening, closing = []byte("{{"), []byte("}}")

// fillTokens fills in whatever is written, token by token.
func fillTokens(properties jsontext.Value, r *authzen.EvaluationRequest) jsontext.Value {
	filled, err := mapStrings(properties, func(text string) (string, error) {
		return expand(text, func(name string) (string, error) { return fields[name](r), nil })
	})
	if err != nil { // checkFields has walked it
		panic(err)
	}
	return filled
}

// fillText fills in what is written without escapes, as it is by whoever does
// not mean to hide it, in one pass over the text. It is not ok for anything
// else. Properties have no white space between their tokens.
func fillText(properties jsontext.Value, r *authzen.EvaluationRequest) (out jsontext.Value, ok bool) {
	out = make(jsontext.Value, 0, len(properties)+64)
	for rest := properties; ; {
		begin := bytes.IndexByte(rest, '"')
		if begin < 0 {
			return append(out, rest...), true
		}
		end := begin + 1 + stringLength(rest[begin+1:])
		if end >= len(rest) {
			return nil, false
		}
		out = append(out, rest[:begin+1]...)
		text := rest[begin+1 : end]
		if name := end+1 < len(rest) && rest[end+1] == ':'; name {
			out = append(out, text...)
		} else if out, ok = appendFilled(out, text, r); !ok {
			return nil, false
		}
		out, rest = append(out, '"'), rest[end+1:]
	}
}

// stringLength is how long the JSON string is that a text begins with.
func stringLength(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(text)
}

// appendFilled appends what is between the quotes of a JSON string, filled in.
func appendFilled(out jsontext.Value, text []byte, r *authzen.EvaluationRequest) (jsontext.Value, bool) {
	for {
		before, after, found := bytes.Cut(text, opening)
		out = append(out, before...)
		if !found {
			return out, true
		}
		name, behind, _ := bytes.Cut(after, closing)
		field := fields[string(bytes.TrimSpace(name))]
		if field == nil {
			return out, false
		}
		at := len(out)
		quoted, err := jsontext.AppendQuote(out, strings.ToValidUTF8(field(r), "\uFFFD"))
		if err != nil {
			return out, false
		}
		out = append(quoted[:at], quoted[at+1:len(quoted)-1]...)
		text = behind
	}
}

// checkPlaceholders reports a {{…}} that stands for nothing.
func checkPlaceholders(properties jsontext.Value) error {
	_, err := mapStrings(properties, func(text string) (string, error) {
		return expand(text, func(name string) (string, error) {
			if fields[name] == nil {
				return "", fmt.Errorf("{{%s}} stands for nothing; known are %s", name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			}
			return "", nil
		})
	})
	return err
}

// expand replaces every {{name}} of a text.
func expand(text string, value func(name string) (string, error)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{{")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return "", fmt.Errorf("{{%s has no end", rest)
		}
		filled, err := value(strings.TrimSpace(name))
		if err != nil {
			return "", err
		}
		out.WriteString(filled)
		text = after
	}
}

// mapStrings returns a JSON value with every string that is a value, and not a
// name, changed.
func mapStrings(value jsontext.Value, change func(string) (string, error)) (jsontext.Value, error) {
	var out bytes.Buffer
	dec, enc := jsontext.NewDecoder(bytes.NewReader(value)), jsontext.NewEncoder(&out)
	for {
		token, err := dec.ReadToken()
		if err == io.EOF {
			return bytes.TrimSpace(out.Bytes()), nil
		}
		if err != nil {
			return nil, err
		}
		kind, n := dec.StackIndex(dec.StackDepth())
		name := kind == '{' && n%2 == 1
		if token.Kind() == '"' && !name {
			text, err := change(token.String())
			if err != nil {
				return nil, err
			}
			token = jsontext.String(strings.ToValidUTF8(text, "\uFFFD"))
		}
		if err := enc.WriteToken(token); err != nil {
			return nil, err
		}
	}
}
