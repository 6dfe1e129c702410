package main

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// An authorizationServer is one of OAuth 2.1: clients register (RFC 7591), prove who
// they are by PKCE, and get tokens for the resource that they ask for (RFC 8707). The
// person at the browser is always alice.
type authorizationServer struct {
	*testing.T
	url  string
	keys *jwkstest.Issuer

	codes jwkstest.Codes[string] // of a person

	mu      sync.Mutex
	clients map[string][]string // redirect URIs, by id
}

// serveAuthorization starts an authorization server at an address.
func serveAuthorization(t *testing.T, address string) *authorizationServer {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	a := &authorizationServer{T: t, url: "http://" + address, keys: jwkstest.New(t), clients: map[string][]string{}}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /.well-known/oauth-authorization-server", a.discover)
	routes.HandleFunc("POST /register", a.register)
	routes.HandleFunc("GET /authorize", a.authorize)
	routes.HandleFunc("POST /token", a.token)
	routes.Handle("GET /keys", a.keys.Config.Handler)
	s := &httptest.Server{Listener: listener, Config: &http.Server{Handler: routes}}
	s.Start()
	t.Cleanup(s.Close)
	return a
}

func (a *authorizationServer) reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.MarshalWrite(w, body); err != nil {
		a.Error(err)
	}
}

func (a *authorizationServer) discover(w http.ResponseWriter, _ *http.Request) {
	a.reply(w, http.StatusOK, map[string]any{
		"issuer": a.url, "authorization_endpoint": a.url + "/authorize", "token_endpoint": a.url + "/token", "registration_endpoint": a.url + "/register",
		"jwks_uri": a.url + "/keys", "response_types_supported": []string{"code"}, "grant_types_supported": []string{"authorization_code"},
		"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
	})
}

func (a *authorizationServer) register(w http.ResponseWriter, r *http.Request) {
	client := map[string]any{}
	if err := json.UnmarshalRead(r.Body, &client); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	id := rand.Text()
	for _, uri := range client["redirect_uris"].([]any) {
		a.clients[id] = append(a.clients[id], uri.(string))
	}
	client["client_id"] = id
	a.reply(w, http.StatusCreated, client)
}

func (a *authorizationServer) authorize(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.clients[asked.Get("client_id")], asked.Get("redirect_uri")) || asked.Get("code_challenge_method") != "S256" || asked.Get("resource") == "" {
		http.Error(w, "invalid_request", http.StatusBadRequest)
		return
	}
	code := a.codes.Issue(asked, "alice")
	back := url.Values{"code": {code}, "state": {asked.Get("state")}}
	http.Redirect(w, r, asked.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (a *authorizationServer) token(w http.ResponseWriter, r *http.Request) {
	asked, who, ok := a.codes.Redeem(r, r.PostFormValue("client_id"))
	if !ok {
		a.reply(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	a.reply(w, http.StatusOK, map[string]any{"access_token": a.sign(who, asked.Get("resource")), "token_type": "Bearer", "expires_in": 3600})
}

// sign makes a token of a person for an audience.
func (a *authorizationServer) sign(who, audience string) string {
	claims := map[string]any{"iss": a.url, "aud": audience, "sub": who, "exp": time.Now().Add(time.Hour).Unix()}
	return jwkstest.Sign(a, jose.RS256, a.keys.Key, jwkstest.KeyID, claims, map[jose.HeaderKey]any{"typ": "at+jwt"})
}

// TestLogin pastes what the guide says about OAuth: the official TypeScript client
// finds the authorization server by itself, a person logs in, and the token is good
// at the endpoint that it was asked for, and at no other.
func TestLogin(t *testing.T) {
	guide, err := os.ReadFile(guidePage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(guide), "\n### Log in with OAuth\n")
	section, _, _ = strings.Cut(section, "\n## ")
	before, _, begins := strings.Cut(docpage.TenMinutes(t, guidePage), "Write the configuration")
	if !found || !begins {
		t.Fatal("the guide has not the parts that are pasted")
	}
	issuer, callback := docpage.FreeAddress(t), docpage.FreeAddress(t)
	serveAuthorization(t, issuer)
	shell := newTerminal(t, guidePackages(t))
	shell.Move("127.0.0.1:9000", issuer)
	shell.Move("127.0.0.1:8123", callback)
	_, port, _ := net.SplitHostPort(callback)
	shell.Move("listen(8123,", "listen("+port+",")
	shell.Follow(before)
	var person sync.WaitGroup
	person.Go(func() { openPage(t, shell) })
	shell.Follow(patient.Replace(section))
	person.Wait()
	t.Logf("%s", shell.Screen())
}

// openPage opens the page that the agent asks a person to open, as a browser does.
func openPage(t *testing.T, shell *docpage.Terminal) {
	asks := regexp.MustCompile(`log in at (\S+)\n`)
	for !asks.MatchString(shell.Screen()) {
		select {
		case <-t.Context().Done():
			return
		case <-time.After(20 * time.Millisecond): // until the agent has asked
		}
	}
	response, err := http.Get(asks.FindStringSubmatch(shell.Screen())[1])
	if err != nil {
		t.Error(err)
		return
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != "You are logged in." {
		t.Errorf("%d %s %v", response.StatusCode, text, err)
	}
}

// A token is for one endpoint, or for the audience that the operator has named for
// its issuer. Where the metadata of an endpoint are, its 401 says.
func TestAudiences(t *testing.T) {
	a := serveAuthorization(t, docpage.FreeAddress(t))
	pdp := denies(t, "nothing")
	serve := func(issuers string) func(server, audience string) string {
		address := docpage.FreeAddress(t)
		base := gatewayOf(t, strings.NewReplacer("PDP", pdp, "BASE", "http://"+address, "ISSUER", `issuer: "`+a.url+`", jwks_url: "`+a.url+`/keys"`).Replace(`
pdp: {url: "PDP", timeout: 10s}
identity:
  resource: BASE/
  issuers: `+issuers+`
hosts: ["`+address+`"]
servers:
  - {name: a, url: "http://127.0.0.1:1"}
  - {name: b, url: "http://127.0.0.1:1"}
  - {name: c, url: "http://127.0.0.1:1", public_url: "https://tools.example.com/see"}
`))
		return func(server, audience string) string {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, base+"/"+server+"/mcp", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+a.sign("alice", strings.Replace(audience, "BASE", "http://"+address, 1)))
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			_, where, _ := strings.Cut(cmp.Or(response.Header.Get("WWW-Authenticate"), `=""`), `resource_metadata="`)
			where, _, _ = strings.Cut(where, `"`)
			return fmt.Sprint(response.StatusCode, " ", strings.Replace(where, address, "HOST", 1))
		}
	}
	const known = "405 " // of who may call, for another method
	const metadata = "401 http://HOST/.well-known/oauth-protected-resource/"
	ask := serve(`[{ISSUER}]`)
	for _, test := range []struct{ server, audience, want string }{
		{"a", "BASE/a/mcp", known},
		{"b", "BASE/b/mcp", known},
		{"c", "https://tools.example.com/see", known},
		{"b", "BASE/a/mcp", metadata + "b/mcp"},
		{"a", "BASE/", metadata + "a/mcp"},
		{"a", "BASE", metadata + "a/mcp"},
		{"a", "BASE/a/mcp/", metadata + "a/mcp"},
		{"a", "BASE/a", metadata + "a/mcp"},
		{"c", "BASE/c/mcp", "401 https://tools.example.com/.well-known/oauth-protected-resource/see"},
	} {
		if got := ask(test.server, test.audience); got != test.want {
			t.Errorf("at %s, a token for %s: %s, want %s", test.server, test.audience, got, test.want)
		}
	}
	ask = serve(`[{ISSUER, audience: all}, {ISSUER}]`)
	for _, test := range []struct{ server, audience, want string }{
		{"a", "all", known}, {"b", "all", known}, {"a", "BASE/a/mcp", known}, {"b", "BASE/a/mcp", metadata + "b/mcp"},
	} {
		if got := ask(test.server, test.audience); got != test.want {
			t.Errorf("with an audience for all, at %s, a token for %s: %s, want %s", test.server, test.audience, got, test.want)
		}
	}
}
