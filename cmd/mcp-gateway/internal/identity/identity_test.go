package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
	"github.com/policy-service/policy-service/schemas/authzen"
)

const (
	resource = "https://gateway.example.com/mcp"
	issuer   = "https://auth.example.com"
)

// now is the time of every test.
var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func claims(changes ...func(map[string]any)) map[string]any {
	c := map[string]any{"iss": issuer, "aud": resource, "sub": "alice", "client_id": "agent-app", "org": "acme", "exp": now.Add(time.Hour).Unix()}
	for _, change := range changes {
		change(c)
	}
	return c
}

func set(name string, value any) func(map[string]any) {
	return func(c map[string]any) { c[name] = value }
}

func without(name string) func(map[string]any) {
	return func(c map[string]any) { delete(c, name) }
}

func newVerifier(t *testing.T, c identity.Config) *identity.Verifier {
	t.Helper()
	if c.Now == nil {
		c.Now = func() time.Time { return now }
	}
	v, err := identity.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func request(t *testing.T, authorization ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("{}"))
	for _, value := range authorization {
		r.Header.Add("Authorization", value)
	}
	return r
}

// TestTokens sends what RFC 8725 warns of, tokens that are for others, and
// those that are bound to a key. CZ-31, CZ-80.
func TestTokens(t *testing.T) {
	p := jwkstest.New(t)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	encrypts := jwkstest.NewKey(t)
	p.Others = []jose.JSONWebKey{{Key: small.Public(), KeyID: "small", Use: "sig"}, {Key: encrypts.Public(), KeyID: "encrypts", Use: "enc"}}
	v := newVerifier(t, identity.Config{Resource: resource, Issuers: []identity.Issuer{
		{Issuer: issuer, JWKSURL: p.URL, TenantClaim: "org", Tenants: []string{"acme"}},
	}})
	good := func(changes ...func(map[string]any)) string {
		return jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims(changes...), nil)
	}
	typed := func(typ string) string {
		return jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims(), map[jose.HeaderKey]any{"typ": typ})
	}
	text := func(change string) string {
		body, err := json.Marshal(claims())
		if err != nil {
			t.Fatal(err)
		}
		return jwkstest.Sign(t, jose.RS256, p.Key, "k1", []byte(strings.TrimSuffix(string(body), "}")+change+"}"), nil)
	}
	public, err := x509.MarshalPKIXPublicKey(p.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	stranger, token := jwkstest.NewKey(t), good()
	parts := strings.Split(token, ".")
	encode := base64.RawURLEncoding.EncodeToString

	tests := []struct {
		name, token string
		ok          bool
	}{
		{"a token", token, true},
		{"an audience of several", good(set("aud", []string{"https://other.example.com", resource})), true},
		{"an access token", typed("at+jwt"), true},
		{"a tenant in a list", good(set("org", []string{"acme"})), true},
		{"not valid for half a minute yet", good(set("nbf", now.Add(30*time.Second).Unix())), true},
		{"another audience", good(set("aud", "https://other.example.com")), false},
		{"the server behind as the audience", good(set("aud", "https://gateway.example.com")), false},
		{"no audience", good(without("aud")), false},
		{"another issuer", good(set("iss", "https://evil.example.com")), false},
		{"another issuer by a letter", good(set("iss", issuer+"/")), false},
		{"no issuer", good(without("iss")), false},
		{"no subject", good(without("sub")), false},
		{"a subject that is no string", good(set("sub", 7)), false},
		{"expired", good(set("exp", now.Add(-time.Second).Unix())), false},
		{"no expiry", good(without("exp")), false},
		{"not valid yet", good(set("nbf", now.Add(2*time.Minute).Unix())), false},
		{"a beginning that is no time", text(`,"nbf":{}`), false},
		{"another tenant", good(set("org", "globex")), false},
		{"no tenant", good(without("org")), false},
		{"two tenants", good(set("org", []string{"acme", "globex"})), false},
		{"an ID token for a back channel", typed("logout+jwt"), false},
		{"a proof", typed("dpop+jwt"), false},
		{"another key", jwkstest.Sign(t, jose.RS256, stranger, "k1", claims(), nil), false},
		{"an unknown key", jwkstest.Sign(t, jose.RS256, stranger, "../../k1", claims(), nil), false},
		{"keys of its own", jwkstest.Sign(t, jose.RS256, stranger, "k1", claims(), map[jose.HeaderKey]any{"jku": p.URL, "jwk": "x"}), false},
		{"another algorithm", jwkstest.Sign(t, jose.RS512, p.Key, "k1", claims(), nil), false},
		{"the public key as a secret", jwkstest.Sign(t, jose.HS256, public, "k1", claims(), nil), false},
		{"unsigned", encode([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".", false},
		{"changed", parts[0] + "." + encode([]byte(`{"iss":"`+issuer+`","sub":"admin"}`)) + "." + parts[2], false},
		{"a claim named twice", text(`,"sub":"admin"`), false},
		{"a claim named twice by an escape", text(`,"s\u0075b":"admin"`), false},
		{"a subject in another case", text(`,"Sub":"admin"`), false},
		{"a beginning beyond all clocks", text(`,"nbf":1e300`), false},
		{"an issue beyond all clocks", text(`,"iat":9223372036854775807`), false},
		{"a small key", jwkstest.Sign(t, jose.RS256, small, "small", claims(), nil), false},
		{"a key for encryption", jwkstest.Sign(t, jose.RS256, encrypts, "encrypts", claims(), nil), false},
		{"issuers in two cases", text(`,"Iss":"https://evil.example.com"`), false},
		{"bound to a key", good(set("cnf", map[string]any{"jkt": "x"})), false},
		{"bound to a certificate", good(set("cnf", map[string]any{"x5t#S256": "x"})), false},
		{"a confirmation of no kind", good(set("cnf", map[string]any{})), false},
		{"no JWT", "token", false},
		{"dots", "..", false},
		{"long", "a." + strings.Repeat("b", 9<<10) + ".c", false},
		{"empty", "", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			caller, err := v.Verify(request(t, "Bearer "+test.token))
			if test.ok {
				want := authzen.Subject{Type: "identity", ID: "alice"}
				if err != nil || caller.Tenant != "acme" || !cmp.Equal(want, caller.Subject) {
					t.Errorf("%+v, %v", caller, err)
				}
				return
			}
			if !errors.Is(err, identity.ErrInvalid) || caller != nil {
				t.Errorf("%+v, %v", caller, err)
			}
		})
	}
	if reads := p.Reads.Load(); reads != 1 {
		t.Errorf("the keys were read %d times", reads)
	}
}

// Claims keep their numbers as they are.
func TestClaims(t *testing.T) {
	p := jwkstest.New(t)
	v := newVerifier(t, identity.Config{Resource: resource, Issuers: []identity.Issuer{{Issuer: issuer, JWKSURL: p.URL, SubjectType: "user", SubjectClaim: "email"}}})
	token := jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims(set("n", jsontext.Value("9007199254740993")), set("email", "alice@example.com"), set("email_verified", true), without("exp"), set("exp", 1893456000)), nil)
	caller, err := v.Verify(request(t, "bearer "+token))
	if err != nil {
		t.Fatal(err)
	}
	want := &identity.Caller{Subject: authzen.Subject{Type: "user", ID: "alice@example.com"}, Claims: map[string]any{
		"iss": issuer, "aud": resource, "sub": "alice", "client_id": "agent-app", "org": "acme", "email": "alice@example.com", "email_verified": true,
		"n": jsontext.Value("9007199254740993"), "exp": jsontext.Value("1893456000"),
	}, Token: token}
	if diff := cmp.Diff(want, caller); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, verified := range []any{false, "true", nil} {
		token := jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims(set("email", "alice@example.com"), set("email_verified", verified)), nil)
		if caller, err := v.Verify(request(t, "Bearer "+token)); !errors.Is(err, identity.ErrInvalid) {
			t.Errorf("an address that is verified %v: %+v, %v", verified, caller, err)
		}
	}
}

// Nothing that a client says beside its credential is identity, and no credential
// stands in for a bad one.
func TestSpoofing(t *testing.T) {
	p := jwkstest.New(t)
	v := newVerifier(t, identity.Config{
		Resource: resource,
		Issuers:  []identity.Issuer{{Issuer: issuer, JWKSURL: p.URL}},
		MTLS:     &identity.MTLS{Callers: []identity.CertificateCaller{{Name: "spiffe://example.com/agent"}}},
		Process:  &identity.Process{ID: "root"},
	})
	token := "Bearer " + jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims(), nil)
	spoofed := func(authorization ...string) *http.Request {
		r := request(t, authorization...)
		for _, name := range []string{
			"X-User", "X-User-Id", "X-Forwarded-User", "X-Forwarded-Email", "X-Auth-Request-User", "X-Remote-User", "Remote-User", "X-Mcp-User", "Mcp-Name",
			"X-Client-Cert", "X-Forwarded-Client-Cert", "X-SSL-Client-S-DN", "Forwarded", "Cookie", "Proxy-Authorization", "Mcp-Session-Id",
		} {
			r.Header.Set(name, "root")
		}
		return r
	}
	if caller, err := v.Verify(spoofed(token)); err != nil || caller.Subject.ID != "alice" || caller.Tenant != "" {
		t.Errorf("%+v, %v", caller, err)
	}
	if caller, err := v.Verify(spoofed()); !errors.Is(err, identity.ErrNone) {
		t.Errorf("%+v, %v", caller, err)
	}
	certified := certify(t, spoofed("Bearer x.y.z"), "spiffe://example.com/agent", true)
	if caller, err := v.Verify(certified); !errors.Is(err, identity.ErrInvalid) {
		t.Errorf("a bad token beside a certificate: %+v, %v", caller, err)
	}
	for name, headers := range map[string][]string{
		"two tokens": {token, token}, "another scheme": {"DPoP " + token}, "a password": {"Basic YWxpY2U6eA=="}, "a list": {token + ", Bearer x"}, "an empty header": {""},
	} {
		if caller, err := v.Verify(request(t, headers...)); !errors.Is(err, identity.ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, caller, err)
		}
	}
}

func newEC(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// certify makes a request one that came with a certificate.
func certify(t *testing.T, r *http.Request, uri string, verified bool) *http.Request {
	t.Helper()
	key := newEC(t)
	name, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "root"}, URIs: []*url.URL{name}, DNSNames: []string{"agent.example.com"}, NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	if verified {
		r.TLS.VerifiedChains = [][]*x509.Certificate{{leaf}}
	}
	return r
}

func TestCertificates(t *testing.T) {
	v := newVerifier(t, identity.Config{Resource: resource, MTLS: &identity.MTLS{Callers: []identity.CertificateCaller{
		{Name: "spiffe://example.com/agent", Type: "agent", Tenant: "acme"}, {Name: "agent.example.com"},
	}}})
	for _, test := range []struct {
		name string
		r    *http.Request
		want *identity.Caller
		err  error
	}{
		{"a caller", certify(t, request(t), "spiffe://example.com/agent", true), &identity.Caller{
			Subject: authzen.Subject{Type: "agent", ID: "spiffe://example.com/agent"}, Tenant: "acme",
			Claims: map[string]any{"sub": "spiffe://example.com/agent", "aud": resource},
		}, nil},
		{"by another name", certify(t, request(t), "spiffe://example.com/else", true), &identity.Caller{
			Subject: authzen.Subject{Type: "identity", ID: "agent.example.com"}, Claims: map[string]any{"sub": "agent.example.com", "aud": resource},
		}, nil},
		{"not verified", certify(t, request(t), "spiffe://example.com/agent", false), nil, identity.ErrInvalid},
		{"none", request(t), nil, identity.ErrNone},
	} {
		got, err := v.Verify(test.r)
		if diff := cmp.Diff(test.want, got); diff != "" || !errors.Is(err, test.err) {
			t.Errorf("%s: %v (-want +got):\n%s", test.name, err, diff)
		}
	}
	disguised := certify(t, request(t), "urn:example:else", true)
	disguised.TLS.PeerCertificates[0].DNSNames = []string{"spiffe://example.com/agent"}
	if got, err := v.Verify(disguised); !errors.Is(err, identity.ErrInvalid) {
		t.Errorf("a DNS name that looks like a URI: %+v, %v", got, err)
	}
	only := newVerifier(t, identity.Config{MTLS: &identity.MTLS{Callers: []identity.CertificateCaller{{Name: "root"}}}})
	if got, err := only.Verify(certify(t, request(t), "spiffe://example.com/agent", true)); !errors.Is(err, identity.ErrInvalid) {
		t.Errorf("a common name is no name: %+v, %v", got, err)
	}
}

// A token that is bound to a certificate is good with that one (RFC 8705 3).
func TestBoundTokens(t *testing.T) {
	p := jwkstest.New(t)
	v := newVerifier(t, identity.Config{Resource: resource, Issuers: []identity.Issuer{{Issuer: issuer, JWKSURL: p.URL}}})
	r := certify(t, request(t), "spiffe://example.com/agent", false)
	digest := sha256.Sum256(r.TLS.PeerCertificates[0].Raw)
	bound := set("cnf", map[string]any{"x5t#S256": base64.RawURLEncoding.EncodeToString(digest[:])})
	token := "Bearer " + jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims(bound), nil)
	r.Header.Set("Authorization", token)
	if caller, err := v.Verify(r); err != nil || caller.Subject.ID != "alice" {
		t.Errorf("%+v, %v", caller, err)
	}
	if caller, err := v.Verify(request(t, token)); !errors.Is(err, identity.ErrInvalid) {
		t.Errorf("without the certificate: %+v, %v", caller, err)
	}
	if caller, err := v.Verify(certify(t, request(t, token), "spiffe://example.com/agent", true)); !errors.Is(err, identity.ErrInvalid) {
		t.Errorf("with another certificate: %+v, %v", caller, err)
	}
}

// Who cannot be told from anybody else is not let in, and is not blamed.
func TestKeysThatCannotBeRead(t *testing.T) {
	p := jwkstest.New(t)
	p.Down.Store(true)
	clock := now
	v := newVerifier(t, identity.Config{Resource: resource, Issuers: []identity.Issuer{{Issuer: issuer, JWKSURL: p.URL}}, Now: func() time.Time { return clock }})
	token := "Bearer " + jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims(), nil)
	_, err := v.Verify(request(t, token))
	if !errors.Is(err, identity.ErrUnavailable) {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	v.Refuse(answer, err)
	if answer.Code != 503 || answer.Header().Get("Retry-After") == "" || answer.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("%d %v", answer.Code, answer.Header())
	}
	p.Down.Store(false)
	if _, err := v.Verify(request(t, token)); !errors.Is(err, identity.ErrUnavailable) {
		t.Errorf("right after a failure: %v", err)
	}
	clock = clock.Add(time.Second)
	if _, err := v.Verify(request(t, token)); err != nil {
		t.Error(err)
	}
}

func TestEnvironment(t *testing.T) {
	p := jwkstest.New(t)
	config := identity.Config{Resource: resource, Issuers: []identity.Issuer{{Issuer: issuer, JWKSURL: p.URL}}}
	environment := func(token string) func(string) string {
		return func(name string) string { return map[string]string{identity.TokenVariable: token}[name] }
	}
	token := jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims(), nil)
	over := claims()
	over["exp"] = now.Add(-time.Hour).Unix()
	for _, test := range []struct {
		name, token string
		process     *identity.Process
		want        string
		err         error
	}{
		{"a token", token, nil, "identity::alice", nil},
		{"a token goes before", token, &identity.Process{ID: "carol"}, "identity::alice", nil},
		{"a bad token", "x.y.z", &identity.Process{ID: "carol"}, "", identity.ErrInvalid},
		{"a token that has expired", jwkstest.Sign(t, jose.RS256, p.Key, "k1", over, nil), &identity.Process{ID: "carol"}, "", identity.ErrInvalid},
		{"the person here", "", &identity.Process{Type: "user", ID: "carol", Tenant: "acme"}, "user::carol", nil},
		{"nobody", "", nil, "", identity.ErrNone},
	} {
		config.Process = test.process
		caller, err := newVerifier(t, config).Environment(t.Context(), environment(test.token))
		got := ""
		if caller != nil {
			got = caller.Subject.Type + "::" + caller.Subject.ID
		}
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
	}
}

// RFC 9728: where a client that is refused learns whom to ask for a token. The
// host of the request changes nothing.
func TestMetadata(t *testing.T) {
	p := jwkstest.New(t)
	v := newVerifier(t, identity.Config{Resource: resource, Scopes: []string{"mcp"}, Issuers: []identity.Issuer{{Issuer: issuer, JWKSURL: p.URL}}})
	if got := v.MetadataPath(); got != "/.well-known/oauth-protected-resource/mcp" {
		t.Errorf("path %q", got)
	}
	r := httptest.NewRequest(http.MethodGet, v.MetadataPath(), nil)
	r.Host = "evil.example.com"
	r.Header.Set("X-Forwarded-Host", "evil.example.com")
	answer := httptest.NewRecorder()
	v.ServeMetadata(answer, r)
	const want = `{"resource":"https://gateway.example.com/mcp","authorization_servers":["https://auth.example.com"],"bearer_methods_supported":["header"],"scopes_supported":["mcp"]}`
	if diff := cmp.Diff(want, answer.Body.String()); diff != "" || answer.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%v (-want +got):\n%s", answer.Header(), diff)
	}
	answer = httptest.NewRecorder()
	v.ServeMetadata(answer, httptest.NewRequest(http.MethodPost, v.MetadataPath(), nil))
	if answer.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", answer.Code)
	}
	const where = `Bearer resource_metadata="https://gateway.example.com/.well-known/oauth-protected-resource/mcp"`
	for _, test := range []struct {
		authorization []string
		want          string
	}{{nil, where}, {[]string{"Bearer " + jwkstest.Sign(t, jose.RS256, p.Key, "k1", claims(set("aud", "https://other.example.com")), nil)}, where + `, error="invalid_token"`}} {
		answer := httptest.NewRecorder()
		_, err := v.Verify(request(t, test.authorization...))
		v.Refuse(answer, err)
		if got := answer.Header().Get("WWW-Authenticate"); answer.Code != 401 || got != test.want || answer.Body.Len() > 0 {
			t.Errorf("%d %s %q", answer.Code, got, answer.Body)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := identity.Issuer{Issuer: issuer, JWKSURL: "https://auth.example.com/keys"}
	for _, test := range []struct {
		name   string
		config identity.Config
		want   string
	}{
		{"nothing", identity.Config{}, "no caller can authenticate"},
		{"no resource", identity.Config{Issuers: []identity.Issuer{good}}, "issuers.0.audience: is required"},
		{"a resource in plain text", identity.Config{Resource: "http://gateway.example.com", Issuers: []identity.Issuer{good}}, "resource: must be an https URL, not"},
		{"a resource with a query", identity.Config{Resource: resource + "?x", Issuers: []identity.Issuer{good}}, "resource: must be a URL without query"},
		{"keys in plain text", identity.Config{Resource: resource, Issuers: []identity.Issuer{{Issuer: issuer, JWKSURL: "http://auth.example.com/keys"}}}, "issuers.0.jwks_url: must be an https URL"},
		{"a shared secret", identity.Config{Resource: resource, Issuers: []identity.Issuer{{Issuer: issuer, JWKSURL: good.JWKSURL, Algorithms: []string{"HS256"}}}}, `algorithm "HS256"`},
		{"an empty list of tenants", identity.Config{Resource: resource, Issuers: []identity.Issuer{{Issuer: issuer, JWKSURL: good.JWKSURL, Tenants: []string{}}}}, "issuers.0.tenants: is empty"},
		{"an issuer twice", identity.Config{Resource: resource, Issuers: []identity.Issuer{good, good}}, "the issuer is there twice"},
		{"no such tenant", identity.Config{Process: &identity.Process{ID: "a", Tenant: "../x"}}, `"../x" is not a valid name of a tenant`},
		{"a process of nobody", identity.Config{Process: &identity.Process{}}, "process.id: is required"},
		{"certificates of nobody", identity.Config{MTLS: &identity.MTLS{}}, "mtls.callers: is required"},
		{"a certificate without a name", identity.Config{MTLS: &identity.MTLS{Callers: []identity.CertificateCaller{{}}}}, "mtls.callers.0.name: is required"},
	} {
		if _, err := identity.New(test.config); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// Nobody is let in by a token that the issuer has not signed, whatever it is.
func FuzzVerify(f *testing.F) {
	v, err := identity.New(identity.Config{Resource: resource, Issuers: []identity.Issuer{{Issuer: issuer, JWKSURL: "https://127.0.0.1:1/keys"}}})
	if err != nil {
		f.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	f.Add("Bearer "+encode([]byte(`{"alg":"RS256","typ":"JWT"}`))+"."+encode([]byte(`{"iss":"`+issuer+`"}`))+"."+encode([]byte("x")), "")
	f.Add("Bearer a.b.c", "Bearer a.b.c")
	f.Add("bearer\t..", "Basic x")
	f.Fuzz(func(t *testing.T, first, second string) {
		r := &http.Request{Header: http.Header{"Authorization": {first}}}
		if second != "" {
			r.Header["Authorization"] = append(r.Header["Authorization"], second)
		}
		if caller, err := v.Verify(r.WithContext(t.Context())); err == nil || caller != nil {
			t.Errorf("%+v, %v", caller, err)
		}
	})
}
