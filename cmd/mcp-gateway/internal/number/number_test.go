package number_test

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/number"
)

func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		text    string
		exact   bool
		integer int64 // MinInt64 for none
	}{
		{"0", true, 0}, {"-0", true, 0}, {"-0.0e5", true, 0}, {"0e999999999", true, 0}, {"0E10000000000000000000", true, 0},
		{"5", true, 5}, {"5.0", true, 5}, {"50e-1", true, 5}, {"-1e3", true, -1000},
		{"0.1", true, math.MinInt64}, {"1.5E+2", true, 150}, {"1e22", true, math.MinInt64}, {"1.7976931348623157e308", true, math.MinInt64},
		{"9007199254740992", true, 1 << 53}, {"9007199254740993", false, 1<<53 + 1}, {"9007199254740993.0", false, math.MinInt64},
		{"9223372036854775807", false, math.MaxInt64}, {"9223372036854775808", false, math.MinInt64},
		{"0.1000000000000000055511151231257827", false, math.MinInt64}, {"5.000000000000000000001", false, math.MinInt64},
		{"1e400", false, math.MinInt64}, {"1e-400", false, math.MinInt64}, {"1e-999999999", false, math.MinInt64}, {"1e999999999", false, math.MinInt64},
		{strings.Repeat("1", 500), false, math.MinInt64}, {"", false, math.MinInt64}, {"x", false, math.MinInt64},
	} {
		integer, ok := number.Integer(test.text)
		if !ok {
			integer = math.MinInt64
		}
		if exact := number.Exact(test.text); exact != test.exact || integer != test.integer {
			t.Errorf("%s: exact %v, integer %d, %v", test.text, exact, integer, ok)
		}
	}
}

func TestRead(t *testing.T) {
	refused := errors.New("refused")
	of := func(text string) (any, error) {
		if text == "0" {
			return nil, refused
		}
		return "number " + text, nil
	}
	got, err := number.Read(jsontext.Value(`{"a":[1.50,{"b":null},[]],"c":{"d":true,"e":"1"}}`), of)
	want := map[string]any{"a": []any{"number 1.50", map[string]any{"b": nil}, []any{}}, "c": map[string]any{"d": true, "e": "1"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{``, `{"a":1,"a":2}`, `[1`, `{"a"}`, `1 2`} {
		if v, err := number.Read(jsontext.Value(text), of); err == nil {
			t.Errorf("%s is read as %v", text, v)
		}
	}
	var where *json.SemanticError
	if _, err := number.Read(jsontext.Value(`{"a":[1,0]}`), of); !errors.Is(err, refused) || !errors.As(err, &where) || where.JSONPointer != "/a/1" {
		t.Errorf("a refused number: %v", err)
	}
}

// A number that is exact is the same when a double is written and read again.
func FuzzExact(f *testing.F) {
	f.Add("9007199254740993")
	f.Add("1e-7")
	f.Fuzz(func(t *testing.T, text string) {
		if !number.Exact(text) {
			return
		}
		double, err := strconv.ParseFloat(text, 64)
		if err != nil || !number.Exact(strconv.FormatFloat(double, 'g', -1, 64)) {
			t.Errorf("%s: %v, %v", text, double, err)
		}
		if i, ok := number.Integer(text); ok && float64(i) != double {
			t.Errorf("%s: %d, %v", text, i, double)
		}
	})
}
