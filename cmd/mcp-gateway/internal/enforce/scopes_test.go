package enforce_test

import (
	"slices"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
)

// A call keeps the scopes that all obligations of its permit leave. It is refused
// where its token cannot be narrowed, or where nothing is left.
func TestNarrowedScopes(t *testing.T) {
	const reads, both = `{"action":"scopes","scopes":["read"]}`, `{"action":"scopes","scopes":["write","read"]}`
	for _, test := range []struct {
		name, answer string
		narrows      bool
		want         []string
		refused      bool
	}{
		{"none", `{"decision":true}`, false, nil, false},
		{"one", custom(reads), true, []string{"read"}, false},
		{"of two", custom(both, reads), true, []string{"read"}, false},
		{"with another obligation", custom(redactSSN, both), true, []string{"write", "read"}, false},
		{"nothing left", custom(reads, `{"action":"scopes","scopes":["write"]}`), true, nil, true},
		{"a token that cannot be narrowed", custom(reads), false, nil, true},
		{"not understood", custom(`{"action":"scopes","scopes":[]}`), true, nil, true},
	} {
		c := call(t, invoke)
		c.Narrows = test.narrows
		v := gate(&pdp{status: 200, body: test.answer}, func(c *enforce.Config) {
			onResults(c)
			c.Map = single
		}).Judge(t.Context(), c)
		if (v.Forward == nil) != test.refused || !slices.Equal(c.Scopes, test.want) {
			t.Errorf("%s: refused %v, scopes %v", test.name, v.Forward == nil, c.Scopes)
		}
	}
}
