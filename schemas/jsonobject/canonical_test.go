package jsonobject_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

func TestEqual(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[true, null]}`, `{ "b":[true,null], "a":1 }`, true},
		{`10`, `1e1`, true},
		{`1.50`, `1.5`, true},
		{`"\u0061"`, `"a"`, true},
		{`9007199254740993`, `9007199254740992`, false}, // the same float64
		{`1`, `"1"`, false},
		{`{}`, ``, false},
		{`null`, ``, false},
		{``, ``, true},
		{`{"a":1,"a":1}`, `{"a":1,"a":1}`, false}, // ambiguous, so not comparable
	} {
		if got := jsonobject.Equal(value(test.a), value(test.b)); got != test.want {
			t.Errorf("Equal(%s, %s) = %v", test.a, test.b, got)
		}
	}
}

// value returns a JSON value, or nil for no text.
func value(text string) jsontext.Value {
	if text == "" {
		return nil
	}
	return jsontext.Value(text)
}
