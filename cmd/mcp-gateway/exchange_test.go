package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// An exchanger is an issuer of tokens with a token endpoint, which exchanges them for
// tokens with the audience crm.
type exchanger struct {
	*testing.T
	keys   *jwkstest.Issuer
	url    string // of the token endpoint
	issued atomic.Int64
	down   atomic.Bool
	// generous: tokens have all scopes, whichever are requested.
	generous atomic.Bool
}

// A tokenHolder is who a token is of.
type tokenHolder struct {
	Subject string            `json:"sub"`
	Tenant  string            `json:"org"`
	Issuer  string            `json:"iss"`
	Aud     string            `json:"aud"`
	Actor   map[string]string `json:"act,omitempty"`
	Serial  int64             `json:"serial"`
	Scope   string            `json:"scope,omitempty"`
	Expires int64             `json:"exp"`
}

const gatewayResource = "https://gateway.example.com/crm/mcp"

func newExchanger(t *testing.T) *exchanger {
	e := &exchanger{T: t, keys: jwkstest.New(t)}
	s := httptest.NewServer(http.HandlerFunc(e.exchange))
	t.Cleanup(s.Close)
	e.url = s.URL
	return e
}

// sign makes a token.
func (e *exchanger) sign(p tokenHolder) string {
	p.Issuer, p.Expires = "https://auth.example.com", time.Now().Add(time.Hour).Unix()
	return jwkstest.Sign(e, jose.RS256, e.keys.Key, jwkstest.KeyID, p, map[jose.HeaderKey]any{"typ": "at+jwt"})
}

// read verifies a token.
func (e *exchanger) read(token, audience string) (p tokenHolder, err error) {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return p, err
	}
	if err := parsed.Claims(e.keys.Key.Public(), &p); err != nil {
		return p, err
	}
	if p.Aud != audience {
		err = fmt.Errorf("the audience is %s, not %s", p.Aud, audience)
	}
	return p, err
}

func (e *exchanger) exchange(w http.ResponseWriter, r *http.Request) {
	if e.down.Load() {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	id, secret, _ := r.BasicAuth()
	p, err := e.read(r.PostFormValue("subject_token"), gatewayResource)
	if id != "gateway" || secret != "sesame" || err != nil || r.PostFormValue("audience") != "crm" {
		e.Errorf("client %q, %q, audience %q: %v", id, secret, r.PostFormValue("audience"), err)
		http.Error(w, `{"error":"invalid_request"}`, http.StatusBadRequest)
		return
	}
	p.Scope = r.PostFormValue("scope")
	if e.generous.Load() {
		p.Scope = "read write"
	}
	p.Aud, p.Actor, p.Serial = "crm", map[string]string{"sub": id}, e.issued.Add(1)
	w.Header().Set("Content-Type", "application/json")
	if err := json.MarshalWrite(w, map[string]any{
		"access_token": e.sign(p), "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer", "expires_in": 3600, "scope": p.Scope,
	}); err != nil {
		e.Error(err)
	}
}

// A crm is a server that tells callers who they are for it.
type crm struct {
	url     string
	revoked atomic.Int64 // tokens up to this serial are refused
	calls   atomic.Int64
}

func newCRM(t *testing.T, e *exchanger) *crm {
	c := new(crm)
	server := mcp.NewServer(&mcp.Implementation{Name: "crm", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "scopes"}, func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		p := r.Extra.TokenInfo.Extra["holder"].(tokenHolder)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: p.Subject + ": " + p.Scope}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "whoami"}, func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		c.calls.Add(1)
		p := r.Extra.TokenInfo.Extra["holder"].(tokenHolder)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("%s of %s by %s, token %d", p.Subject, p.Tenant, p.Actor["sub"], p.Serial)}}}, nil, nil
	})
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		p, err := e.read(token, "crm")
		if err == nil && p.Serial <= c.revoked.Load() {
			err = errors.New("the token is revoked")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", auth.ErrInvalidToken, err)
		}
		return &auth.TokenInfo{Expiration: time.Unix(p.Expires, 0), Extra: map[string]any{"holder": p}, UserID: p.Tenant + "/" + p.Subject}, nil
	}
	handler := auth.RequireBearerToken(verify, nil)(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// exchangeGateway serves a configuration with an exchange at the server crm.
func exchangeGateway(t *testing.T, e *exchanger, c *crm, more string) string {
	t.Helper()
	return exchangeGatewayOf(t, e, c, more, "", denies(t, "nothing is denied"))
}

// exchangeGatewayOf serves it with more settings of the exchange, at a PDP.
func exchangeGatewayOf(t *testing.T, e *exchanger, c *crm, more, settings, pdp string) string {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return gatewayOf(t, `
pdp: {url: "`+pdp+`", timeout: 10s}
identity:
  resource: https://gateway.example.com
  issuers: [{issuer: "https://auth.example.com", jwks_url: "`+e.keys.URL+`", tenant_claim: org}]
`+more+`
servers:
  - name: crm
    url: "`+c.url+`"
    credential: {type: exchange, token_url: "`+e.url+`", client_id: gateway, client_secret_file: `+secret+`, audience: crm`+settings+`}
`) + "/crm/mcp"
}

// A bearerToken is sent with each request.
type bearerToken string

func (b bearerToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b != "" {
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}

func whoami(t *testing.T, s *mcp.ClientSession) string {
	t.Helper()
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami"})
	if err != nil {
		return err.Error()
	}
	return result.Content[0].(*mcp.TextContent).Text
}

// httpClientOf returns a client with a token, "" for none.
func httpClientOf(token string) *http.Client { return &http.Client{Transport: bearerToken(token)} }

func connectAs(t *testing.T, endpoint, token string) *mcp.ClientSession {
	t.Helper()
	return connectClient(t, mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil), endpoint, token)
}

// connectClient begins a session of the older era.
func connectClient(t *testing.T, client *mcp.Client, endpoint, token string) *mcp.ClientSession {
	t.Helper()
	return connectVersion(t, client, endpoint, token, "2025-11-25")
}

// connectVersion connects a client of a version of MCP.
func connectVersion(t *testing.T, client *mcp.Client, endpoint, token, version string) *mcp.ClientSession {
	t.Helper()
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: httpClientOf(token)}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Each caller reaches the server with a token of its own, whose actor is the gateway.
// Callers and tenants never get each other's, however many call at once.
func TestCallersAreThemselvesUpstream(t *testing.T) {
	e := newExchanger(t)
	c := newCRM(t, e)
	endpoint := exchangeGateway(t, e, c, "")
	var all sync.WaitGroup
	for _, p := range []tokenHolder{{Subject: "alice", Tenant: "acme"}, {Subject: "bob", Tenant: "acme"}, {Subject: "alice", Tenant: "other"}} {
		p.Aud = gatewayResource
		session := connectAs(t, endpoint, e.sign(p))
		for range 20 {
			all.Go(func() {
				if got := whoami(t, session); !strings.HasPrefix(got, p.Subject+" of "+p.Tenant+" by gateway, token ") {
					t.Errorf("%s of %s is %s", p.Subject, p.Tenant, got)
				}
			})
		}
	}
	all.Wait()
	if n := e.issued.Load(); n != 3 {
		t.Errorf("three callers need %d tokens", n)
	}
}

// A server that refuses a token gets the request once more with a new one. Without a
// token the server is not called.
func TestRefusedTokenIsReplaced(t *testing.T) {
	e := newExchanger(t)
	c := newCRM(t, e)
	endpoint := exchangeGateway(t, e, c, "")
	session := connectAs(t, endpoint, e.sign(tokenHolder{Subject: "alice", Tenant: "acme", Aud: gatewayResource}))
	if got := whoami(t, session); got != "alice of acme by gateway, token 1" {
		t.Fatal(got)
	}
	c.revoked.Store(1)
	if got := whoami(t, session); got != "alice of acme by gateway, token 2" || c.calls.Load() != 2 {
		t.Errorf("%s after %d calls", got, c.calls.Load())
	}
	c.revoked.Store(2)
	e.down.Store(true)
	if got := whoami(t, session); !strings.Contains(got, "the gateway has no credential for the server, and did not call it") || c.calls.Load() != 2 {
		t.Errorf("%s after %d calls", got, c.calls.Load())
	}
	e.down.Store(false)
	if got := whoami(t, session); got != "alice of acme by gateway, token 3" {
		t.Error(got)
	}
}

// A caller without a token is refused at a server that needs one.
func TestCallerWithoutToken(t *testing.T) {
	e := newExchanger(t)
	c := newCRM(t, e)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	endpoint := exchangeGateway(t, e, c, "  local: {type: user, id: carol}")
	_, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err == nil || !strings.Contains(err.Error(), "the server needs a token of the caller, and the caller has none") || e.issued.Load() != 0 {
		t.Errorf("%v, %d tokens", err, e.issued.Load())
	}
}

// Faults of credentials are reported before the start, also that nobody could use
// them.
func TestCredentialFaults(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gateway.yaml")
	write(t, file, `
pdp: {url: "http://127.0.0.1:1"}
identity: {local: {type: user, id: alice}}
servers:
  - name: a
    url: http://127.0.0.1:1
    bearer_file: `+dir+`/none
    header: {authorization: x}
    credential: {type: exchange, token_url: "http://auth.example.com/token", client_id: g, client_secret_file: `+dir+`/none, audience: a, scopes: ["a b"]}
  - {name: b, credential: {type: jwt, tokenurl: x}}
`)
	_, err := readConfig(file, "", true)
	got := strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(err), file+":", ""), dir, "DIR")
	for _, want := range []string{
		"9:5: servers.0.credential: is one credential too many: leave out bearer_file, or this key",
		"8:5: servers.0.header: must not have Authorization beside credential",
		`9:34: servers.0.credential.token_url: must be an https URL, not "http://auth.example.com/token"`,
		"servers.0.credential.scopes: must be a list of scopes",
		"9:18: servers.0.credential.type: exchange needs callers with tokens, and no caller has one: configure identity.issuers",
		"servers.0.credential.client_secret_file: cannot be used: open DIR/none: no such file or directory",
		`10:39: unknown field "tokenurl" (did you mean "token_url"?)`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not reported", want)
		}
	}
	t.Log(got)
}

// obliging is a PDP that permits all, with an obligation on calls of tools that
// narrows their tokens.
type obliging struct {
	url    string
	scopes atomic.Pointer[string]
}

func newObliging(t *testing.T) *obliging {
	o := new(obliging)
	o.narrow("")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		scopes := *o.scopes.Load()
		if scopes == "" || !strings.Contains(string(body), `"name":"tools/call"`) || strings.Contains(string(body), `"evaluations"`) {
			fmt.Fprint(w, `{"decision":true}`)
			return
		}
		fmt.Fprintf(w, `{"decision":true,"context":{"obligations":[{"id":"1","type":"custom","properties":{"action":"scopes","scopes":[%s]}}]}}`, scopes)
	}))
	t.Cleanup(s.Close)
	o.url = s.URL
	return o
}

// narrow sets the scopes, as elements of a list in JSON; "" is no obligation.
func (o *obliging) narrow(scopes string) { o.scopes.Store(&scopes) }

// A permit narrows the exchanged token of its call. Callers and sets of scopes never
// share a token. A call whose token cannot be narrowed does not reach the server.
func TestPermitNarrowsExchange(t *testing.T) {
	e := newExchanger(t)
	c := newCRM(t, e)
	pdp := newObliging(t)
	endpoint := exchangeGatewayOf(t, e, c, "", ", scopes: [read, write]", pdp.url)
	scopes := func(s *mcp.ClientSession) string {
		t.Helper()
		result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "scopes"})
		if err != nil {
			return err.Error()
		}
		return result.Content[0].(*mcp.TextContent).Text
	}
	session := func(name string) *mcp.ClientSession {
		return connectAs(t, endpoint, e.sign(tokenHolder{Subject: name, Tenant: "acme", Aud: gatewayResource}))
	}
	alice, bob := session("alice"), session("bob")
	const refused = "an obligation of the permit could not be carried out"
	for _, test := range []struct {
		who          *mcp.ClientSession
		scopes, want string
		issued       int64
	}{
		{alice, "", "alice: read write", 2},
		{alice, `"read"`, "alice: read", 3},
		{bob, `"read"`, "bob: read", 4},
		{bob, "", "bob: read write", 4},
		{alice, `"read"`, "alice: read", 4},
		{alice, `"write"`, "alice: write", 5},
		{alice, `"admin"`, refused, 5},
	} {
		pdp.narrow(test.scopes)
		if got := scopes(test.who); !strings.Contains(got, test.want) || e.issued.Load() != test.issued {
			t.Errorf("scopes [%s]: %s, %d tokens, want %s, %d", test.scopes, got, e.issued.Load(), test.want, test.issued)
		}
	}
	e.generous.Store(true)
	pdp.narrow(`"read"`)
	carol := session("carol")
	if got := scopes(carol); !strings.Contains(got, refused) {
		t.Errorf("an issuer that narrows nothing: %s", got)
	}
}
