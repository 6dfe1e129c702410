package gateway

import (
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// The trail names resources without the passwords of their URLs.
func TestTrailHasNoPasswords(t *testing.T) {
	for uri, want := range map[string]string{
		"postgres://app:hunter2@db.example.com/orders": "postgres://app:xxxxx@db.example.com/orders",
		"https://app:hunter2%zz@example.com/":          "https://app:xxxxx@example.com/",
		"file:///etc/hosts":                            "file:///etc/hosts",
		"%zz":                                          "%zz",
	} {
		e := &enforce.Entry{Call: &enforce.Call{
			Caller: &enforce.Caller{}, Message: &wire.Message{Method: wire.MethodResourceRead}, Params: &wire.Params{URI: uri},
		}}
		if got := auditCall(e).Tool; got != want {
			t.Errorf("%s: %s", uri, got)
		}
	}
}
