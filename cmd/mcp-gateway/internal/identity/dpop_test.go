package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// A holder is a caller with a key.
type holder struct {
	t         testing.TB
	key       crypto.Signer
	algorithm jose.SignatureAlgorithm
}

func (h holder) public() jose.JSONWebKey { return jose.JSONWebKey{Key: h.key.Public()} }

func (h holder) thumbprint() string {
	h.t.Helper()
	key := h.public()
	sum, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		h.t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(sum)
}

// A draft is a proof before it is signed.
type draft struct {
	header map[jose.HeaderKey]any
	claims map[string]any
	signer crypto.Signer
	alg    jose.SignatureAlgorithm
	text   string // in place of a signed one
}

func (h holder) draft(token string) *draft {
	digest := sha256.Sum256([]byte(token))
	return &draft{
		header: map[jose.HeaderKey]any{"typ": "dpop+jwt", "jwk": h.public()}, signer: h.key, alg: h.algorithm,
		claims: map[string]any{
			"jti": rand.Text(), "htm": http.MethodPost, "htu": resource, "iat": now.Unix(), "ath": base64.RawURLEncoding.EncodeToString(digest[:]),
		},
	}
}

func (d *draft) sign(t testing.TB) string {
	t.Helper()
	if d.text != "" {
		return d.text
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: d.alg, Key: d.signer}, &jose.SignerOptions{ExtraHeaders: d.header})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(d.claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func newHolder(t testing.TB) holder {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return holder{t, key, jose.EdDSA}
}

// bound makes a token that is bound to the key of a holder.
func bound(t *testing.T, p *jwkstest.Issuer, h holder, changes ...func(map[string]any)) string {
	t.Helper()
	all := append([]func(map[string]any){set("cnf", map[string]any{"jkt": h.thumbprint()})}, changes...)
	return jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims(all...), nil)
}

func dpop(t *testing.T, p *jwkstest.Issuer, change func(*identity.Config)) *identity.Verifier {
	t.Helper()
	c := identity.Config{Resource: resource, DPoP: identity.DPoPOptional, Issuers: []identity.Issuer{{Issuer: issuer, JWKSURL: p.URL}}}
	if change != nil {
		change(&c)
	}
	return newVerifier(t, c)
}

func proving(t *testing.T, token string, proofs ...string) *http.Request {
	r := request(t, "DPoP "+token)
	for _, p := range proofs {
		r.Header.Add("DPoP", p)
	}
	return r
}

// A caller proves to hold the key that its token is bound to, with either algorithm.
func TestDPoP(t *testing.T) {
	p := jwkstest.New(t)
	for name, h := range map[string]holder{"EdDSA": newHolder(t), "ES256": {t, newEC(t), jose.ES256}} {
		v, token := dpop(t, p, nil), bound(t, p, h)
		if h.algorithm == jose.ES256 {
			v = dpop(t, p, func(c *identity.Config) { c.DPoP = identity.DPoPRequired })
		}
		for _, url := range []string{resource, "HTTPS://Gateway.Example.com:443/mcp", resource + "?a=b#c"} {
			d := h.draft(token)
			d.claims["htu"], d.claims["iat"] = url, float64(now.Unix())+0.5
			caller, err := v.Verify(proving(t, token, d.sign(t)))
			if err != nil || caller.JKT != h.thumbprint() || caller.Subject.ID != "alice" {
				t.Errorf("%s %s: %+v, %v", name, url, caller, err)
			}
		}
	}
}

// The checks of RFC 9449, section 4.3, have one order: a proof with several faults is
// refused for the first of them. Each fault alone is refused, too.
func TestDPoPOrder(t *testing.T) {
	p := jwkstest.New(t)
	h, other := newHolder(t), newHolder(t)
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	token := bound(t, p, h)
	private := map[string]any{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(h.key.Public().(ed25519.PublicKey)), "d": "AAAA"}
	faults := []struct {
		name, want string
		err        error
		change     func(*draft)
	}{
		{"another type", "typ is not dpop+jwt", identity.ErrProof, func(d *draft) { d.header["typ"] = "JWT" }},
		{"another algorithm", "alg is not one of", identity.ErrProof, func(d *draft) { d.alg, d.signer = jose.RS256, weak }},
		{"a private key", "jwk has a private key", identity.ErrProof, func(d *draft) { d.header["jwk"] = private }},
		{"the signature of another key", "the signature is not valid", identity.ErrProof, func(d *draft) {
			if d.alg != jose.RS256 {
				d.signer = other.key
			}
		}},
		{"no jti", "a required claim is missing", identity.ErrProof, func(d *draft) { delete(d.claims, "jti") }},
		{"another method", "htm is not", identity.ErrProof, func(d *draft) { d.claims["htm"] = "GET" }},
		{"another endpoint", "htu is not", identity.ErrProof, func(d *draft) { d.claims["htu"] = "https://gateway.example.com/other/mcp" }},
		{"no nonce", "lacks a current nonce", identity.ErrNonce, func(d *draft) { delete(d.claims, "nonce") }},
		{"old", "iat is 5m1s from now", identity.ErrProof, func(d *draft) { d.claims["iat"] = now.Add(-301 * time.Second).Unix() }},
		{"of another token", "ath is not", identity.ErrProof, func(d *draft) { d.claims["ath"] = "x" }},
	}
	v := dpop(t, p, func(c *identity.Config) { c.DPoPNonce = true })
	nonce := refuse(v, identity.ErrNonce).Header().Get("DPoP-Nonce")
	for i, first := range faults {
		for j, one := range []string{"alone", "with all that come after"} {
			d := h.draft(token)
			d.claims["nonce"] = nonce
			for k, fault := range faults[i:] {
				if k == 0 || j == 1 {
					fault.change(d)
				}
			}
			_, err := v.Verify(proving(t, token, d.sign(t)))
			if !errors.Is(err, first.err) || !strings.Contains(err.Error(), first.want) {
				t.Errorf("%s, %s: %v, want %q", first.name, one, err, first.want)
			}
		}
	}
	good := h.draft(token)
	good.claims["nonce"] = nonce
	if _, err := v.Verify(proving(t, token, good.sign(t))); err != nil {
		t.Errorf("without a fault: %v", err)
	}
}

// What is no proof, or none for this request, is refused.
func TestDPoPIsRefused(t *testing.T) {
	p := jwkstest.New(t)
	h, other := newHolder(t), newHolder(t)
	token := bound(t, p, h)
	free := jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims(), nil)
	certificate := bound(t, p, h, set("cnf", map[string]any{"jkt": h.thumbprint(), "x5t#S256": "abc"}))
	proof := func(of string, changes ...func(*draft)) string {
		d := h.draft(of)
		for _, change := range changes {
			change(d)
		}
		return d.sign(t)
	}
	claim := func(name string, value any) func(*draft) { return func(d *draft) { d.claims[name] = value } }
	none := strings.Split(proof(token), ".")
	none[0] = base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"dpop+jwt","alg":"none","jwk":{}}`))
	shared := strings.Split(proof(token), ".")
	shared[0] = base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"dpop+jwt","alg":"HS256","jwk":{"kty":"oct","k":"AAAA"}}`))
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	curve := holder{t, large, jose.ES384}
	v := dpop(t, p, nil)
	strict := dpop(t, p, func(c *identity.Config) { c.DPoP = identity.DPoPRequired })
	off := dpop(t, p, func(c *identity.Config) { c.DPoP = "" })
	for _, test := range []struct {
		name string
		v    *identity.Verifier
		r    *http.Request
		want error
	}{
		{"no proof", v, proving(t, token), identity.ErrProof},
		{"two proofs", v, proving(t, token, proof(token), proof(token)), identity.ErrProof},
		{"two proofs in one header", v, proving(t, token, proof(token)+", "+proof(token)), identity.ErrProof},
		{"no signature", v, proving(t, token, strings.Join(none, ".")), identity.ErrProof},
		{"a shared secret", v, proving(t, token, strings.Join(shared, ".")), identity.ErrProof},
		{"extensions", v, proving(t, token, proof(token, func(d *draft) { d.header["crit"], d.header["b64"] = []string{"b64"}, true })), identity.ErrProof},
		{"a key of another curve", v, proving(t, token, curve.draft(token).sign(t)), identity.ErrProof},
		{"a key that is no key", v, proving(t, token, proof(token, func(d *draft) { d.header["jwk"] = "x" })), identity.ErrProof},
		{"from the future", v, proving(t, token, proof(token, claim("iat", now.Add(301*time.Second).Unix()))), identity.ErrProof},
		{"a time as text", v, proving(t, token, proof(token, claim("iat", "now"))), identity.ErrProof},
		{"the origin of the gateway", v, proving(t, token, proof(token, claim("htu", "https://gateway.example.com"))), identity.ErrProof},
		{"another port", v, proving(t, token, proof(token, claim("htu", "https://gateway.example.com:8443/mcp"))), identity.ErrProof},
		{"plain text", v, proving(t, token, proof(token, claim("htu", "http://gateway.example.com/mcp"))), identity.ErrProof},
		{"a user in the URL", v, proving(t, token, proof(token, claim("htu", "https://a@gateway.example.com/mcp"))), identity.ErrProof},
		{"another letter case of the method", v, proving(t, token, proof(token, claim("htm", "post"))), identity.ErrProof},
		{"the key of another caller", v, proving(t, token, other.draft(token).sign(t)), identity.ErrInvalid},
		{"a bound token as a bearer token", v, request(t, "Bearer "+token), identity.ErrInvalid},
		{"a bound token as a bearer token beside a proof", v, func() *http.Request {
			r := request(t, "Bearer "+token)
			r.Header.Set("DPoP", proof(token))
			return r
		}(), identity.ErrInvalid},
		{"a token that is bound to no key", v, proving(t, free, proof(free)), identity.ErrInvalid},
		{"a token that is bound to a certificate, too", v, proving(t, certificate, proof(certificate)), identity.ErrInvalid},
		{"a proof as the token", v, proving(t, proof(token), proof(proof(token))), identity.ErrProof},
		{"a bearer token where proofs are required", strict, request(t, "Bearer "+free), identity.ErrInvalid},
		{"a token that is bound to no key where proofs are required", strict, proving(t, free, proof(free)), identity.ErrInvalid},
		{"where no proofs are read", off, proving(t, token, proof(token)), identity.ErrInvalid},
		{"a huge proof", v, proving(t, token, proof(token, claim("x", strings.Repeat("x", 9000)))), identity.ErrProof},
	} {
		if caller, err := test.v.Verify(test.r); !errors.Is(err, test.want) {
			t.Errorf("%s: %+v, %v, want %v", test.name, caller, err, test.want)
		}
	}
	if _, err := v.Verify(request(t, "Bearer "+free)); err != nil {
		t.Errorf("a bearer token where proofs are optional: %v", err)
	}
	environment := func(string) string { return free }
	if _, err := strict.Environment(t.Context(), environment); !errors.Is(err, identity.ErrInvalid) {
		t.Errorf("a token of the environment where proofs are required: %v", err)
	}
}

// A proof is good once, at all endpoints and under a new configuration together, also
// while the clock is set back.
func TestDPoPReplay(t *testing.T) {
	p := jwkstest.New(t)
	h, clock, used := newHolder(t), now, identity.NewProofs()
	configure := func(c *identity.Config) {
		c.Now, c.Proofs, c.Issuers[0].Audience = func() time.Time { return clock }, used, "all"
	}
	v := dpop(t, p, configure)
	token := bound(t, p, h, set("aud", "all"), set("exp", now.Add(time.Hour).Unix()))
	again := h.draft(token).sign(t)
	if _, err := v.Verify(proving(t, token, again)); err != nil {
		t.Fatal(err)
	}
	for name, verifier := range map[string]*identity.Verifier{"the same": v, "after a reload": dpop(t, p, configure)} {
		if _, err := verifier.Verify(proving(t, token, again)); !errors.Is(err, identity.ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
	second := h.draft(token)
	second.claims["htu"] = "https://gateway.example.com/b/mcp"
	second.claims["jti"] = "twice"
	b, err := v.At("https://gateway.example.com/b/mcp")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Verify(proving(t, token, second.sign(t))); err != nil {
		t.Errorf("at another endpoint: %v", err)
	}
	second.claims["htu"] = resource
	if _, err := v.Verify(proving(t, token, second.sign(t))); !errors.Is(err, identity.ErrProof) {
		t.Errorf("the id of another proof: %v", err)
	}
	clock = now.Add(20 * time.Minute)
	late := h.draft(token)
	late.claims["iat"] = clock.Unix()
	if _, err := v.Verify(proving(t, token, late.sign(t))); err != nil {
		t.Error(err)
	}
	clock = now
	if _, err := v.Verify(proving(t, token, again)); !errors.Is(err, identity.ErrProof) {
		t.Errorf("after the clock was set back: %v", err)
	}
}

// The proofs that are remembered are bounded, for one caller and for all. None is
// forgotten before its time.
func TestDPoPBounds(t *testing.T) {
	used := identity.NewProofs()
	for i := range identity.MaxProofs {
		caller := fmt.Sprint(i / identity.MaxProofsOfCaller)
		if err := used.Use(fmt.Sprint(i), caller, now, now); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if i == identity.MaxProofsOfCaller-1 {
			if err := used.Use("one more", "0", now, now); !errors.Is(err, identity.ErrTooManyProofs) {
				t.Errorf("one more of a caller: %v", err)
			}
		}
	}
	if err := used.Use("one more", "5", now, now); !errors.Is(err, identity.ErrTooManyProofs) {
		t.Errorf("one more: %v", err)
	}
	if err := used.Use("0", "0", now, now.Add(5*time.Minute)); !errors.Is(err, identity.ErrProof) {
		t.Errorf("the first again: %v", err)
	}
	if err := used.Use("one more", "0", now.Add(7*time.Minute), now.Add(7*time.Minute)); err != nil {
		t.Errorf("once the others are not valid any more: %v", err)
	}
	if answer := refuse(newVerifier(t, identity.Config{Process: &identity.Process{ID: "a"}}), identity.ErrTooManyProofs); answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", answer.Code, answer.Header())
	}
}

// A nonce is good for five minutes, at the process that made it.
func TestDPoPNonce(t *testing.T) {
	p := jwkstest.New(t)
	clock, h := now, newHolder(t)
	token := bound(t, p, h)
	configure := func(c *identity.Config) { c.DPoPNonce, c.Now = true, func() time.Time { return clock } }
	v, restarted := dpop(t, p, configure), dpop(t, p, configure)
	prove := func(at *identity.Verifier, nonce any) error {
		d := h.draft(token)
		d.claims["nonce"], d.claims["iat"] = nonce, clock.Unix()
		_, err := at.Verify(proving(t, token, d.sign(t)))
		return err
	}
	err := prove(v, "")
	answer := refuse(v, err)
	nonce := answer.Header().Get("DPoP-Nonce")
	challenges := answer.Header().Values("WWW-Authenticate")
	if !errors.Is(err, identity.ErrNonce) || answer.Code != 401 || nonce == "" || !strings.HasSuffix(challenges[1], `, error="use_dpop_nonce"`) {
		t.Fatalf("%v: %d %v", err, answer.Code, answer.Header())
	}
	if err := prove(v, nonce); err != nil {
		t.Errorf("with the nonce: %v", err)
	}
	for name, err := range map[string]error{
		"another": prove(v, "x"), "changed": prove(v, nonce[:20]+"A"+nonce[21:]), "after a restart": prove(restarted, nonce), "a number": prove(v, "7"),
	} {
		if !errors.Is(err, identity.ErrNonce) {
			t.Errorf("%s: %v", name, err)
		}
	}
	clock = now.Add(5*time.Minute + time.Second)
	if err := prove(v, nonce); !errors.Is(err, identity.ErrNonce) {
		t.Errorf("later: %v", err)
	}
}

func refuse(v *identity.Verifier, err error) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	v.Refuse(answer, err)
	return answer
}

// Clients learn which schemes and algorithms an endpoint takes, from its 401 and from
// its metadata.
func TestDPoPChallenges(t *testing.T) {
	p := jwkstest.New(t)
	const at = `resource_metadata="https://gateway.example.com/.well-known/oauth-protected-resource/mcp"`
	const algorithms = `DPoP algs="ES256 EdDSA", `
	for mode, test := range map[identity.DPoP]struct {
		errs     map[error][]string
		metadata string
	}{
		identity.DPoPOff: {map[error][]string{identity.ErrNone: {"Bearer " + at}, identity.ErrInvalid: {"Bearer " + at + `, error="invalid_token"`}}, ""},
		identity.DPoPOptional: {map[error][]string{
			identity.ErrNone:    {"Bearer " + at, algorithms + at},
			identity.ErrInvalid: {"Bearer " + at + `, error="invalid_token"`, algorithms + at + `, error="invalid_token"`},
			identity.ErrProof:   {"Bearer " + at, algorithms + at + `, error="invalid_dpop_proof"`},
		}, `,"dpop_signing_alg_values_supported":["ES256","EdDSA"]`},
		identity.DPoPRequired: {map[error][]string{
			identity.ErrNone:  {algorithms + at},
			identity.ErrProof: {algorithms + at + `, error="invalid_dpop_proof"`},
		}, `,"dpop_signing_alg_values_supported":["ES256","EdDSA"],"dpop_bound_access_tokens_required":true`},
	} {
		v := dpop(t, p, func(c *identity.Config) { c.DPoP = mode })
		for err, want := range test.errs {
			if diff := cmp.Diff(want, refuse(v, err).Header().Values("WWW-Authenticate")); diff != "" {
				t.Errorf("%s, %v (-want +got):\n%s", mode, err, diff)
			}
		}
		answer := httptest.NewRecorder()
		v.ServeMetadata(answer, httptest.NewRequest(http.MethodGet, v.MetadataPath(), nil))
		if _, rest, _ := strings.Cut(answer.Body.String(), `["header"]`); rest != test.metadata+"}" {
			t.Errorf("%s: %s", mode, answer.Body)
		}
	}
}

func TestDPoPConfigIsChecked(t *testing.T) {
	some := []identity.Issuer{{Issuer: issuer, JWKSURL: "https://auth.example.com/keys", Audience: "all"}}
	for want, c := range map[string]identity.Config{
		`dpop: must be off, optional or required, not "on"`: {Resource: resource, Issuers: some, DPoP: "on"},
		"dpop: needs identity.resource":                     {Issuers: some, DPoP: identity.DPoPRequired},
		"dpop: needs identity.issuers":                      {Resource: resource, Process: &identity.Process{ID: "a"}, DPoP: identity.DPoPOptional},
		"dpop_nonce: needs identity.dpop":                   {Resource: resource, Issuers: some, DPoPNonce: true},
	} {
		if _, err := identity.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// No text is a proof of a key that has not signed it, and reading one does not fail in
// another way than with an error.
func FuzzProof(f *testing.F) {
	h := holder{f, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), jose.EdDSA}
	d := h.draft("token")
	d.claims = map[string]any{"jti": "a", "htm": "POST", "htu": resource, "iat": 0} // each process that fuzzes has the same
	own, good := h.thumbprint(), d.sign(f)
	f.Add(good)
	f.Add(strings.Replace(good, ".", "..", 1))
	encode := base64.RawURLEncoding.EncodeToString
	for _, header := range []string{
		`{"typ":"dpop+jwt","alg":"ES256","jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}}`, `{"typ":"dpop+jwt","alg":"EdDSA","jwk":{"kty":"OKP","crv":"Ed25519","x":"AA"}}`,
		`{"typ":"dpop+jwt","alg":"EdDSA","jwk":null}`, `{"typ":"dpop+jwt","alg":"none","jwk":[]}`, `[]`, ``,
	} {
		f.Add(encode([]byte(header)) + "." + encode([]byte(`{"jti":"a","htm":"POST","htu":"x","iat":1e400}`)) + "." + encode([]byte("x")))
	}
	f.Fuzz(func(t *testing.T, text string) {
		of, err := identity.ParseProof(text)
		if err == nil && (of != own || !slices.Equal(strings.Split(text, ".")[:2], strings.Split(good, ".")[:2])) {
			t.Errorf("%q is a proof of %q", text, of)
		}
	})
}
