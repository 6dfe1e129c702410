package plain_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/plain"
)

func TestMembers(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, test := range []struct{ name, object, want string }{
		{"in order", `{"b": [1, 2], "a": "text"}`, `a: "text", b: [1,2]`},
		{"nothing", `{}`, ""},
		{"no object", `["a"]`, ""},
		{"no JSON", `{`, ""},
		{"a long value, which hides no other", `{"a": "` + long + `", "b": 1}`, `a: "` + strings.Repeat("x", 62) + `…, b: 1`},
		{"what cannot be seen", `{"a": "\u202e"}`, `a: "\u{202E}"`},
	} {
		if got := plain.Members(jsontext.Value(test.object)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	var many strings.Builder
	many.WriteString(`{"a":1`)
	for n := range 100 {
		many.WriteString(`,"` + strings.Repeat("n", n+1) + `":1`)
	}
	if got := plain.Members(jsontext.Value(many.String() + "}")); utf8.RuneCountInString(got) != 512 || !strings.HasSuffix(got, "…") {
		t.Errorf("many members are %d runes: %q", utf8.RuneCountInString(got), got)
	}
}
