package credential_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/credential"
)

// A tokenEndpoint issues a new token for each request, unless a test replaces its
// answer.
type tokenEndpoint struct {
	*httptest.Server
	answer http.HandlerFunc
	issued atomic.Int64

	mu   sync.Mutex
	last *http.Request // with its form
}

func newTokenEndpoint(t *testing.T) *tokenEndpoint {
	e := new(tokenEndpoint)
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		e.mu.Lock()
		e.last = r
		e.mu.Unlock()
		if e.answer != nil {
			e.answer(w, r)
			return
		}
		e.issue(w, r, `"expires_in":100`)
	}))
	t.Cleanup(e.Close)
	return e
}

// issue answers with a token that names the subject token.
func (e *tokenEndpoint) issue(w http.ResponseWriter, r *http.Request, more string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":"%s-%d","token_type":"Bearer","issued_token_type":"urn:ietf:params:oauth:token-type:access_token",%s}`, r.PostForm.Get("subject_token"), e.issued.Add(1), more)
}

// request returns the last request.
func (e *tokenEndpoint) request() *http.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

func (e *tokenEndpoint) source(change func(*credential.Config, *credential.Surroundings)) *credential.Source {
	cfg := credential.Config{Type: credential.TypeExchange, TokenURL: e.URL, ClientID: "gateway id", Audience: "crm", Scopes: []string{"read", "write"}}
	around := credential.Surroundings{Secret: func() string { return "s:cret" }}
	if change != nil {
		change(&cfg, &around)
	}
	return credential.New(cfg, around)
}

var alice = credential.Subject{Tenant: "acme", Type: "user", ID: "alice", Token: "alices"}

// The requests are those of the RFCs, parameter by parameter.
func TestRequests(t *testing.T) {
	e := newTokenEndpoint(t)
	exchanged := url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {"crm"}, "scope": {"read write"},
		"subject_token": {"alices"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
	}
	with := func(base url.Values, more map[string]string) url.Values {
		all := url.Values{}
		for k, v := range base {
			all[k] = v
		}
		for k, v := range more {
			all.Set(k, v)
		}
		return all
	}
	for _, test := range []struct {
		name   string
		change func(*credential.Config, *credential.Surroundings)
		basic  bool
		form   url.Values
	}{
		{"exchange", nil, true, exchanged},
		{"exchange, client in the body", func(c *credential.Config, _ *credential.Surroundings) { c.ClientAuth = "post" }, false,
			with(exchanged, map[string]string{"client_id": "gateway id", "client_secret": "s:cret"})},
		{"exchange, public client", func(_ *credential.Config, s *credential.Surroundings) { s.Secret = nil }, false,
			with(exchanged, map[string]string{"client_id": "gateway id"})},
		{"exchange, resource and actor", func(c *credential.Config, s *credential.Surroundings) {
			c.ClientID, s.Secret, c.Resource = "", nil, "https://crm.example.com/mcp"
			s.ActorToken = func() string { return "the gateways" }
		}, false, with(exchanged, map[string]string{
			"resource": "https://crm.example.com/mcp", "actor_token": "the gateways", "actor_token_type": "urn:ietf:params:oauth:token-type:jwt",
		})},
		{"client credentials", func(c *credential.Config, _ *credential.Surroundings) { c.Type = credential.TypeClientCredentials }, true,
			url.Values{"grant_type": {"client_credentials"}, "audience": {"crm"}, "scope": {"read write"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := e.source(test.change).Token(t.Context(), alice, nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.form, e.request().PostForm); diff != "" {
				t.Error(diff)
			}
			id, secret, basic := e.request().BasicAuth()
			if basic != test.basic || basic && (id != "gateway+id" || secret != "s%3Acret") {
				t.Errorf("the client is %q, %q", id, secret)
			}
		})
	}
}

// A token endpoint that fails gives no token. The error says why, without a token and
// on one line.
func TestFailures(t *testing.T) {
	reply := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	released := make(chan struct{})
	t.Cleanup(func() { close(released) })
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"invalid_target", reply(400, "application/json", `{"error":"invalid_target","error_description":"no\nsuch audience"}`), "the token endpoint answered 400: invalid_target no\\u{000A}such audience"},
		{"the token in the description", reply(400, "application/json", `{"error":"invalid_request","error_description":"alices is bad"}`), "the token endpoint answered 400: an error that repeats the token"},
		{"500", reply(500, "text/html", "<p>alices</p>"), "the token endpoint answered 500"},
		{"an error with 200", reply(200, "application/json", `{"error":"invalid_grant","access_token":"x","token_type":"Bearer"}`), "the token endpoint answered 200: invalid_grant"},
		{"a redirect", reply(307, "text/plain", ""), "the token endpoint answered 307"},
		{"no JSON", reply(200, "text/html", "<p>alices</p>"), "the answer of the token endpoint is incomplete or not understood"},
		{"huge", reply(200, "application/json", `{"x":"`+strings.Repeat("x", 2<<20)+`","access_token":"x","token_type":"Bearer"}`), "the answer of the token endpoint is incomplete or not understood"},
		{"no token", reply(200, "application/json", `{"token_type":"Bearer"}`), "the answer of the token endpoint is incomplete or not understood"},
		{"no type", reply(200, "application/json", `{"access_token":"x"}`), `the token endpoint issued a token of the type "", not Bearer`},
		{"DPoP", reply(200, "application/json", `{"access_token":"x","token_type":"DPoP"}`), `the token endpoint issued a token of the type "DPoP", not Bearer`},
		{"a refresh token", reply(200, "application/json", `{"access_token":"x","token_type":"Bearer","issued_token_type":"urn:ietf:params:oauth:token-type:refresh_token"}`), `the token endpoint issued a token with issued_token_type "urn:ietf:params:oauth:token-type:refresh_token", not an access token`},
		{"two lines", reply(200, "application/json", `{"access_token":"x\r\ny","token_type":"Bearer","issued_token_type":"urn:ietf:params:oauth:token-type:jwt"}`), "the answer of the token endpoint is incomplete or not understood"},
		{"slow", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}, "the token endpoint did not answer in time"},
		{"a broken connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "the token endpoint did not answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newTokenEndpoint(t)
			e.answer = test.answer
			s := e.source(func(_ *credential.Config, s *credential.Surroundings) {
				if s.Timeout = 30 * time.Second; test.name == "slow" {
					s.Timeout = 50 * time.Millisecond
				}
			})
			token, err := s.Token(t.Context(), alice, nil)
			if token != "" || err == nil || err.Error() != test.want {
				t.Errorf("%q, %v", token, err)
			}
			if e.request().URL.Path == "/elsewhere" {
				t.Error("the token went to a redirect")
			}
		})
	}
}

// A caller without a token gets none at a server that wants one of the caller.
func TestNoToken(t *testing.T) {
	e := newTokenEndpoint(t)
	_, err := e.source(nil).Token(t.Context(), credential.Subject{Type: "user", ID: "alice"}, nil)
	if !errors.Is(err, credential.ErrNoToken) || e.issued.Load() != 0 {
		t.Errorf("%v, %d requests", err, e.issued.Load())
	}
}

// Two callers, two tenants, and two tokens of one caller never share a token.
func TestCallersDoNotShare(t *testing.T) {
	e := newTokenEndpoint(t)
	for _, kind := range []string{credential.TypeExchange, credential.TypeClientCredentials} {
		e.issued.Store(0)
		s := e.source(func(c *credential.Config, _ *credential.Surroundings) { c.Type = kind })
		var all sync.WaitGroup
		for range 50 {
			for _, caller := range []credential.Subject{
				alice, {Tenant: "acme", Type: "user", ID: "bob", Token: "bobs"}, {Tenant: "other", Type: "user", ID: "alice", Token: "others"},
				{Tenant: "acme", Type: "user", ID: "alice", Token: "stronger"}, {Tenant: "acme", Type: "agent", ID: "alice", Token: "agents"},
			} {
				all.Go(func() {
					token, err := s.Token(context.Background(), caller, nil)
					if owner, _, _ := strings.Cut(token, "-"); err != nil || kind == credential.TypeExchange && owner != caller.Token {
						t.Errorf("%+v gets %q, %v", caller, token, err)
					}
				})
			}
		}
		all.Wait()
		if want := map[string]int64{credential.TypeExchange: 5, credential.TypeClientCredentials: 1}[kind]; e.issued.Load() != want {
			t.Errorf("%s: %d requests, want %d", kind, e.issued.Load(), want)
		}
	}
}

// A token is used until shortly before it expires, or until the server refuses it.
func TestExpiry(t *testing.T) {
	e := newTokenEndpoint(t)
	for _, test := range []struct {
		name, expires string
		used, ended   time.Duration // after which it is still used, and no more
	}{
		{"short", `"expires_in":100`, 89 * time.Second, 91 * time.Second},
		{"long", `"expires_in":3600`, 3569 * time.Second, 3571 * time.Second},
		{"unknown", `"x":1`, 59 * time.Second, 61 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			e.answer = func(w http.ResponseWriter, r *http.Request) { e.issue(w, r, test.expires) }
			clock := time.Now()
			s := e.source(func(_ *credential.Config, a *credential.Surroundings) { a.Now = func() time.Time { return clock } })
			get := func() string {
				token, err := s.Token(t.Context(), alice, nil)
				if err != nil {
					t.Fatal(err)
				}
				return token
			}
			first, begun := get(), clock
			if clock = begun.Add(test.used); get() != first {
				t.Error("the token is not used long enough")
			}
			if clock = begun.Add(test.ended); get() == first {
				t.Error("the token is used too long")
			}
			second := get()
			if !s.Drop(t.Context(), alice, nil, first, false) || get() != second {
				t.Error("a token that is not cached was dropped")
			}
			if !s.Drop(t.Context(), alice, nil, second, false) || get() == second {
				t.Error("a refused token is used")
			}
		})
	}
}

// The cache is bounded. A full one loses what expires first.
func TestCacheIsBounded(t *testing.T) {
	e := newTokenEndpoint(t)
	s := e.source(func(_ *credential.Config, a *credential.Surroundings) { a.MaxTokens = 2 })
	for i, id := range []string{"a", "b", "c", "c", "b", "a"} {
		if _, err := s.Token(t.Context(), credential.Subject{ID: id, Token: id}, nil); err != nil {
			t.Fatal(err)
		}
		if want := []int64{1, 2, 3, 3, 3, 4}[i]; e.issued.Load() != want {
			t.Errorf("after %d: %d requests, want %d", i, e.issued.Load(), want)
		}
	}
}

// A caller that leaves does not end the request that others wait for.
func TestOneRequestOutlivesItsCaller(t *testing.T) {
	e := newTokenEndpoint(t)
	asked, release := make(chan struct{}), make(chan struct{})
	e.answer = func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-release
		e.issue(w, r, `"expires_in":100`)
	}
	s := e.source(nil)
	first, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := s.Token(first, alice, nil)
		left <- err
	}()
	<-asked
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who left gets %v", err)
	}
	got := make(chan string)
	go func() {
		token, _ := s.Token(t.Context(), alice, nil)
		got <- token
	}()
	close(release)
	if token := <-got; token != "alices-1" {
		t.Errorf("who waits gets %q", token)
	}
}

// Faults of the settings are reported by their keys.
func TestCheck(t *testing.T) {
	for _, test := range []struct {
		cfg  credential.Config
		want string
	}{
		{credential.Config{}, "type: is required: it must be exchange, oauth or client_credentials\ntoken_url: is required: the URL of the token endpoint, such as https://auth.example.com/token"},
		{credential.Config{Type: "oauth2", TokenURL: "http://auth.example.com"}, "type: must be exchange, oauth or client_credentials, not \"oauth2\"\ntoken_url: must be an https URL, not \"http://auth.example.com\""},
		{credential.Config{Type: "exchange", TokenURL: "https://a.example", ClientSecretFile: "s", ClientAuth: "jwt", ActorTokenFile: "f", ActorTokenType: "saml2", Resource: "crm", Scopes: []string{"a b"}},
			"client_id: is required: the id of the gateway at the token endpoint, beside client_secret_file\n" +
				"client_auth: must be basic, post or private_key_jwt, not \"jwt\"\nresource: must be an absolute URL without a fragment, not \"crm\"\nactor_token_type: must be jwt, access_token or id_token, not \"saml2\"\nscopes: must be a list of scopes, each without spaces and quotes, not \"a b\""},
		{credential.Config{Type: "exchange", TokenURL: "https://a.example"}, "client_id: is required: the id of the gateway at the token endpoint, or actor_token_file\naudience: is required: the name of the server at the token endpoint, or resource, its URL there"},
		{credential.Config{Type: "client_credentials", TokenURL: "https://a.example", ActorTokenFile: "f"}, "client_id: is required: the id of the gateway at the token endpoint\nclient_secret_file: is required: the file with the secret of the client\nactor_token_file: is for the type exchange alone"},
		{credential.Config{Type: "exchange", TokenURL: "http://127.0.0.1:1/token", ClientID: "g", Audience: "crm"}, "<nil>"},
	} {
		if got := fmt.Sprint(errors.Join(test.cfg.Check()...)); got != test.want {
			t.Errorf("%+v:\n%s", test.cfg, got)
		}
	}
}
