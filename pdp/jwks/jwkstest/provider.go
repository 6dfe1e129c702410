package jwkstest

import (
	"cmp"
	"crypto/rand"
	"html/template"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
)

// A Client is a relying party of a [Provider].
type Client struct {
	ID       string
	Secret   string // "" for a public client
	Redirect string // the only redirect URI
}

// A Provider is an OpenID provider (OpenID Connect Core 1.0) with the authorization code flow and PKCE.
// Its sign-in page has a button for each person and no passwords. A browser stays signed in by a
// cookie, unless a request has prompt=login or a max_age that has passed.
type Provider struct {
	URL  string // the issuer
	Keys *Issuer
	// People are the claims of each person beside sub, by sub. Set before the first request.
	People map[string]map[string]any
	// ACR are the values of acr that people can reach. A request for none of them gets ACRDefault.
	ACR []string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Down aborts every request.
	Down atomic.Bool

	t      testing.TB
	client Client
	codes  Codes[signedIn]

	mu      sync.Mutex
	browser map[string]signedIn // by cookie
	asked   []url.Values
	change  func(claims map[string]any)
	sign    func(claims map[string]any) string
}

// ACRDefault is the acr of a sign-in for which the client asked nothing.
const ACRDefault = "pwd"

// signedIn is a person who is signed in at a provider.
type signedIn struct {
	sub, acr string
	at       time.Time
}

// NewProvider starts a provider for one client, for the time of a test. Its name is localhost: a
// browser takes a client at 127.0.0.1 for another site.
func NewProvider(t testing.TB, client Client) *Provider {
	t.Helper()
	p := &Provider{t: t, Keys: New(t), ACR: []string{"phr", "mfa"}, People: make(map[string]map[string]any), client: client, browser: make(map[string]signedIn)}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /.well-known/openid-configuration", p.discover)
	routes.HandleFunc("GET /authorize", p.authorize)
	routes.HandleFunc("POST /authorize", p.enter)
	routes.HandleFunc("POST /token", p.token)
	routes.Handle("GET /keys", p.Keys.Config.Handler)
	server := httptest.NewServer(p.upOnly(routes))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p.URL = "http://localhost:" + port
	return p
}

func (p *Provider) upOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Down.Load() {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// Change has a function change the claims of every further ID token before it is signed. nil ends it.
func (p *Provider) Change(change func(claims map[string]any)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = change
}

// SignBy has a function sign every further ID token. nil means the published key.
func (p *Provider) SignBy(sign func(claims map[string]any) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sign = sign
}

// Asked returns the authorization requests so far.
func (p *Provider) Asked() []url.Values {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

func (p *Provider) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

func (p *Provider) discover(w http.ResponseWriter, _ *http.Request) {
	p.reply(w, http.StatusOK, map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
		"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"client_secret_basic"},
		"acr_values_supported": p.ACR, "authorization_response_iss_parameter_supported": true,
	})
}

func (p *Provider) reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.MarshalWrite(w, body); err != nil {
		p.t.Error(err)
	}
}

// request returns a valid authorization request. It answers any other, and returns nil.
func (p *Provider) request(w http.ResponseWriter, r *http.Request) url.Values {
	asked := r.URL.Query()
	switch {
	case asked.Get("client_id") != p.client.ID || asked.Get("redirect_uri") != p.client.Redirect:
		http.Error(w, "no such client, or a redirect URI that it has not registered", http.StatusBadRequest)
	case asked.Get("response_type") != "code" || asked.Get("code_challenge_method") != "S256" || !slices.Contains(strings.Fields(asked.Get("scope")), "openid"):
		p.back(w, r, asked, url.Values{"error": {"invalid_request"}})
	default:
		return asked
	}
	return nil
}

// back leads the browser to the client, with the parameters of an answer.
func (p *Provider) back(w http.ResponseWriter, r *http.Request, asked, answer url.Values) {
	answer.Set("state", asked.Get("state"))
	answer.Set("iss", p.URL)
	http.Redirect(w, r, asked.Get("redirect_uri")+"?"+answer.Encode(), http.StatusSeeOther)
}

const cookieName = "provider"

// authorize leads a browser back that is signed in. It shows the sign-in page to any other.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	asked := p.request(w, r)
	if asked == nil {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, asked)
	var is signedIn
	if cookie, err := r.Cookie(cookieName); err == nil {
		is = p.browser[cookie.Value]
	}
	p.mu.Unlock()
	switch {
	case is.sub != "" && !p.again(asked, is):
		p.back(w, r, asked, url.Values{"code": {p.codes.Issue(asked, is)}})
	case asked.Get("prompt") == "none":
		p.back(w, r, asked, url.Values{"error": {"login_required"}})
	default:
		p.show(w, asked)
	}
}

// again reports whether a person who is signed in has to sign in again.
func (p *Provider) again(asked url.Values, is signedIn) bool {
	if asked.Get("prompt") == "login" || p.acr(asked) != is.acr && asked.Get("acr_values") != "" {
		return true
	}
	age, err := strconv.Atoi(asked.Get("max_age"))
	return err == nil && p.now().Sub(is.at) >= time.Duration(age)*time.Second
}

// acr returns the context class that a sign-in reaches: the first one asked for that there is.
func (p *Provider) acr(asked url.Values) string {
	for _, value := range strings.Fields(asked.Get("acr_values")) {
		if slices.Contains(p.ACR, value) {
			return value
		}
	}
	return ACRDefault
}

// page is the sign-in page.
var page = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign in at the provider</title>
<main><h1>Sign in at the provider</h1><p>{{.ACR}}</p>
<form method="post" action="?{{.Query}}">{{range .People}}<p><button name="person" value="{{.}}">{{.}}</button></p>{{end}}
<p><button name="cancel" value="yes">Cancel</button></p></form></main></html>
`))

func (p *Provider) show(w http.ResponseWriter, asked url.Values) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	shown := map[string]any{"ACR": p.acr(asked), "Query": template.URL(asked.Encode()), "People": slices.Sorted(maps.Keys(p.People))}
	if err := page.Execute(w, shown); err != nil {
		p.t.Error(err)
	}
}

// enter signs the person of the form in.
func (p *Provider) enter(w http.ResponseWriter, r *http.Request) {
	asked := p.request(w, r)
	sub := r.PostFormValue("person")
	switch {
	case asked == nil:
	case r.PostFormValue("cancel") != "":
		p.back(w, r, asked, url.Values{"error": {"access_denied"}})
	case p.People[sub] == nil:
		http.Error(w, "there is no such person", http.StatusBadRequest)
	default:
		is := signedIn{sub, p.acr(asked), p.now()}
		cookie := rand.Text()
		p.mu.Lock()
		p.browser[cookie] = is
		p.mu.Unlock()
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
		p.back(w, r, asked, url.Values{"code": {p.codes.Issue(asked, is)}})
	}
}

// token exchanges a code for an ID token.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, named := r.BasicAuth()
	if !named {
		id = r.PostFormValue("client_id")
	}
	if id != p.client.ID || secret != p.client.Secret {
		p.reply(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	asked, is, ok := p.codes.Redeem(r, id)
	if !ok {
		p.reply(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	p.reply(w, http.StatusOK, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 60, "id_token": p.idToken(asked, is)})
}

// idToken makes the ID token of a person who is signed in.
func (p *Provider) idToken(asked url.Values, is signedIn) string {
	now := p.now()
	claims := map[string]any{
		"iss": p.URL, "aud": p.client.ID, "sub": is.sub, "iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
		"auth_time": is.at.Unix(), "acr": is.acr, "amr": []string{cmp.Or(map[string]string{"phr": "hwk"}[is.acr], "pwd")},
	}
	if nonce := asked.Get("nonce"); nonce != "" {
		claims["nonce"] = nonce
	}
	maps.Copy(claims, p.People[is.sub])
	p.mu.Lock()
	change, sign := p.change, p.sign
	p.mu.Unlock()
	if change != nil {
		change(claims)
	}
	if sign != nil {
		return sign(claims)
	}
	return Sign(p.t, jose.RS256, p.Keys.Key, KeyID, claims, map[jose.HeaderKey]any{"typ": "JWT"})
}
