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

// fields maps {{…}} placeholders to values. Every request has these values.
var fields = map[string]func(*authzen.EvaluationRequest) string{
	"subject.type":  func(r *authzen.EvaluationRequest) string { return r.Subject.Type },
	"subject.id":    func(r *authzen.EvaluationRequest) string { return r.Subject.ID },
	"action.name":   func(r *authzen.EvaluationRequest) string { return r.Action.Name },
	"resource.type": func(r *authzen.EvaluationRequest) string { return r.Resource.Type },
	"resource.id":   func(r *authzen.EvaluationRequest) string { return r.Resource.ID },
}

// fillPlaceholders returns properties with placeholders replaced by values of a request.
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

// fillTokens replaces placeholders token by token. It handles any JSON.
func fillTokens(properties jsontext.Value, r *authzen.EvaluationRequest) jsontext.Value {
	filled, err := mapStrings(properties, func(text string) (string, error) {
		return expand(text, func(name string) (string, error) { return fields[name](r), nil })
	})
	if err != nil { // checkFields has parsed it
		panic(err)
	}
	return filled
}

// fillText replaces placeholders in JSON without escapes in a single pass. It is the fast path of
// fillTokens: ok is false for other JSON. Properties have no insignificant white space.
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

// stringLength returns the length of the JSON string at the start of a text, in bytes.
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

// appendFilled appends the content of a JSON string with placeholders replaced.
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

// checkPlaceholders returns an error for an unknown placeholder.
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

// expand replaces every {{name}} in a text.
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

// mapStrings returns a JSON value with change applied to every string value. Names of members stay.
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
