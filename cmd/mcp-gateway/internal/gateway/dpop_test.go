package gateway_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// A proof that was used before the gateway read its configuration again is not good
// afterwards.
func TestProofsOutliveReload(t *testing.T) {
	keys := jwkstest.New(t)
	configured := func(more string) string {
		return fmt.Sprintf(`
identity:
  resource: "https://gateway.example.com"
  dpop: required
  issuers: [{issuer: "https://auth.example.com", jwks_url: %q, audience: all}]
%sservers: [{name: a, url: "http://127.0.0.1:1"}]
`, keys.URL, more)
	}
	f := newFront(t, configured(""))
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public := jose.JSONWebKey{Key: key.Public()}
	thumbprint, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	token := jwkstest.Sign(t, jose.RS256, keys.Key, jwkstest.KeyID, map[string]any{
		"iss": "https://auth.example.com", "aud": "all", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "cnf": map[string]any{"jkt": encode(thumbprint)},
	}, nil)
	digest := sha256.Sum256([]byte(token))
	prove := func(id string) string {
		return jwkstest.Sign(t, jose.EdDSA, key, "", map[string]any{
			"jti": id, "htm": http.MethodPut, "htu": "https://gateway.example.com/a/mcp", "iat": time.Now().Unix(), "ath": encode(digest[:]),
		}, map[jose.HeaderKey]any{"typ": "dpop+jwt", "jwk": public})
	}
	send := func(proof string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, f.base+"/a/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "DPoP "+token)
		r.Header.Set("DPoP", proof)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	proof := prove("1")
	if first, again := send(proof), send(proof); first != http.StatusMethodNotAllowed || again != http.StatusUnauthorized {
		t.Errorf("%d, again %d", first, again)
	}
	f.config = configured("  scopes: [mcp]\nendpoints: [{path: /reloaded, servers: [a]}]\n")
	f.reload <- os.Interrupt
	f.await("/reloaded", http.StatusUnauthorized)
	if again, other := send(proof), send(prove("2")); again != http.StatusUnauthorized || other != http.StatusMethodNotAllowed {
		t.Errorf("after a reload: the same proof %d, another %d", again, other)
	}
}
