package gateway

import "testing"

// A server that says nothing about arguments has what the catalog says, and tell
// where that says nothing either.
func TestArgumentPolicies(t *testing.T) {
	for _, test := range []struct{ catalog, server, want argumentMode }{
		{"", "", argumentsTell},
		{argumentsEnforce, "", argumentsEnforce},
		{argumentsEnforce, argumentsPass, argumentsPass},
		{argumentsPass, argumentsTell, argumentsTell},
	} {
		c := &Config{Catalog: catalogConfig{Arguments: test.catalog}, Servers: []serverConfig{{Name: "a", Arguments: argumentPolicy{Mode: test.server}}}}
		if got := c.argumentPolicies()["a"].Mode; got != test.want {
			t.Errorf("%q in the catalog, %q at the server: %q, want %q", test.catalog, test.server, got, test.want)
		}
	}
}
