package pdp_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

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

// approved returns an active capability of agent a for files:read and files:list that the PEP asked for,
// with its token.
func (u capabilityUser) approved(members string) authzen.Capability {
	u.t.Helper()
	status, asked := u.ask(`{"subject":{"type":"agent","id":"a"},"tools":["files:read","files:list"],"duration":3600` + members + `}`)
	if status != 202 || asked.Capability.Token != "" {
		u.t.Fatalf("%d %+v", status, asked)
	}
	if got := u.decide(asked.Task.ID, "approve"); got != 200 {
		u.t.Fatalf("approve: %d", got)
	}
	return u.show(asked.Capability.ID).Capability
}

// keys returns the public keys of the service.
func (s *service) keys(t testing.TB) (keys jose.JSONWebKeySet) {
	t.Helper()
	_, body := get(t, s.main+authzen.PathJWKS)
	if err := json.Unmarshal([]byte(body), &keys); err != nil {
		t.Fatal(err)
	}
	return keys
}

// A token says what the capability is, and verifies with the keys of the service. It is good for what
// the id is good for, until the capability ends.
func TestCapabilityToken(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys()})
	u := capabilityUser{s, t, "k-gateway"}
	k := prooftest.Ed25519()
	made := u.approved(`,"constraints":{"maxUses":3},"holder_key":` + string(k.JWK()))
	keys := s.keys(t)
	signed, err := jwt.ParseSigned(made.Token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := signed.Claims(keys.Keys[0].Key, &claims); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"iss": s.main, "aud": s.main + "/tenants/acme", "sub": "agent:a", "jti": made.ID, "act_issuer": "user:olga",
		"iat": claims["iat"], "nbf": claims["nbf"], "exp": float64(made.Expires.Unix()), "cnf": map[string]any{"jkt": made.JKT},
		"authorization_details": []any{map[string]any{
			"type": "urn:policy-service:capability", "tools": []any{"files:read", "files:list"}, "constraints": map[string]any{"maxUses": 3.0},
		}},
	}
	if diff := cmp.Diff(want, claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if typ := signed.Headers[0].ExtraHeaders["typ"]; typ != "capability+jwt" {
		t.Errorf("typ %v", typ)
	}
	claim := func(members string) string {
		proof, err := json.Marshal(k.Proof(prooftest.Call{Arguments: `{}`, Capability: made.ID, Tool: "files:read"}))
		if err != nil {
			t.Fatal(err)
		}
		return `{` + members + `,"proof":` + string(proof) + `,"arguments_digest":"` + prooftest.Digest(`{}`) + `","use":true}`
	}
	if d := u.call("a", "files:read", "by token", claim(`"token":"`+made.Token+`"`)); !d.Decision {
		t.Errorf("by token: %+v", d.Context)
	}
	if d := u.call("a", "files:read", "by both", claim(`"id":"`+made.ID+`","token":"`+made.Token+`"`)); !d.Decision {
		t.Errorf("by both: %+v", d.Context)
	}
	for name, members := range map[string]string{
		"another id":      `"id":"cap_OTHER","token":"` + made.Token + `"`,
		"a cut signature": `"token":"` + made.Token[:len(made.Token)-2] + `"`,
		"a large one":     `"token":"` + strings.Repeat("a.", 5000) + `"`,
	} {
		if d := u.call("a", "files:read", name, claim(members)); d.Decision || d.Context.CapabilityDenied != "unknown" {
			t.Errorf("%s: %+v", name, d.Context)
		}
	}
	globex := capabilityUser{s, t, "k-gateway-globex"}
	if d := globex.call("a", "files:read", "another tenant", claim(`"token":"`+made.Token+`"`)); d.Decision || d.Context.CapabilityDenied != "unknown" {
		t.Errorf("another tenant: %+v", d.Context)
	}
	introspect := func(want bool) {
		t.Helper()
		var out authzen.Introspection
		if got := askAs(t, u.key, "POST", s.main+authzen.PathCapabilities+"/introspect", `{"token":"`+made.Token+`"}`, &out); got != 200 || out.Active != want {
			t.Errorf("introspection: %d %+v", got, out)
		}
		if want && (out.Key == nil || out.Key.JKT != made.JKT || *out.UsesLeft != 1) {
			t.Errorf("introspection: %+v", out)
		}
	}
	introspect(true)
	askAs(t, "k-olga", "POST", s.admin+pdp.PathCapabilities+"/"+made.ID+"/revoke", `{}`, nil)
	introspect(false)
	if d := u.call("a", "files:read", "revoked", claim(`"token":"`+made.Token+`"`)); d.Decision || d.Context.CapabilityDenied != "revoked" {
		t.Errorf("revoked: %+v", d.Context)
	}
}

// A token that another algorithm or key has signed is none, and neither is another kind of token of the
// service. Nor is a capability an approval.
func TestForeignTokens(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys()})
	u := capabilityUser{s, t, "k-gateway"}
	made := u.approved("")
	keys := s.keys(t)
	parts := strings.Split(made.Token, ".")
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	sign := func(algorithm jose.SignatureAlgorithm, key any, typ string, embed bool) string {
		t.Helper()
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: keys.Keys[0].KeyID}}, (&jose.SignerOptions{EmbedJWK: embed}).WithType(jose.ContentType(typ)))
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(payload)
		if err != nil {
			t.Fatal(err)
		}
		token, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	var asked authzen.Decision
	body := `{"subject":{"type":"agent","id":"a"},"action":{"name":"capability.request"},"resource":{"type":"tool","id":"files:read"},"context":{"duration":60}}`
	if got := askAs(t, u.key, "POST", s.main+authzen.PathEvaluation, body, &asked); got != 200 || asked.Context == nil || asked.Context.AccessRequest == nil {
		t.Fatalf("%d %+v", got, asked)
	}
	for name, token := range map[string]string{
		"none":                      base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"capability+jwt"}`)) + "." + parts[1] + ".",
		"HS256 with the public key": sign(jose.HS256, []byte(keys.Keys[0].Key.(ed25519.PublicKey)), "capability+jwt", false),
		"another key of that name":  sign(jose.EdDSA, private, "capability+jwt", false),
		"a key in the header":       sign(jose.EdDSA, private, "capability+jwt", true),
		"a proof of denial":         asked.Context.AccessRequest.BindingToken,
		"no token":                  "a.b.c",
	} {
		if d := u.call("a", "files:read", name, `{"token":"`+token+`","use":true}`); d.Decision || d.Context.CapabilityDenied != "unknown" {
			t.Errorf("%s: %+v", name, d.Context)
		}
	}
	if d := u.call("a", "files:read", "as it is", `{"token":"`+made.Token+`","use":true}`); !d.Decision {
		t.Errorf("the token as it is: %+v", d.Context)
	}
	for _, approval := range []string{`{"state":"` + made.Token + `"}`, `{"id":"` + made.ID + `"}`, `{"id":"` + made.Token + `"}`} {
		body := `{"subject":{"type":"agent","id":"a"},"action":{"name":"capability.request"},"resource":{"type":"tool","id":"files:read"},"context":{"duration":60,"approval":` + approval + `}}`
		var d authzen.Decision
		if got := askAs(t, u.key, "POST", s.main+authzen.PathEvaluation, body, &d); got == 200 && d.Decision {
			t.Errorf("approval %s: %d %+v", approval, got, d)
		}
	}
}
