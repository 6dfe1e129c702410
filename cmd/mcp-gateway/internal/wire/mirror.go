package wire

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/number"
)

// A Mirror is an argument of a call that is repeated in a header (SEP-2243, "Custom
// Headers from Tool Parameters").
type Mirror struct {
	Name    string // of the header, behind Mcp-Param-
	Text    string // of the argument; "" where there is none
	Present bool   // there is one
}

// Mirrors returns the arguments of a call that are repeated in headers, by the
// definition of its tool.
func Mirrors(definition, arguments jsontext.Value) ([]Mirror, error) {
	var tool struct {
		InputSchema jsontext.Value `json:"inputSchema"`
	}
	if err := json.Unmarshal(definition, &tool); err != nil {
		return nil, fmt.Errorf("definition: %w", err)
	}
	return mirrors(nil, tool.InputSchema, arguments)
}

func mirrors(found []Mirror, schema, value jsontext.Value) ([]Mirror, error) {
	if schema.Kind() != '{' {
		return found, nil
	}
	var object struct {
		Header     jsontext.Value `json:"x-mcp-header"`
		Properties jsontext.Value `json:"properties"`
	}
	if err := json.Unmarshal(schema, &object); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if object.Header.Kind() == '"' {
		m := Mirror{}
		if err := json.Unmarshal(object.Header, &m.Name); err != nil {
			return nil, fmt.Errorf("x-mcp-header: %w", err)
		}
		m.Text, m.Present = mirrored(value)
		found = append(found, m)
	}
	if object.Properties.Kind() != '{' {
		return found, nil
	}
	var properties, members map[string]jsontext.Value
	if err := json.Unmarshal(object.Properties, &properties); err != nil {
		return nil, fmt.Errorf("properties: %w", err)
	}
	if value.Kind() == '{' {
		if err := json.Unmarshal(value, &members); err != nil {
			return nil, fmt.Errorf("arguments: %w", err)
		}
	}
	var err error
	for name, property := range properties {
		if found, err = mirrors(found, property, members[name]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// mirrored writes a value for a header, which may be a string, an integer or a
// boolean.
func mirrored(value jsontext.Value) (string, bool) {
	switch value.Kind() {
	case '"':
		var text string
		err := json.Unmarshal(value, &text)
		return text, err == nil
	case 't', 'f':
		return string(value), true
	case '0':
		integer, ok := number.Integer(string(value))
		return strconv.FormatInt(integer, 10), ok
	}
	return "", false
}

// Same reports whether the value of a header is the argument. 42.0 is 42.
func (m Mirror) Same(header string) bool {
	text, ok := TextOfHeader(header)
	if !ok || !m.Present {
		return false
	}
	if text == m.Text {
		return true
	}
	said, isNumber := number.Integer(text)
	meant, isInteger := number.Integer(m.Text)
	return isNumber && isInteger && said == meant && m.Text == strconv.FormatInt(meant, 10)
}
