package pdp_test

import (
	"bytes"
	"crypto/elliptic"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/prooftest"
)

// issue issues a capability for files:write to agent a, as olga, with more members of the body.
func (u capabilityUser) issue(members string) authzen.Capability {
	u.t.Helper()
	var made authzen.CapabilityResponse
	body := `{"subject":{"type":"agent","id":"a"},"tools":["files:write"],"duration":3600,` + members + `}`
	if got := askAs(u.t, "k-olga", "POST", u.admin+pdp.PathCapabilities, body, &made); got != 201 {
		u.t.Fatalf("issue %s: %d", body, got)
	}
	return made.Capability
}

// claimOf returns a claim of a capability with a proof, for a call of a tool with {"n":1}.
func claimOf(t testing.TB, id string, proof *authzen.CapabilityProof) string {
	t.Helper()
	use := true
	text, err := json.Marshal(authzen.CapabilityClaim{ID: id, Proof: proof, ArgumentsDigest: prooftest.Digest(`{"n":1}`), Use: &use})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A capability with a key is good for the calls that its holder proves, each once, also over a restart,
// and nothing of a proof is in any file of the service.
func TestCapabilityWithAKey(t *testing.T) {
	for _, durability := range []decisionlog.Durability{decisionlog.Strict, decisionlog.Batched} {
		c := pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys(), State: t.TempDir()}
		c.Durability = durability
		s := start(t, c)
		u := capabilityUser{s, t, "k-gateway"}
		k := prooftest.ECDSA(elliptic.P256())
		made := u.issue(`"holder_key":` + string(k.JWK()))
		if made.Bound != "key" || len(made.JKT) != 43 {
			t.Errorf("%+v", made)
		}
		call := prooftest.Call{Arguments: `{"n":1}`, Capability: made.ID, Nonce: "nonce-in-the-clear", Tool: "files:write"}
		proof := k.Proof(call)
		claim := claimOf(t, made.ID, proof)
		if d := u.call("a", "files:write", "no claim", `{"use":true}`); d.Decision || d.Context.CapabilityDenied != "proof_missing" {
			t.Errorf("without a claim: %+v", d.Context)
		}
		if d := u.call("a", "files:write", "no proof", fmt.Sprintf(`{"id":%q,"use":true}`, made.ID)); d.Decision || d.Context.CapabilityDenied != "proof_missing" {
			t.Errorf("without a proof: %+v", d.Context)
		}
		if d := u.call("b", "files:write", "a thief", claim); d.Decision || d.Context.CapabilityDenied != "unknown" {
			t.Errorf("another agent: %+v", d.Context)
		}
		if d := u.call("a", "files:write", "one", claim); !d.Decision {
			t.Errorf("the holder: %+v", d.Context)
		}
		for range 2 {
			if d := u.call("a", "files:write", "again", claim); d.Decision || d.Context.CapabilityDenied != "replayed" {
				t.Errorf("again: %+v", d.Context)
			}
			s.stop(t)
			u.service = start(t, c)
			s = u.service
		}
		s.stop(t)
		nowhere(t, c.State, proof.Nonce, proof.Signature)
	}
}

// nowhere checks that no file of a state directory has one of the texts.
func nowhere(t *testing.T, dir string, texts ...string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, text := range texts {
			if bytes.Contains(content, []byte(text)) {
				t.Errorf("%s has %s", path, text)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A proof that a denied call has presented is taken: it is good for no other call.
func TestADeniedCallTakesItsProof(t *testing.T) {
	store := capabilityStore()
	store["policies.cedar"].Data = append(store["policies.cedar"].Data, `
@id("frozen") forbid (principal, action, resource == tool::"files:write") when { context has frozen };`...)
	c := pdp.Config{Policies: store, Auth: capabilityKeys(), State: t.TempDir()}
	s := start(t, c)
	u := capabilityUser{s, t, "k-gateway"}
	k := prooftest.Ed25519()
	made := u.issue(`"holder_key":` + string(k.JWK()))
	claim := claimOf(t, made.ID, k.Proof(prooftest.Call{Arguments: `{"n":1}`, Capability: made.ID, Tool: "files:write"}))
	if d := u.call("a", "files:write", "frozen", claim+`,"frozen":true`); d.Decision || d.Context != nil && d.Context.CapabilityDenied != "" {
		t.Errorf("policies deny: %+v", d)
	}
	for range 2 {
		if d := u.call("a", "files:write", "later", claim); d.Decision || d.Context.CapabilityDenied != "replayed" {
			t.Errorf("the same proof: %+v", d.Context)
		}
		s.stop(t)
		u.service = start(t, c)
		s = u.service
	}
}

// Every evaluation of a batch presents the same proof, and takes it together with the others.
func TestABatchTakesAProofOnce(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys()})
	u := capabilityUser{s, t, "k-gateway"}
	k := prooftest.Ed25519()
	made := u.issue(`"holder_key":` + string(k.JWK()))
	claim := claimOf(t, made.ID, k.Proof(prooftest.Call{Arguments: `{"n":1}`, Capability: made.ID, Tool: "files:write"}))
	body := fmt.Sprintf(`{"subject":{"type":"agent","id":"a"},"action":{"name":"tools/call"},"context":{"gateway":{"server":"files","tool":"write"},"capability":%s},
		"evaluations":[{"resource":{"type":"tool","id":"files:write"}},{"resource":{"type":"tool","id":"files:other"}}]}`, claim)
	for _, want := range []bool{true, false} {
		var answer authzen.EvaluationsResponse
		if status := askAs(t, u.key, "POST", s.main+authzen.PathEvaluations, body, &answer); status != 200 || len(answer.Evaluations) != 2 {
			t.Fatalf("%d %+v", status, answer)
		}
		for _, d := range answer.Evaluations {
			if d.Decision != want || !want && d.Context.CapabilityDenied != "replayed" {
				t.Errorf("%+v %+v, want %v", d, d.Context, want)
			}
		}
	}
}

func TestHolderKeysThatAreRefused(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys()})
	u := capabilityUser{s, t, "k-gateway"}
	for _, key := range []string{string(prooftest.Ed25519().PrivateJWK()), `{"kty":"oct","k":"AAAA"}`, `"x"`, `[]`, `{}`} {
		body := `{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"duration":60,"holder_key":` + key + `}`
		if got := askAs(t, u.key, "POST", s.main+authzen.PathCapabilities, body, nil); got != 400 {
			t.Errorf("%s: %d", key, got)
		}
	}
	for _, claim := range []string{`{"proof":{"timestamp":"t","nonce":"n","signature":"s"}}`, `{"id":"cap_1","proof":{"timestamp":"t","nonce":"n","signature":"s","alg":"none"}}`, `{"id":"cap_1","proof":"x"}`} {
		body := fmt.Sprintf(`{"subject":{"type":"agent","id":"a"},"action":{"name":"tools/call"},"resource":{"type":"tool","id":"files:read"},"context":{"capability":%s}}`, claim)
		if got := askAs(t, u.key, "POST", s.main+authzen.PathEvaluation, body, nil); got != 400 {
			t.Errorf("%s: %d", claim, got)
		}
	}
}
