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

// fill returns properties with what {{…}} stands for in a request.
func fill(properties jsontext.Value, r *authzen.EvaluationRequest) jsontext.Value {
	if r == nil || !bytes.Contains(properties, []byte("{{")) {
		return properties
	}
	filled, err := mapStrings(properties, func(text string) (string, error) {
		return expand(text, func(name string) (string, error) { return fields[name](r), nil })
	})
	if err != nil { // checkFields has walked it
		panic(err)
	}
	return filled
}

// checkFields reports a {{…}} that stands for nothing.
func checkFields(properties jsontext.Value) error {
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
