package credential_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/credential"
)

func pemOf(t *testing.T, kind string, der []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// A client with a key authenticates by a new assertion for each request, with the
// algorithm of its key, and sends no secret (RFC 7523, sections 2.2 and 3).
func TestAssertions(t *testing.T) {
	_, edward, _ := ed25519.GenerateKey(rand.Reader)
	ronald, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{credential.TypeExchange, credential.TypeClientCredentials} {
		for algorithm, key := range map[jose.SignatureAlgorithm]any{
			jose.ES256: newECDSA(t, elliptic.P256()), jose.ES384: newECDSA(t, elliptic.P384()), jose.EdDSA: edward, jose.RS256: ronald,
		} {
			der, err := x509.MarshalPKCS8PrivateKey(key)
			text := pemOf(t, "PRIVATE KEY", der, err)
			e := newTokenEndpoint(t)
			s := e.source(func(c *credential.Config, around *credential.Surroundings) {
				c.Type, c.ClientAuth, c.ClientKeyID = kind, "private_key_jwt", "k7"
				around.Secret, around.Key = nil, func() string { return text }
			})
			seen := map[string]bool{}
			for _, scope := range []string{"read", "write"} {
				if _, err := s.Token(t.Context(), alice, []string{scope}); err != nil {
					t.Fatal(err)
				}
				claims := assertionOf(t, e, algorithm, key)
				if err := claims.Validate(jwt.Expected{Issuer: "gateway id", Subject: "gateway id", AnyAudience: jwt.Audience{e.URL}}); err != nil || seen[claims.ID] || claims.ID == "" {
					t.Errorf("%s, %s: %v", kind, algorithm, err)
				}
				if life := claims.Expiry.Time().Sub(claims.IssuedAt.Time()); life != time.Minute {
					t.Errorf("an assertion is good for %s", life)
				}
				seen[claims.ID] = true
			}
		}
	}
}

func newECDSA(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// assertionOf returns the claims of the assertion in the last request.
func assertionOf(t *testing.T, e *tokenEndpoint, algorithm jose.SignatureAlgorithm, key any) (claims jwt.Claims) {
	t.Helper()
	form := e.request().PostForm
	if form.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" || form.Get("client_secret") != "" || e.request().Header.Get("Authorization") != "" {
		t.Errorf("the form is %v", form)
	}
	signed, err := jwt.ParseSigned(form.Get("client_assertion"), []jose.SignatureAlgorithm{algorithm})
	if err != nil || signed.Headers[0].KeyID != "k7" {
		t.Fatalf("%v, %v", signed, err)
	}
	private := jose.JSONWebKey{Key: key}
	if err := signed.Claims(private.Public().Key, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// Keys that are too weak, or no keys, are faults. No error repeats a part of the key.
func TestCheckKey(t *testing.T) {
	der, err := x509.MarshalPKCS8PrivateKey(newECDSA(t, elliptic.P224()))
	narrow := pemOf(t, "PRIVATE KEY", der, err)
	sec1, err := x509.MarshalECPrivateKey(newECDSA(t, elliptic.P521()))
	for text, want := range map[string]string{
		"":     "not in PEM",
		narrow: "P-256, P-384 or P-521",
		pemOf(t, "PRIVATE KEY", []byte("sesame"), nil): "no private key",
		pemOf(t, "EC PRIVATE KEY", sec1, err):          "",
	} {
		got := credential.CheckKey(text)
		if (got == nil) != (want == "") || got != nil && (!strings.Contains(got.Error(), want) || strings.Contains(got.Error(), "sesame")) {
			t.Errorf("%v, want %q", got, want)
		}
	}
}
