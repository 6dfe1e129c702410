package enforce_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/access"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/pdp/client"
)

// A caller that has the right capability, and used it wrongly, is not told to ask for
// another.
func TestRefusalSaysWhatMendsACapability(t *testing.T) {
	for _, test := range []struct {
		denied, says string
		asks         bool
	}{
		{"replayed", "new proof for this call", false},
		{"proof_missing", "params.proof", false},
		{"proof_stale", "new proof for this call", false},
		{"proof_invalid", "new proof for exactly this call", false},
		{"wrong_session", "the session in which", false},
		{"exhausted", access.ToolRequest, true},
		{"arguments_violate", access.ToolRequest, true},
	} {
		t.Run(test.denied, func(t *testing.T) {
			p := &pdp{status: 200, body: fmt.Sprintf(`{"decision":false,"context":{"capability_denied":%q}}`, test.denied)}
			v := gate(p, func(c *enforce.Config) {
				c.PDP = enforce.NewPDP(enforce.PDPConfig{URL: "https://pdp.example.com", Client: client.Config{Transport: p}, Capabilities: enforce.CapabilitiesKnown})
				c.Access = access.New(access.Config{PDP: c.PDP, OffersTools: func(string) bool { return true }})
			}).Judge(t.Context(), call(t, invoke))
			told := read(t, v)
			if told.Data.Reason != test.denied || !strings.Contains(told.Data.Suggestion, test.says) || (told.Data.CapabilityRequest != nil) != test.asks {
				t.Errorf("%+v", told)
			}
			if message := string(v.Answer.Error); strings.Contains(message, access.ToolRequest) != test.asks {
				t.Error(message)
			}
		})
	}
}

// The PDP learns which key a caller has proved to hold, and no caller says so itself.
func TestClaimsProvedKey(t *testing.T) {
	for thumbprint, want := range map[string]string{"": `"capability":{"id":"cap_A","use":true}`, "abc": `"capability":{"id":"cap_A","jkt":"abc","use":true}`} {
		p := &pdp{status: 200, body: `{"decision":true}`}
		c := call(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm","capability":"cap_A","_meta":{"io.github.policy-service/jkt":"forged"}}}`)
		c.Caller.JKT = thumbprint
		v := gate(p, func(c *enforce.Config) {
			c.PDP = enforce.NewPDP(enforce.PDPConfig{URL: "https://pdp.example.com", Client: client.Config{Transport: p}, Capabilities: enforce.CapabilitiesKnown})
		}).Judge(t.Context(), c)
		if v.Forward == nil || !strings.Contains(p.sent, want) || strings.Contains(p.sent+string(v.Forward.Encode()), "forged") {
			t.Errorf("%q: the PDP gets %s", thumbprint, p.sent)
		}
	}
}
