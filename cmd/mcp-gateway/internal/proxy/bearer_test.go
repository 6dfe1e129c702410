package proxy_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
)

// The token and other secrets at the server may change while the gateway runs.
func TestBearerChanges(t *testing.T) {
	var got, keys []string
	answer := answering(200, "application/json", `{"jsonrpc":"2.0","id":7,"result":{}}`)
	u := newUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		keys = append(keys, r.Header.Get("X-Api-Key"))
		answer.ServeHTTP(w, r)
	}))
	token := ""
	g := newGateway(t, u, func(c *proxy.Config) {
		c.Credential = credentialFunc(func(*enforce.Caller) (string, error) { return token, nil })
		c.Secrets = map[string]func() string{"x-api-key": func() string { return "key " + token }}
	})
	for _, token = range []string{"one", "two"} {
		g.send(t, post{body: legacy})
	}
	if all := strings.Join(got, ", "); all != "Bearer one, Bearer two" {
		t.Errorf("the server gets %s", all)
	}
	if all := strings.Join(keys, ", "); all != "key one, key two" {
		t.Errorf("the server gets %s", all)
	}
}

// A credentialFunc is a credential without a cache.
type credentialFunc func(*enforce.Caller) (string, error)

func (f credentialFunc) Token(_ context.Context, caller *enforce.Caller, _ []string) (string, error) {
	return f(caller)
}

func (credentialFunc) Drop(context.Context, *enforce.Caller, []string, string, bool) bool {
	return false
}
