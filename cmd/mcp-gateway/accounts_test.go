package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// An account is of a person at [accounts].
type account struct{ person, org string }

// An issued is a token of [accounts]: for an account, a client, a resource and scopes.
type issued struct {
	account
	client, resource, scope, family string
	refresh                         bool
}

// accounts is an authorization server with refresh tokens that are good once (OAuth
// 2.1, section 4.3.1), and the issuer of the callers of the gateway. Who the person at
// the browser is, the browser says in a header.
type accounts struct {
	*testing.T
	url  string
	keys *jwkstest.Issuer
	// clientKey is the public key of the client gateway; nil for a client with the
	// secret sesame.
	clientKey any
	keyFile   string // of its private key
	public    bool   // the client gateway needs no more than its id
	codes     jwkstest.Codes[account]

	mu      sync.Mutex
	names   string // iss of answers, in place of its own
	tokens  map[string]issued
	used    map[string]issued // refresh tokens that were good once
	grants  int               // by code
	renewed int               // by refresh token
	revoked int               // by clients
}

func newAccounts(t *testing.T) *accounts {
	a := &accounts{T: t, keys: jwkstest.New(t), tokens: map[string]issued{}, used: map[string]issued{}}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /.well-known/openid-configuration", a.discover)
	routes.HandleFunc("GET /authorize", a.authorize)
	routes.HandleFunc("POST /token", a.token)
	routes.HandleFunc("POST /revoke", a.revoke)
	s := httptest.NewServer(routes)
	t.Cleanup(s.Close)
	a.url = s.URL
	return a
}

func (a *accounts) reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.MarshalWrite(w, body); err != nil {
		a.Error(err)
	}
}

func (a *accounts) discover(w http.ResponseWriter, _ *http.Request) {
	a.reply(w, http.StatusOK, map[string]any{
		"issuer": a.url, "authorization_endpoint": a.url + "/authorize", "token_endpoint": a.url + "/token", "revocation_endpoint": a.url + "/revoke", "jwks_uri": a.keys.URL,
		"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true,
	})
}

func (a *accounts) authorize(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	who := account{r.Header.Get("X-Person"), r.Header.Get("X-Org")}
	if asked.Get("code_challenge_method") != "S256" || (asked.Get("resource") == "") == (asked.Get("nonce") == "") || who.person == "" {
		a.Errorf("authorization request %s of %s", r.URL.RawQuery, who)
	}
	a.checkClient(asked)
	a.mu.Lock()
	defer a.mu.Unlock()
	code := a.codes.Issue(asked, who)
	iss := a.url
	if a.names != "" && asked.Get("nonce") == "" {
		iss = a.names
	}
	http.Redirect(w, r, asked.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {asked.Get("state")}, "iss": {iss}}.Encode(), http.StatusFound)
}

// checkClient reads who a client is that is not registered, at its id.
func (a *accounts) checkClient(asked url.Values) {
	id := asked.Get("client_id")
	if id == "login" || id == "gateway" {
		return
	}
	response, err := http.Get(id)
	if err != nil {
		a.Error(err)
		return
	}
	defer response.Body.Close()
	var meta struct {
		ID        string   `json:"client_id"`
		Redirects []string `json:"redirect_uris"`
		Auth      string   `json:"token_endpoint_auth_method"`
	}
	if err := json.UnmarshalRead(response.Body, &meta); err != nil || meta.ID != id || meta.Auth != "none" || !slices.Contains(meta.Redirects, asked.Get("redirect_uri")) {
		a.Errorf("%+v, %v", meta, err)
	}
}

// client returns the authenticated client of a request, or "".
func (a *accounts) client(r *http.Request) string {
	id, secret, _ := r.BasicAuth()
	switch {
	case id == "login" && secret == "open", id == "gateway" && secret == "sesame" && a.clientKey == nil:
		return id
	case a.public:
		return r.PostFormValue("client_id")
	case r.PostFormValue("client_assertion") == "":
		return ""
	}
	assertion, err := jwt.ParseSigned(r.PostFormValue("client_assertion"), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		a.Error(err)
		return ""
	}
	var claims jwt.Claims
	err = assertion.Claims(a.clientKey, &claims)
	if err == nil {
		err = claims.Validate(jwt.Expected{Issuer: "gateway", Subject: "gateway", AnyAudience: jwt.Audience{a.url + r.URL.Path}})
	}
	if err != nil || claims.ID == "" || a.clientKey == nil || r.PostFormValue("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
		a.Errorf("assertion: %v", err)
		return ""
	}
	return claims.Subject
}

func (a *accounts) token(w http.ResponseWriter, r *http.Request) {
	client := a.client(r)
	if client == "" {
		a.reply(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.PostFormValue("grant_type") == "refresh_token" {
		a.renew(w, r, client)
		return
	}
	asked, who, ok := a.codes.Redeem(r, client)
	if !ok {
		a.reply(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	if asked.Get("nonce") != "" {
		a.reply(w, http.StatusOK, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "id_token": a.sign(who, client, asked.Get("nonce"))})
		return
	}
	a.grants++
	a.issue(w, issued{account: who, client: client, resource: asked.Get("resource"), scope: asked.Get("scope"), family: rand.Text()}, asked.Get("scope"))
}

// renew issues tokens for a refresh token. One that is used twice is stolen: nothing of
// its family is good any more.
func (a *accounts) renew(w http.ResponseWriter, r *http.Request, client string) {
	sent := r.PostFormValue("refresh_token")
	if stolen, again := a.used[sent]; again {
		a.Error("a refresh token is used twice")
		maps.DeleteFunc(a.tokens, func(_ string, i issued) bool { return i.family == stolen.family })
	}
	of, known := a.tokens[sent]
	if !known || !of.refresh || of.client != client || r.PostFormValue("resource") != of.resource {
		a.reply(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	scope := r.PostFormValue("scope")
	if scope == "" {
		scope = of.scope
	}
	for s := range strings.FieldsSeq(scope) {
		if !slices.Contains(strings.Fields(of.scope), s) {
			a.reply(w, http.StatusBadRequest, map[string]string{"error": "invalid_scope"})
			return
		}
	}
	delete(a.tokens, sent)
	a.used[sent] = of
	a.renewed++
	a.issue(w, of, scope)
}

func (a *accounts) issue(w http.ResponseWriter, of issued, scope string) {
	access, refresh := "at-"+rand.Text(), "rt-"+rand.Text()
	narrowed := of
	narrowed.scope, narrowed.refresh = scope, false
	of.refresh = true
	a.tokens[access], a.tokens[refresh] = narrowed, of
	a.reply(w, http.StatusOK, map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh, "scope": scope})
}

func (a *accounts) revoke(w http.ResponseWriter, r *http.Request) {
	if a.client(r) == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked++
	family := a.tokens[r.PostFormValue("token")].family
	maps.DeleteFunc(a.tokens, func(_ string, i issued) bool { return i.family == family })
}

// expire ends all access tokens or, with all, also the refresh tokens.
func (a *accounts) expire(all bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.tokens, func(_ string, i issued) bool { return all || !i.refresh })
}

// holder returns whose an access token for a resource is.
func (a *accounts) holder(token, resource string) (issued, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of, ok := a.tokens[token]
	return of, ok && !of.refresh && of.resource == resource
}

// sign makes a token of an account for an audience: an ID token with a nonce.
func (a *accounts) sign(who account, audience, nonce string) string {
	claims := map[string]any{"iss": a.url, "aud": audience, "sub": who.person, "org": who.org, "exp": time.Now().Add(time.Hour).Unix()}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	return jwkstest.Sign(a, jose.RS256, a.keys.Key, jwkstest.KeyID, claims, map[jose.HeaderKey]any{"typ": "JWT"})
}

// A browser is one of a person, with cookies.
type browser struct {
	*testing.T
	*http.Client
	stop string // path at which it stops, and shows the address
}

// as adds who is at the browser to its requests.
type as account

func (who as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Person", who.person)
	r.Header.Set("X-Org", who.org)
	return http.DefaultTransport.RoundTrip(r)
}

func newBrowser(t *testing.T, who account) *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{T: t, Client: &http.Client{Jar: jar, Transport: as(who)}}
	b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if b.stop != "" && strings.HasPrefix(r.URL.Path, b.stop) {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return b
}

var ticketField = regexp.MustCompile(`name="ticket" value="([^"]+)"`)

// open opens the page of a ticket and confirms it. It returns the status and the text
// of the page at the end or, with stop, the address at which the browser has stopped.
func (b *browser) open(link string) (status int, text string) {
	b.Helper()
	status, text = b.visit(link)
	field := ticketField.FindStringSubmatch(text)
	if status != http.StatusOK || field == nil {
		return status, text
	}
	to, _, _ := strings.Cut(link, "?")
	return b.read(b.PostForm(to, url.Values{"ticket": {field[1]}}))
}

func (b *browser) visit(link string) (status int, text string) {
	b.Helper()
	return b.read(b.Get(link))
}

func (b *browser) read(response *http.Response, err error) (int, string) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.Fatal(err)
	}
	if to := response.Header.Get("Location"); to != "" {
		return response.StatusCode, to
	}
	return response.StatusCode, string(text)
}

// grant opens the page of a ticket, and has to come to its end.
func (b *browser) grant(link string) {
	b.Helper()
	if status, text := b.open(link); status != http.StatusOK || !strings.Contains(text, "You can close this page") {
		b.Errorf("%d %s", status, text)
	}
}

func (a account) String() string { return fmt.Sprintf("%s of %s", a.person, a.org) }
