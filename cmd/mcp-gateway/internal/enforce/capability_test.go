package enforce_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/access"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
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

// Only a server that checks capabilities itself gets one, of a call that the PDP permits.
// What else is made from the call has none.
func TestServerGetsCapabilityOfPermittedCall(t *testing.T) {
	const permit, deny = `{"decision":true}`, `{"decision":false,"context":{"capability_denied":"expired"}}`
	presenting := strings.Replace(invoke, `"params":{`, `"params":{"capability":"cap_1","proof":{"timestamp":"t","nonce":"n","signature":"s"},`, 1)
	for _, test := range []struct {
		name, body, answer string
		handsOn, observes  bool
		forwards, gets     bool
	}{
		{"permitted", presenting, permit, true, false, true, true},
		{"presents none", invoke, permit, true, false, true, false},
		{"other server", presenting, permit, false, false, true, false},
		{"denied", presenting, deny, true, false, false, false},
		{"observed", presenting, permit, true, true, true, true},
		{"observed denial", presenting, deny, true, true, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &pdp{status: 200, body: test.answer}
			c := call(t, test.body)
			v := gate(p, func(cfg *enforce.Config) {
				cfg.PDP = enforce.NewPDP(enforce.PDPConfig{URL: "https://pdp.example.com", Client: client.Config{Transport: p}, Capabilities: enforce.CapabilitiesKnown})
				cfg.HandsOn = func(server string) bool { return test.handsOn && server == "files" }
				cfg.Observes = func(string) bool { return test.observes }
			}).Judge(t.Context(), c)
			if (v.Forward != nil) != test.forwards {
				t.Fatalf("%+v", v)
			}
			if !test.forwards {
				return
			}
			const want = `"_meta":{"io.github.policy-service/capability":{"capability":"cap_1","proof":{"nonce":"n","signature":"s","timestamp":"t"}}}`
			got := string(v.Forward.Encode())
			if strings.Contains(got, want) != test.gets || strings.Count(got, "cap_1") > 1 || !test.gets && strings.Contains(got, "cap_1") {
				t.Error(got)
			}
			if kept := string(c.Message.Encode()); strings.Contains(kept, "cap_1") {
				t.Error(kept)
			}
		})
	}
}

// waits is one request of bob, for the call that fulfils it.
type waits struct{ digest string }

func (waits) Attaches(*enforce.Call, string) (bool, error) { return false, nil }

func (w waits) Request(_, id string) (*enforce.Request, error) {
	return &enforce.Request{ID: id, Requester: authzen.Subject{Type: "user", ID: "bob"}, Server: "files", Digest: w.digest}, nil
}

func (waits) Fulfil(_ context.Context, f *enforce.FulfillingCall) (*enforce.Disposition, error) {
	return &enforce.Disposition{Forward: f.Message, Finish: func(_ context.Context, m *wire.Message) *wire.Message { return m }}, nil
}

// The call that fulfils a request is permitted with the capability of its own caller.
func TestServerGetsCapabilityOfFulfillingCall(t *testing.T) {
	bound, err := wire.Bind("files", "", call(t, invoke).Message, nil)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := bound.Digest()
	if err != nil {
		t.Fatal(err)
	}
	p := &pdp{status: 200, body: `{"decision":true,"evaluations":[{"decision":true}]}`}
	v := gate(p, func(cfg *enforce.Config) {
		cfg.PDP = enforce.NewPDP(enforce.PDPConfig{URL: "https://pdp.example.com", Client: client.Config{Transport: p}, Capabilities: enforce.CapabilitiesKnown})
		cfg.HandsOn = func(string) bool { return true }
		cfg.Requests = waits{digest}
		cfg.MapFulfil = func(c *enforce.Call, _ *enforce.Request) (*authzen.EvaluationRequest, error) {
			return &authzen.EvaluationRequest{Subject: c.Caller.Subject, Action: authzen.Action{Name: "tools/fulfil"}, Resource: authzen.Resource{Type: "tool", ID: "rm"}}, nil
		}
	}).Judge(t.Context(), call(t, strings.Replace(invoke, `"params":{`, `"params":{"capability":"cap_1","onBehalfOf":"bob","requestId":"r",`, 1)))
	if v.Forward == nil {
		t.Fatalf("%s", v.Answer.Error)
	}
	if got := string(v.Forward.Encode()); !strings.Contains(got, `"_meta":{"io.github.policy-service/capability":{"capability":"cap_1"}}`) {
		t.Error(got)
	}
}
