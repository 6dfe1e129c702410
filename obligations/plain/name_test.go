package plain_test

import (
	"testing"

	"github.com/policy-service/policy-service/obligations/plain"
)

// A name that is not one word is in quotation marks, which nothing in it ends.
func TestName(t *testing.T) {
	for name, want := range map[string]string{
		"alice": "alice", "carol@example.com": "carol@example.com", "spiffe://example.org/agent#7": "spiffe://example.org/agent#7", "हिन्दी": "हिन्दी", "東京": "東京",
		"auth0|123": "auth0|123", "github.push_code": "github.push_code",
		"":                     `""`,
		"alice wants nothing":  `"alice wants nothing"`,
		`alice" wants nothing`: `"alice\" wants nothing"`,
		`alice\" wants`:        `"alice\\\" wants"`,
		"alice\u00a0wants":     `"alice\u{00A0}wants"`,
		"gpj.\u202eexe":        `"gpj.\u{202E}exe"`,
		"alice,bob":            `"alice,bob"`,
		"alice’s":              `"alice’s"`,
		"a(b)":                 `"a(b)"`,
	} {
		if got := plain.Name(name); got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
}
