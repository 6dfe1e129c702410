package callers_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

const (
	idp   = "https://idp.example.com"
	other = "https://other.example.com"
)

var (
	approves = callers.Grant{Scopes: []callers.Scope{callers.ScopeApprove}}
	audits   = callers.Grant{Scopes: []callers.Scope{callers.ScopeAudit}}
)

// now is the time in every test.
var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func verifier(t testing.TB, auth callers.Auth) *callers.Verifier {
	t.Helper()
	v, err := callers.New(auth, http.DefaultTransport, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func request(credential string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Authorization", "Bearer "+credential)
	return r
}

// A caller has the id of its issuer's id_claim, and all names of the person.
func TestCallerNames(t *testing.T) {
	p := jwkstest.New(t)
	token := func(iss string, more map[string]any) string {
		claims := map[string]any{"iss": iss, "aud": "pdp", "sub": "8f2c", "exp": now.Add(time.Hour).Unix()}
		for name, value := range more {
			claims[name] = value
		}
		return jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims, nil)
	}
	issuer := func(name, id string, grant callers.Grant) callers.Issuer {
		return callers.Issuer{Issuer: name, Audience: "pdp", JWKSURL: p.URL, IDClaim: id, Grant: grant}
	}
	one := func(id string, grant callers.Grant) callers.Auth {
		return callers.Auth{JWT: []callers.Issuer{issuer(idp, id, grant)}}
	}
	aliased := one("", approves)
	aliased.Aliases = [][]string{{"carol", "8f2c", "carol@example.com"}, {"dave", "d"}}
	aliased.JWT[0].AliasClaims = []string{"preferred_username", "nickname"}
	addressed := one("", approves)
	addressed.JWT[0].AliasClaims = []string{"email"}
	verified := map[string]any{"email": "carol@example.com", "email_verified": true}
	full := idp + "#8f2c"
	for _, test := range []struct {
		name     string
		auth     callers.Auth
		iss      string
		claims   map[string]any
		id       string // "" for none
		names    []string
		warnings int
	}{
		{"an issuer of callers alone", one("", audits), idp, nil, full, []string{"8f2c", full}, 0},
		{"the only issuer of approvers", one("", approves), idp, nil, "8f2c", []string{"8f2c", full}, 1},
		{"beside one of callers", callers.Auth{JWT: []callers.Issuer{issuer(other, "", audits), issuer(idp, "", approves)}}, idp, nil, "8f2c", []string{"8f2c", full}, 1},
		{"who is one of callers", callers.Auth{JWT: []callers.Issuer{issuer(other, "", approves), issuer(idp, "", audits)}}, idp, nil, full, []string{"8f2c", full}, 1},
		{"one of two issuers of approvers", callers.Auth{JWT: []callers.Issuer{issuer(other, "", approves), issuer(idp, "", approves)}}, idp, nil, full, []string{"8f2c", full}, 2},
		{"sub, as configured", one("sub", approves), idp, nil, "8f2c", []string{"8f2c", full}, 0},
		{"both, as configured", one(callers.FullID, approves), idp, nil, full, []string{"8f2c", full}, 0},
		{"an address", one("email", approves), idp, verified, "carol@example.com", []string{"8f2c", "carol@example.com", full}, 0},
		{"an address that nobody has verified", one("email", approves), idp, map[string]any{"email": "carol@example.com"}, "", nil, 0},
		{"an address that is not verified", one("email", approves), idp, map[string]any{"email": "carol@example.com", "email_verified": "true"}, "", nil, 0},
		{"no such claim", one("upn", approves), idp, nil, "", nil, 0},
		{"a claim that is no name", one("upn", approves), idp, map[string]any{"upn": []string{"carol"}}, "", nil, 0},
		{"an id of another issuer", callers.Auth{JWT: []callers.Issuer{issuer(other, "", audits), issuer(idp, "sub", approves)}}, idp, map[string]any{"sub": other + "#root"}, "", nil, 0},
		{"who acts for the person", one("sub", approves), idp, map[string]any{"act": map[string]any{"sub": "bot", "act": map[string]any{"sub": "root", "iss": other}}},
			"8f2c", []string{"8f2c", "bot", full, idp + "#bot", other + "#root", "root"}, 0},
		{"who acts by an id, and the client", one("sub", approves), idp, map[string]any{"act": map[string]any{"id": "bot", "issuer": other}, "azp": "app"},
			"8f2c", []string{"8f2c", "bot", full, other + "#bot"}, 0},
		{"an alias that is an address that nobody has verified", addressed, idp, map[string]any{"email": "carol@example.com"}, "", nil, 1},
		{"an alias that is an address", addressed, idp, verified, "8f2c", []string{"8f2c", "carol@example.com", full}, 1},
		{"who acts in words", one("sub", approves), idp, map[string]any{"act": "bot"}, "", nil, 0},
		{"aliases", aliased, idp, map[string]any{"preferred_username": "d"}, "8f2c", []string{"8f2c", "carol", "carol@example.com", "d", "dave", full}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := verifier(t, test.auth)
			if got := v.Warnings(); len(got) != test.warnings {
				t.Errorf("warnings: %q", got)
			}
			who, err := v.Verify(request(token(test.iss, test.claims)))
			if test.id == "" {
				if !errors.Is(err, callers.ErrUnauthenticated) {
					t.Errorf("%+v, %v", who, err)
				}
				return
			}
			if diff := cmp.Diff(test.names, who.Names); err != nil || who.ID != test.id || diff != "" {
				t.Errorf("%q, %v, names (-want +got):\n%s", who.ID, err, diff)
			}
		})
	}
}

// A warning names a changed default, and how to accept or to avoid it.
func TestChangedDefaultWarns(t *testing.T) {
	v := verifier(t, callers.Auth{JWT: []callers.Issuer{{Issuer: idp, Audience: "pdp", JWKSURL: "https://127.0.0.1:1", Grant: approves}}})
	got := strings.Join(v.Warnings(), "\n")
	for _, want := range []string{idp, "no longer as ISSUER#SUB", "id_claim: sub", `id_claim: "iss#sub"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

// An issuer may have different audiences for operators and PEPs.
func TestAudiences(t *testing.T) {
	p := jwkstest.New(t)
	issuer := func(audience string, grant callers.Grant) callers.Issuer {
		return callers.Issuer{Issuer: idp, Audience: audience, JWKSURL: p.URL, Grant: grant}
	}
	v := verifier(t, callers.Auth{JWT: []callers.Issuer{issuer("operate", audits), issuer("ask", callers.Grant{})}})
	for audience, want := range map[string]callers.Scope{"operate": callers.ScopeAudit, "ask": callers.ScopeEvaluate} {
		who, err := v.Verify(request(jwkstest.Sign(t, jose.RS256, p.Key, "k1", map[string]any{"iss": idp, "aud": audience, "sub": "x", "exp": now.Add(time.Hour).Unix()}, nil)))
		if err != nil || !who.May(want) || who.May(callers.ScopeApprove) {
			t.Errorf("%s: %+v, %v", audience, who, err)
		}
	}
}

// Keys that could not be fetched are fetched again after the pause.
func TestKeysAreFetchedAgain(t *testing.T) {
	p := jwkstest.New(t)
	p.Down.Store(true)
	clock := now
	v, err := callers.New(callers.Auth{JWT: []callers.Issuer{{Issuer: idp, Audience: "pdp", JWKSURL: p.URL}}}, http.DefaultTransport, func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	token := jwkstest.Sign(t, jose.RS256, p.Key, "k1", map[string]any{"iss": idp, "aud": "pdp", "sub": "x", "exp": now.Add(time.Hour).Unix()}, nil)
	if _, err := v.Verify(request(token)); !errors.Is(err, jwks.ErrUnavailable) {
		t.Errorf("without keys: %v", err)
	}
	p.Down.Store(false)
	clock = clock.Add(time.Second)
	if _, err := v.Verify(request(token)); err != nil {
		t.Errorf("with keys again: %v", err)
	}
}

// certified returns a request with a certificate for these names.
func certified(r *http.Request, uri string, names ...string) *http.Request {
	leaf := &x509.Certificate{DNSNames: names}
	if uri != "" {
		name, err := url.Parse(uri)
		if err != nil {
			panic(err)
		}
		leaf.URIs = append(leaf.URIs, name)
	}
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
	return r
}

// A valid credential does not make up for an invalid one.
func TestInvalidCredentialIsNotReplaced(t *testing.T) {
	key := callers.APIKey{ID: "key", SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("k")))}
	both := callers.Auth{APIKeys: []callers.APIKey{key}, MTLS: &callers.MTLS{CA: "ca.pem"}}
	bare := httptest.NewRequest(http.MethodPost, "/", nil)
	twice := request("k")
	twice.Header.Add("Authorization", "Bearer k")
	for _, test := range []struct {
		name string
		auth callers.Auth
		r    *http.Request
		want string
	}{
		{"a key", both, request("k"), "key"},
		{"a key beside a certificate", both, certified(request("k"), "spiffe://example.com/gateway"), "key"},
		{"a certificate", both, certified(bare, "spiffe://example.com/gateway"), "spiffe://example.com/gateway"},
		{"a withdrawn key beside a certificate", both, certified(request("old"), "spiffe://example.com/gateway"), ""},
		{"a token of nobody beside a certificate", both, certified(request("x.y.z"), "spiffe://example.com/gateway"), ""},
		{"a token for somebody else, where certificates alone are known", callers.Auth{MTLS: both.MTLS}, certified(request("x.y.z"), "spiffe://example.com/gateway"), "spiffe://example.com/gateway"},
		{"two headers", both, twice, ""},
	} {
		who, err := verifier(t, test.auth).Verify(test.r)
		if who.ID != test.want || errors.Is(err, callers.ErrUnauthenticated) != (test.want == "") {
			t.Errorf("%s: %q, %v", test.name, who.ID, err)
		}
	}
}

// A DNS name is never taken for a URI.
func TestCertificateNames(t *testing.T) {
	for _, test := range []struct {
		uri   string
		names []string
		want  []string
	}{
		{"spiffe://example.com/gateway", []string{"gateway.example.com"}, []string{"spiffe://example.com/gateway", "gateway.example.com"}},
		{"urn:example:gateway", nil, []string{"urn:example:gateway"}},
		{"", []string{"spiffe://example.com/gateway", "urn:x", "gateway"}, []string{"gateway"}},
		{"gateway.example.com", nil, nil}, // relative, unlike any URI in a certificate
	} {
		got := callers.CertificateNames(certified(request("x"), test.uri, test.names...).TLS.PeerCertificates[0])
		if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s %q (-want +got):\n%s", test.uri, test.names, diff)
		}
	}
}

// Checking a key allocates nothing for its names.
func TestKeyAllocations(t *testing.T) {
	v := verifier(t, callers.Auth{
		APIKeys: []callers.APIKey{{ID: "gateway", SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("k")))}},
		Aliases: [][]string{{"gateway", "the gateway"}},
	})
	r := request("k")
	who, err := v.Verify(r)
	if diff := cmp.Diff([]string{"gateway", "the gateway"}, who.Names); err != nil || diff != "" {
		t.Errorf("%v, names (-want +got):\n%s", err, diff)
	}
	if got := testing.AllocsPerRun(100, func() { _, _ = v.Verify(r) }); got > 1 {
		t.Errorf("%v allocations", got)
	}
}
