package console_test

import (
	"testing"

	"github.com/policy-service/policy-service/pdp/console"
)

// After signing in people go to the page that they asked for, which is always one of the console.
func TestSignInLeadsToTheConsole(t *testing.T) {
	for next, want := range map[string]string{
		"/requests?view=mine": "/requests?view=mine", "/requests/arq_1": "/requests/arq_1",
		"//evil.example": "/", `/\evil.example`: "/", "https:evil.example": "/", "https://evil.example/": "/", "///evil.example": "/",
		"/%2fevil.example": "/", "/\t/evil.example": "/", "/\n/evil.example": "/", "javascript:alert(1)": "/", "": "/", "requests": "/",
	} {
		if got := console.OwnPath(next); got != want {
			t.Errorf("%q leads to %q, not %q", next, got, want)
		}
	}
}
