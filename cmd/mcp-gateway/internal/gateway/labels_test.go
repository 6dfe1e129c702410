package gateway

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// By default labels count for the caller in all sessions at all servers. The scope
// session narrows them to the session at the server, where there is one.
func TestLabelScope(t *testing.T) {
	in := func(server, session string) *enforce.Call {
		return &enforce.Call{Server: server, Session: session, Caller: &enforce.Caller{Tenant: "acme", Subject: authzen.Subject{Type: "user", ID: "alice"}}}
	}
	for scope, counts := range map[labelScope]bool{scopeCaller: true, scopeSession: false} {
		cfg := NewConfig()
		cfg.State, cfg.Labels.Scope = t.TempDir(), scope
		kept, err := newCallerLabels(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := kept.Add(in("web", "s1"), []string{"untrusted"}); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			call *enforce.Call
			want bool
		}{
			{in("web", "s1"), true}, {in("web", ""), true}, {in("mail", ""), true},
			{in("web", "s2"), counts}, {in("mail", "s1"), counts},
		} {
			got, err := kept.Of(test.call)
			if err != nil || slices.Contains(got, "untrusted") != test.want {
				t.Errorf("%s: %s %q has %q, %v", scope, test.call.Server, test.call.Session, got, err)
			}
		}
	}
}

func TestLabelSettings(t *testing.T) {
	cfg := NewConfig()
	cfg.Labels = labelsConfig{TTL: time.Second, Scope: "tenant"}
	err := cfg.Check("listen")
	for _, want := range []string{"labels.ttl: must be at least 1m, not 1s", `labels.scope: must be caller or session, not "tenant"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}
