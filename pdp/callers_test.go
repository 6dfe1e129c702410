package pdp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// digest returns the digest of a key as in the configuration.
func digest(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }

// ask sends a request with an Authorization header.
func ask(t *testing.T, client *http.Client, method, url, authorization, body string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response
}

const aliceInAcme = `{"tenant_id":"acme","actor":{"actor_id":"alice","actor_type":"user"},"action":"read","resource":{"type":"record","id":"record-1"},"purpose":"p"}`

// Only a credential with the scope label may say which labels a caller has, in any spelling
// and in every kind of request. A session without labels is an ordinary member.
func TestLabelsNeedTheirScope(t *testing.T) {
	s := start(t, pdp.Config{Policies: docs(`{}`), Auth: pdp.Auth{APIKeys: []pdp.APIKey{
		{ID: "pep", SHA256: digest("k-pep")},
		{ID: "gateway", SHA256: digest("k-gateway"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeEvaluate, pdp.ScopeSearch, pdp.ScopeLabel}}},
	}}})
	const question = `"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}`
	for _, test := range []struct {
		path, body string
		refused    bool
	}{
		{authzen.PathEvaluation, `{` + question + `,"context":{"session":{"labels":["web"]}}}`, true},
		{authzen.PathEvaluation, `{` + question + `,"context":{"session":{"labels":[]}}}`, true},
		{authzen.PathEvaluation, `{` + question + `,"context":{"\u0073ession":{"label\u0073":[]}}}`, true},
		{authzen.PathEvaluation, `{` + question + `,"context":{"session":{"id":"s","labels":"none"}}}`, true},
		{authzen.PathEvaluation, `{` + question + `,"context":{"session":{"id":"s"}}}`, false},
		{authzen.PathEvaluation, `{` + question + `,"context":{"session":"s-1"}}`, false},
		{authzen.PathEvaluation, `{` + question + `,"context":{"sessions":{"labels":[]},"x":"session"}}`, false},
		{authzen.PathEvaluations, `{` + question + `,"context":{"session":{"labels":[]}}}`, true},
		{authzen.PathSearchAction, `{"subject":{"type":"user","id":"alice"},"resource":{"type":"doc","id":"1"},"context":{"session":{"labels":[]}}}`, true},
		{authzen.PathSearchResource, `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc"},"context":{"session":{"labels":[]}}}`, true},
		{authzen.PathSearchSubject, `{"subject":{"type":"user"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"context":{"session":{"labels":[]}}}`, true},
		{authzen.PathAuthorize, strings.Replace(aliceInAcme, `"purpose"`, `"context":{"session":{"labels":[]}},"purpose"`, 1), true},
	} {
		for key, refused := range map[string]bool{"k-pep": test.refused, "k-gateway": false} {
			want := map[bool]int{true: 400, false: 200}[refused]
			if status := askAs(t, key, "POST", s.main+test.path, test.body, nil); status != want {
				t.Errorf("%s of %s is answered %d: %s", test.path, key, status, test.body)
			}
		}
	}

	// An item of a batch is refused alone.
	batch := `{"evaluations":[{` + question + `},{` + question + `,"context":{"session":{"labels":[]}}}]}`
	var answer authzen.EvaluationsResponse
	if status := askAs(t, "k-pep", "POST", s.main+authzen.PathEvaluations, batch, &answer); status != 200 || answer.Evaluations[0].Context.Error != nil || answer.Evaluations[1].Context.Error == nil || answer.Evaluations[1].Context.Error.Status != 400 {
		t.Errorf("%d %+v", status, answer.Evaluations)
	}
}

// An invalid credential gets 401, a missing permission 403 (AR-143 in
// conformance/testdata/rows.txt); AuthZEN 1.0, AZ-37, AZ-38.
func TestAPIKeys(t *testing.T) {
	s := start(t, pdp.Config{Auth: pdp.Auth{APIKeys: []pdp.APIKey{
		{ID: "anything", SHA256: digest("k-anything")},
		{ID: "acme", SHA256: digest("k-acme"), Grant: pdp.Grant{Tenants: []string{"acme"}}},
		{ID: "both", SHA256: digest("k-both"), Grant: pdp.Grant{Tenants: []string{"acme", "beta"}}},
		{ID: "searcher", SHA256: digest("k-searcher"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeSearch}}},
		{ID: "auditor", SHA256: digest("k-auditor"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeAudit}}},
		{ID: "operator", SHA256: digest("k-operator"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeAdmin}}},
	}}})
	const (
		evaluation = authzen.PathEvaluation
		search     = authzen.PathSearchAction
	)
	tests := []struct {
		name, key, method, url, body string
		want                         int
	}{
		{"no key", "", "POST", s.main + evaluation, aliceReads, 401},
		{"no key, and no such body", "", "POST", s.main + evaluation, `{`, 401},
		{"an unknown key", "Bearer k-nobody", "POST", s.main + evaluation, aliceReads, 401},
		{"the digest of a key", "Bearer " + digest("k-anything"), "POST", s.main + evaluation, aliceReads, 401},
		{"another scheme", "Basic k-anything", "POST", s.main + evaluation, aliceReads, 401},
		{"an empty key", "Bearer ", "POST", s.main + evaluation, aliceReads, 401},
		{"a key", "Bearer k-anything", "POST", s.main + evaluation, aliceReads, 200},
		{"a scheme in small letters", "bearer k-anything", "POST", s.main + evaluation, aliceReads, 200},
		{"any tenant", "Bearer k-anything", "POST", s.main + "/tenants/other" + evaluation, aliceReads, 200},
		{"a batch", "Bearer k-anything", "POST", s.main + authzen.PathEvaluations, aliceReads, 200},
		{"a search", "Bearer k-anything", "POST", s.main + search, aliceReads, 200},
		{"their tenant", "Bearer k-acme", "POST", s.main + "/tenants/acme" + evaluation, aliceReads, 200},
		{"their tenant, not named", "Bearer k-acme", "POST", s.main + evaluation, aliceReads, 200},
		{"one of two tenants", "Bearer k-both", "POST", s.main + "/tenants/beta" + evaluation, aliceReads, 200},
		{"two tenants, and none named", "Bearer k-both", "POST", s.main + evaluation, aliceReads, 400},
		{"two tenants, and none named in a batch", "Bearer k-both", "POST", s.main + authzen.PathEvaluations, aliceReads, 400},
		{"two tenants, and none named in a search", "Bearer k-both", "POST", s.main + search, aliceReads, 400},
		{"two tenants, and none named for a task", "Bearer k-both", "GET", s.main + authzen.PathRequests + "/arq_1", "", 400},
		{"two tenants, and none named in a submission", "Bearer k-both", "POST", s.main + authzen.PathRequests, `{}`, 400},
		{"one of two tenants in the body", "Bearer k-both", "POST", s.main + authzen.PathAuthorize, aliceInAcme, 200},
		{"another tenant", "Bearer k-acme", "POST", s.main + "/tenants/other" + evaluation, aliceReads, 403},
		{"no such tenant", "Bearer k-acme", "POST", s.main + "/tenants/..%2fother" + evaluation, aliceReads, 403},
		{"their tenant in the body", "Bearer k-acme", "POST", s.main + authzen.PathAuthorize, aliceInAcme, 200},
		{"another tenant in the body", "Bearer k-acme", "POST", s.main + authzen.PathAuthorize, strings.Replace(aliceInAcme, "acme", "other", 1), 403},
		{"an approval in another tenant", "Bearer k-acme", "POST", s.main + authzen.PathApprovals,
			`{"request":` + strings.Replace(aliceInAcme, "acme", "other", 1) + `,"approval":{"template":"t"}}`, 403},
		{"a request for access, and no key", "", "POST", s.main + authzen.PathRequests, `{}`, 401},
		{"a request for access", "Bearer k-searcher", "POST", s.main + authzen.PathRequests, `{}`, 403},
		{"a search alone", "Bearer k-searcher", "POST", s.main + search, aliceReads, 200},
		{"a decision without the scope", "Bearer k-searcher", "POST", s.main + evaluation, aliceReads, 403},
		{"the log", "Bearer k-auditor", "GET", s.admin + pdp.PathLogExport, "", 200},
		{"the log without the scope", "Bearer k-anything", "GET", s.admin + pdp.PathLogExport, "", 403},
		{"the log without a key", "", "GET", s.admin + pdp.PathLogCheckpoint, "", 401},
		{"a reload", "Bearer k-operator", "POST", s.admin + pdp.PathReload, "", 422},
		{"a reload without the scope", "Bearer k-auditor", "POST", s.admin + pdp.PathReload, "", 403},
		{"health", "", "GET", s.admin + "/readyz", "", 200},
		{"metadata", "", "GET", s.main + authzen.PathMetadata, "", 200},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			response := ask(t, http.DefaultClient, test.method, test.url, test.key, test.body)
			if test.name == "a reload" && response.StatusCode == 200 {
				return // the policies cannot change
			}
			if response.StatusCode != test.want {
				t.Errorf("status %d, want %d", response.StatusCode, test.want)
			}
			if got := response.Header.Get("WWW-Authenticate") != ""; got != (test.want == 401) {
				t.Errorf("WWW-Authenticate %q with status %d", response.Header.Get("WWW-Authenticate"), test.want)
			}
		})
	}
}

func TestAuthIsChecked(t *testing.T) {
	key := digest("k")
	tests := []struct {
		name string
		auth pdp.Auth
		want string
	}{
		{"no id", pdp.Auth{APIKeys: []pdp.APIKey{{SHA256: key}}}, "auth.api_keys.0.id: is required"},
		{"the key itself", pdp.Auth{APIKeys: []pdp.APIKey{{ID: "a", SHA256: "k"}}}, "auth.api_keys.0.sha256: must be 64 hexadecimal digits"},
		{"one key for two", pdp.Auth{APIKeys: []pdp.APIKey{{ID: "a", SHA256: key}, {ID: "b", SHA256: key}}}, "b has the key of a"},
		{"no such scope", pdp.Auth{APIKeys: []pdp.APIKey{{ID: "a", SHA256: key, Grant: pdp.Grant{Scopes: []pdp.Scope{"write"}}}}}, `no scope "write"`},
		{"no such tenant", pdp.Auth{APIKeys: []pdp.APIKey{{ID: "a", SHA256: key, Grant: pdp.Grant{Tenants: []string{"../x"}}}}}, `no tenant can be called "../x"`},
		{"no audience", pdp.Auth{JWT: []pdp.Issuer{{Issuer: "https://i", JWKSURL: "https://i/keys"}}}, "auth.jwt.0.audience: is required"},
		{"keys in plain text", pdp.Auth{JWT: []pdp.Issuer{{Issuer: "https://i", Audience: "a", JWKSURL: "http://i/keys"}}}, "auth.jwt.0.jwks_url: must be an https URL"},
		{"no algorithm", pdp.Auth{JWT: []pdp.Issuer{{Issuer: "https://i", Audience: "a", JWKSURL: "https://i/keys", Algorithms: []string{"none"}}}}, `algorithm "none" is not one of`},
		{"a shared secret", pdp.Auth{JWT: []pdp.Issuer{{Issuer: "https://i", Audience: "a", JWKSURL: "https://i/keys", Algorithms: []string{"HS256"}}}}, `algorithm "HS256" is not one of`},
		{"an issuer twice", pdp.Auth{JWT: []pdp.Issuer{{Issuer: "https://i", Audience: "a", JWKSURL: "https://i/keys"}, {Issuer: "https://i", Audience: "a", JWKSURL: "https://i/other"}}}, "the issuer is there twice"},
		{"an issuer with a fragment", pdp.Auth{JWT: []pdp.Issuer{{Issuer: "https://i#x", Audience: "a", JWKSURL: "https://i/keys"}}}, "the issuer must not have a #"},
		{"an empty list of tenants", pdp.Auth{APIKeys: []pdp.APIKey{{ID: "a", SHA256: key, Grant: pdp.Grant{Tenants: []string{}}}}}, "auth.api_keys.0.tenants: is empty"},
		{"an empty list of scopes", pdp.Auth{JWT: []pdp.Issuer{{Issuer: "https://i", Audience: "a", JWKSURL: "https://i/keys", Grant: pdp.Grant{Scopes: []pdp.Scope{}}}}}, "auth.jwt.0.scopes: is empty"},
		{"an empty list of algorithms", pdp.Auth{JWT: []pdp.Issuer{{Issuer: "https://i", Audience: "a", JWKSURL: "https://i/keys", Algorithms: []string{}}}}, "auth.jwt.0.algorithms: is empty"},
		{"an empty list of certificates", pdp.Auth{MTLS: &pdp.MTLS{CA: "ca.pem", Callers: []pdp.MTLSCaller{}}}, "auth.mtls.callers: is empty"},
		{"a certificate of no tenant", pdp.Auth{MTLS: &pdp.MTLS{CA: "ca.pem", Callers: []pdp.MTLSCaller{{Name: "a", Grant: pdp.Grant{Tenants: []string{}}}}}}, "auth.mtls.callers.0.tenants: is empty"},
		{"a person of one name", pdp.Auth{APIKeys: []pdp.APIKey{{ID: "a", SHA256: key}}, Aliases: [][]string{{"a"}}}, "at least two names"},
		{"a name of two people", pdp.Auth{APIKeys: []pdp.APIKey{{ID: "a", SHA256: key}}, Aliases: [][]string{{"a", "b"}, {"b", "c"}}}, `"b" is there twice`},
		{"names of nobody", pdp.Auth{Aliases: [][]string{{"a", "b"}}}, "there are no credentials"},
		{"certificates of nobody", pdp.Auth{MTLS: &pdp.MTLS{}}, "auth.mtls.ca: is required"},
		{"certificates without TLS", pdp.Auth{MTLS: &pdp.MTLS{CA: "ca.pem"}}, "client certificates need TLS"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := launch(t, pdp.Config{Auth: test.auth})
			if s.main != "" || s.err == nil || !strings.Contains(s.err.Error(), test.want) {
				t.Errorf("%v, want %q", s.err, test.want)
			}
		})
	}
}

// TestTokens covers the threats of RFC 8725. Clocks may differ by a minute (AR-144 in
// conformance/testdata/rows.txt).
func TestTokens(t *testing.T) {
	provider := jwkstest.New(t)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	encrypts := jwkstest.NewKey(t)
	provider.Others = []jose.JSONWebKey{{Key: small.Public(), KeyID: "small", Use: "sig"}, {Key: encrypts.Public(), KeyID: "encrypts", Use: "enc"}}
	s := start(t, pdp.Config{Auth: pdp.Auth{JWT: []pdp.Issuer{
		{Issuer: "https://idp.example.com", Audience: "pdp", JWKSURL: provider.URL, TenantClaim: "org"},
	}}})
	claims := func(change func(map[string]any)) map[string]any {
		c := map[string]any{
			"iss": "https://idp.example.com", "aud": "pdp", "sub": "gateway", "org": []string{"acme", "globex"},
			"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		}
		change(c)
		return c
	}
	good := func(change func(map[string]any)) string {
		return jwkstest.Sign(t, jose.RS256, provider.Key, "k1", claims(change), nil)
	}
	same := func(map[string]any) {}
	text := func(more string) string {
		body, err := json.Marshal(claims(same))
		if err != nil {
			t.Fatal(err)
		}
		return jwkstest.Sign(t, jose.RS256, provider.Key, "k1", []byte(strings.TrimSuffix(string(body), "}")+more+"}"), nil)
	}
	typed := func(typ string) string {
		return jwkstest.Sign(t, jose.RS256, provider.Key, "k1", claims(same), map[jose.HeaderKey]any{"typ": typ})
	}
	set := func(name string, value any) func(map[string]any) { return func(c map[string]any) { c[name] = value } }
	stranger := jwkstest.NewKey(t)
	public, err := x509.MarshalPKIXPublicKey(provider.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	tokens := good(same)
	parts := strings.Split(tokens, ".")
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."

	tests := []struct {
		name, token, path string
		want              int
	}{
		{"a token", tokens, "/tenants/acme", 200},
		{"an audience of several", good(set("aud", []string{"other", "pdp"})), "/tenants/acme", 200},
		{"one tenant, not named", good(set("org", "acme")), "", 200},
		{"not valid for half a minute yet", good(set("nbf", time.Now().Add(30*time.Second).Unix())), "/tenants/acme", 200},
		{"another tenant", tokens, "/tenants/other", 403},
		{"no tenant", good(set("org", nil)), "/tenants/acme", 401},
		{"a tenant that is no name", good(set("org", 5)), "/tenants/acme", 401},
		{"another issuer", good(set("iss", "https://evil.example.com")), "/tenants/acme", 401},
		{"another audience", good(set("aud", "other")), "/tenants/acme", 401},
		{"no audience", good(func(c map[string]any) { delete(c, "aud") }), "/tenants/acme", 401},
		{"no subject", good(func(c map[string]any) { delete(c, "sub") }), "/tenants/acme", 401},
		{"expired", good(set("exp", time.Now().Add(-time.Second).Unix())), "/tenants/acme", 401},
		{"no expiry", good(func(c map[string]any) { delete(c, "exp") }), "/tenants/acme", 401},
		{"not valid yet", good(set("nbf", time.Now().Add(2*time.Minute).Unix())), "/tenants/acme", 401},
		{"another key", jwkstest.Sign(t, jose.RS256, stranger, "k1", claims(same), nil), "/tenants/acme", 401},
		{"an unknown key", jwkstest.Sign(t, jose.RS256, stranger, "../../k1", claims(same), nil), "/tenants/acme", 401},
		{"another algorithm", jwkstest.Sign(t, jose.RS512, provider.Key, "k1", claims(same), nil), "/tenants/acme", 401},
		{"the public key as a secret", jwkstest.Sign(t, jose.HS256, public, "k1", claims(same), nil), "/tenants/acme", 401},
		{"unsigned", unsigned, "/tenants/acme", 401},
		{"keys of its own", jwkstest.Sign(t, jose.RS256, stranger, "k1", claims(same), map[jose.HeaderKey]any{"jku": provider.URL + "/evil", "jwk": "x"}), "/tenants/acme", 401},
		{"changed", parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"admin"}`)) + "." + parts[2], "/tenants/acme", 401},
		{"dots", strings.Repeat(".", 2), "/tenants/acme", 401},
		{"encrypted", strings.Repeat("e30.", 4) + "e30", "/tenants/acme", 401},
		{"an algorithm in capitals", base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"NONE"}`)) + "." + parts[1] + ".", "/tenants/acme", 401},
		{"no signature", parts[0] + "." + parts[1] + ".", "/tenants/acme", 401},
		{"a key file", jwkstest.Sign(t, jose.RS256, stranger, "../../../../dev/null", claims(same), nil), "/tenants/acme", 401},
		{"certificates of its own", jwkstest.Sign(t, jose.RS256, stranger, "k1", claims(same), map[jose.HeaderKey]any{"x5u": provider.URL + "/evil"}), "/tenants/acme", 401},
		{"an extension that has to be understood", jwkstest.Sign(t, jose.RS256, provider.Key, "k1", claims(same), map[jose.HeaderKey]any{"crit": []string{"exp"}}), "/tenants/acme", 401},
		{"an expiry in another case", good(set("EXP", time.Now().Add(-time.Hour).Unix())), "/tenants/acme", 401},
		{"expired, and not in another case", good(func(c map[string]any) { c["exp"], c["EXP"] = time.Now().Add(-time.Hour).Unix(), c["exp"] }), "/tenants/acme", 401},
		{"another subject in another case", good(set("SUB", "root")), "/tenants/acme", 401},
		{"another audience in another case", good(set("AUD", "other")), "/tenants/acme", 401},
		{"another issuer in another case", good(set("Iss", "https://evil.example.com")), "/tenants/acme", 401},
		{"a subject named twice", text(`,"sub":"root"`), "/tenants/acme", 401},
		{"valid from a time that no clock has", good(set("nbf", 9.3e18)), "/tenants/acme", 401},
		{"valid from the last second of 64 bits", text(`,"nbf":9223372036854775807`), "/tenants/acme", 401},
		{"valid from 1e300", text(`,"nbf":1e300`), "/tenants/acme", 401},
		{"issued before time", good(set("iat", -1)), "/tenants/acme", 401},
		{"issued at 1e300", good(set("iat", 1e300)), "/tenants/acme", 401},
		{"expires at 1e300", good(set("exp", 1e300)), "/tenants/acme", 401},
		{"expires in words", good(set("exp", "tomorrow")), "/tenants/acme", 401},
		{"a logout token", typed("logout+jwt"), "/tenants/acme", 401},
		{"a security event", typed("secevent+jwt"), "/tenants/acme", 401},
		{"a proof of possession", typed("dpop+jwt"), "/tenants/acme", 401},
		{"an access token", typed("at+jwt"), "/tenants/acme", 200},
		{"an access token, in full", typed("application/at+jwt"), "/tenants/acme", 200},
		{"a key of 1024 bits", jwkstest.Sign(t, jose.RS256, small, "small", claims(same), nil), "/tenants/acme", 401},
		{"a key for encryption", jwkstest.Sign(t, jose.RS256, encrypts, "encrypts", claims(same), nil), "/tenants/acme", 401},
		{"bound to a key", good(set("cnf", map[string]any{"jkt": "x"})), "/tenants/acme", 401},
		{"a subject with a control character", good(set("sub", "gate\x00way")), "/tenants/acme", 401},
		{"an empty tenant", good(set("org", "")), "", 401},
		{"a tenant beside something else", good(set("org", []any{"acme", 5})), "/tenants/acme", 401},
		{"long", "a." + strings.Repeat("b", 9<<10) + ".c", "/tenants/acme", 401},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			response := ask(t, http.DefaultClient, "POST", s.main+test.path+authzen.PathEvaluation, "Bearer "+test.token, aliceReads)
			if response.StatusCode != test.want {
				t.Errorf("status %d, want %d", response.StatusCode, test.want)
			}
		})
	}
	t.Run("a mebibyte of dots", func(t *testing.T) {
		request, err := http.NewRequestWithContext(t.Context(), "POST", s.main+authzen.PathEvaluation, strings.NewReader(aliceReads))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.Repeat(".", 1<<20))
		if response, err := http.DefaultClient.Do(request); err == nil && response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %s", response.Status)
		}
	})
	if reads := provider.Reads.Load(); reads != 1 {
		t.Errorf("the keys were read %d times", reads)
	}
}

// Without keys, no token is valid.
func TestTokensWithoutKeys(t *testing.T) {
	provider := jwkstest.New(t)
	provider.Down.Store(true)
	s := start(t, pdp.Config{Auth: pdp.Auth{JWT: []pdp.Issuer{{Issuer: "https://idp.example.com", Audience: "pdp", JWKSURL: provider.URL}}}})
	token := "Bearer " + jwkstest.Sign(t, jose.RS256, provider.Key, "k1", map[string]any{
		"iss": "https://idp.example.com", "aud": "pdp", "sub": "gateway", "exp": time.Now().Add(time.Hour).Unix(),
	}, nil)
	if got := ask(t, http.DefaultClient, "POST", s.main+authzen.PathEvaluation, token, aliceReads); got.StatusCode != 503 || got.Header.Get("Retry-After") == "" {
		t.Errorf("without keys: status %d", got.StatusCode)
	}
}

// The start logs a changed default of callers' ids, unless the configuration sets it.
func TestChangedDefaultIsLogged(t *testing.T) {
	for claim, want := range map[string]bool{"": true, "sub": false, "iss#sub": false} {
		var said strings.Builder
		s := start(t, pdp.Config{Log: slog.New(slog.NewTextHandler(&said, nil)), Auth: pdp.Auth{JWT: []pdp.Issuer{{
			Issuer: "https://idp.example.com", Audience: "pdp", JWKSURL: "https://127.0.0.1:1", IDClaim: claim, Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeApprove}},
		}}}})
		s.stop(t)
		if got := strings.Contains(said.String(), "level=WARN") && strings.Contains(said.String(), "no longer as ISSUER#SUB"); got != want {
			t.Errorf("id_claim %q: %s", claim, &said)
		}
	}
}

// An issuer that is down or hangs does not delay callers of another issuer, and invalid tokens do
// not cause further requests to it.
func TestIssuersAreIndependent(t *testing.T) {
	down, hanging, good := jwkstest.New(t), jwkstest.New(t), jwkstest.New(t)
	down.Down.Store(true)
	release := hanging.Hang(t)
	issuer := func(name, url string) pdp.Issuer {
		return pdp.Issuer{Issuer: "https://" + name + ".example.com", Audience: "pdp", JWKSURL: url}
	}
	s := start(t, pdp.Config{Auth: pdp.Auth{JWT: []pdp.Issuer{issuer("down", down.URL), issuer("hanging", hanging.URL), issuer("good", good.URL)}}})
	token := func(of *jwkstest.Issuer, name string) string {
		return "Bearer " + jwkstest.Sign(t, jose.RS256, of.Key, "k1", map[string]any{
			"iss": "https://" + name + ".example.com", "aud": "pdp", "sub": "gateway", "exp": time.Now().Add(time.Hour).Unix(),
		}, nil)
	}
	status := func(authorization string) int {
		return ask(t, http.DefaultClient, "POST", s.main+authzen.PathEvaluation, authorization, aliceReads).StatusCode
	}
	ofGood, ofDown, ofHanging := token(good, "good"), token(down, "down"), token(hanging, "hanging")
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 12 {
		request, err := http.NewRequestWithContext(ctx, "POST", s.main+authzen.PathEvaluation, strings.NewReader(aliceReads))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", ofHanging)
		waiting.Go(func() {
			if response, err := http.DefaultClient.Do(request); err == nil {
				t.Errorf("of the hanging issuer: status %s", response.Status)
			}
		})
	}
	for hanging.Reads.Load() == 0 {
		runtime.Gosched()
	}
	for range 12 {
		if got := status(ofGood); got != 200 {
			t.Errorf("of the good issuer: status %d", got)
		}
		if got := status(ofDown); got != 503 {
			t.Errorf("of the issuer that is down: status %d", got)
		}
	}
	cancel()
	release()
	waiting.Wait()
	if d, h, g := down.Reads.Load(), hanging.Reads.Load(), good.Reads.Load(); d > 2 || h != 1 || g != 1 {
		t.Errorf("keys were read %d times where they cannot be, %d times where that hangs and %d times where they can", d, h, g)
	}
}

// An authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newEC(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

func newEC(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue issues a client certificate for a URI.
func (a *authority) issue(t *testing.T, uri string) tls.Certificate {
	t.Helper()
	name, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	return a.issueFor(t, []*url.URL{name}, nil)
}

// issueFor issues a client certificate for URIs and DNS names.
func (a *authority) issueFor(t *testing.T, uris []*url.URL, names []string) tls.Certificate {
	t.Helper()
	key := newEC(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), URIs: uris, DNSNames: names, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestMTLS(t *testing.T) {
	cert, key := writeCertificate(t)
	roots := x509.NewCertPool()
	text, err := os.ReadFile(cert)
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatal(cert, err)
	}
	ours, theirs := newAuthority(t), newAuthority(t)
	s := start(t, pdp.Config{TLSCert: cert, TLSKey: key, Auth: pdp.Auth{MTLS: &pdp.MTLS{CA: ours.file, Callers: []pdp.MTLSCaller{
		{Name: "spiffe://example.com/gateway", Grant: pdp.Grant{Tenants: []string{"acme"}}},
	}}}})
	tests := []struct {
		name   string
		client []tls.Certificate
		path   string
		want   int // 0 means no connection
	}{
		{"no certificate", nil, "/tenants/acme", 401},
		{"a caller", []tls.Certificate{ours.issue(t, "spiffe://example.com/gateway")}, "/tenants/acme", 200},
		{"another tenant", []tls.Certificate{ours.issue(t, "spiffe://example.com/gateway")}, "/tenants/other", 403},
		{"nobody", []tls.Certificate{ours.issue(t, "spiffe://example.com/else")}, "/tenants/acme", 401},
		{"a DNS name that looks like the URI", []tls.Certificate{ours.issueFor(t, nil, []string{"spiffe://example.com/gateway"})}, "/tenants/acme", 401},
		{"a DNS name that looks like the URI, beside a URI", []tls.Certificate{ours.issueFor(t, []*url.URL{{Scheme: "urn", Opaque: "x"}}, []string{"spiffe://example.com/gateway"})}, "/tenants/acme", 401},
		{"of another authority", []tls.Certificate{theirs.issue(t, "spiffe://example.com/gateway")}, "/tenants/acme", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := &tls.Config{RootCAs: roots}
			if test.client != nil { // ignore the authorities that the server names
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &test.client[0], nil }
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
			response, _, err := send(t.Context(), client, "POST", s.main+test.path+authzen.PathEvaluation, aliceReads)
			switch {
			case test.want == 0 && err == nil:
				t.Errorf("answered with status %d", response.StatusCode)
			case test.want != 0 && err != nil:
				t.Error(err)
			case err == nil && response.StatusCode != test.want:
				t.Errorf("status %d, want %d", response.StatusCode, test.want)
			}
		})
	}
}
