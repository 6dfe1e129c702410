package credential_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/credential"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
)

// rotating is an authorization server whose refresh tokens are good once. Tokens name
// their person, who is the code.
type rotating struct {
	*testing.T
	url string

	mu      sync.Mutex
	next    map[string]string // refresh token, by person
	renewed int
	fails   int // status of the token endpoint; 0 is none
}

func newRotating(t *testing.T) *rotating {
	a := &rotating{T: t, next: make(map[string]string)}
	s := httptest.NewServer(http.HandlerFunc(a.token))
	t.Cleanup(s.Close)
	a.url = s.URL
	return a
}

func (a *rotating) token(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if a.fails != 0 {
		w.WriteHeader(a.fails)
		return
	}
	who, scope := r.PostFormValue("code"), "read write"
	if sent := r.PostFormValue("refresh_token"); sent != "" {
		who, _, _ = strings.Cut(sent, " ")
		if a.next[who] != sent {
			a.Errorf("the refresh token of %s is used twice", who)
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
			return
		}
		a.renewed++
		if r.PostFormValue("scope") != "" {
			scope = r.PostFormValue("scope")
		}
	}
	a.next[who] = fmt.Sprintf("%s %d", who, a.renewed)
	fmt.Fprintf(w, `{"access_token":"%s:%s:%d","token_type":"Bearer","expires_in":100,"refresh_token":"%s","scope":"%s"}`, who, strings.ReplaceAll(scope, " ", "+"), a.renewed, a.next[who], scope)
}

// grants opens the grants in a directory, at a time.
func (a *rotating) grants(dir string, now func() time.Time) *credential.Grants {
	a.Helper()
	key, err := seal.New(make([]byte, seal.KeySize))
	if err != nil {
		a.Fatal(err)
	}
	store, err := credential.OpenStore(filepath.Join(dir, "credentials.db"), key)
	if err != nil {
		a.Fatal(err)
	}
	cfg := credential.Config{Type: credential.TypeOAuth, AuthorizationURL: a.url, TokenURL: a.url, ClientID: "gateway"}
	return credential.NewGrants(cfg, credential.Surroundings{Now: now}, "notes", "http://notes.example", "http://127.0.0.1:1/oauth/callback", store, slog.New(slog.DiscardHandler))
}

func person(tenant, id string) credential.Subject {
	return credential.Subject{Tenant: tenant, Issuer: "https://auth.example.com", Type: "user", ID: id}
}

func (a *rotating) complete(g *credential.Grants, who credential.Subject) {
	a.Helper()
	if err := g.Complete(a.Context(), who, credential.Authorization{Code: who.Tenant + "/" + who.ID, Verifier: "v"}); err != nil {
		a.Fatal(err)
	}
}

// However many calls with whatever scopes come at once, a refresh token is used once,
// and every call has the token of its person with its scopes.
func TestRefreshTokensAreUsedOnce(t *testing.T) {
	a := newRotating(t)
	now := time.Now()
	g := a.grants(t.TempDir(), func() time.Time { return now })
	people := []credential.Subject{person("acme", "alice"), person("other", "alice"), person("acme", "bob")}
	for _, who := range people {
		a.complete(g, who)
	}
	now = now.Add(95 * time.Second)
	var all sync.WaitGroup
	for _, who := range people {
		for _, scopes := range [][]string{nil, {"read"}, {"write"}} {
			for range 20 {
				all.Go(func() {
					want := who.Tenant + "/" + who.ID + ":" + strings.Join(scopes, "+")
					if token, err := g.Token(context.Background(), who, scopes); err != nil || !strings.HasPrefix(token, want) {
						t.Errorf("%s, %v: %s", token, err, want)
					}
				})
			}
		}
	}
	all.Wait()
	if a.renewed != 9 {
		t.Errorf("three people with three sets of scopes renew %d tokens", a.renewed)
	}
}

// A grant is of one person of one tenant and issuer. Others have none.
func TestGrantIsOfThePerson(t *testing.T) {
	a := newRotating(t)
	dir := t.TempDir()
	g := a.grants(dir, time.Now)
	alice := person("acme", "alice")
	a.complete(g, alice)
	again := a.grants(dir, time.Now)
	for _, g := range []*credential.Grants{g, again} {
		if token, err := g.Token(t.Context(), alice, nil); err != nil || !strings.HasPrefix(token, "acme/alice:") {
			t.Errorf("%s, %v", token, err)
		}
		for _, other := range []func(*credential.Subject){
			func(s *credential.Subject) { s.Tenant = "other" }, func(s *credential.Subject) { s.ID = "bob" }, func(s *credential.Subject) { s.Issuer = "" },
			func(s *credential.Subject) { s.Type = "agent" }, func(s *credential.Subject) { s.Tenant, s.Issuer = "acm", "ehttps://auth.example.com" },
		} {
			who := alice
			other(&who)
			if token, err := g.Token(t.Context(), who, nil); !errors.Is(err, credential.ErrNoGrant) || token != "" {
				t.Errorf("%+v: %s, %v", who, token, err)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "credentials.db"))
	if err != nil || strings.Contains(string(text), "acme/alice") {
		t.Errorf("a token is in the file in clear, or %v", err)
	}
}

// A token endpoint that fails gives no token, and ends no grant.
func TestFailedRefresh(t *testing.T) {
	a := newRotating(t)
	now := time.Now()
	g := a.grants(t.TempDir(), func() time.Time { return now })
	alice := person("acme", "alice")
	a.complete(g, alice)
	now = now.Add(95 * time.Second)
	a.fails = http.StatusServiceUnavailable
	if token, err := g.Token(t.Context(), alice, nil); err == nil || errors.Is(err, credential.ErrNoGrant) || token != "" {
		t.Errorf("while the endpoint is down: %s, %v", token, err)
	}
	a.fails = 0
	if token, err := g.Token(t.Context(), alice, nil); err != nil || token != "acme/alice:read+write:1" {
		t.Errorf("afterwards: %s, %v", token, err)
	}
	if _, err := g.Token(t.Context(), alice, []string{"admin"}); !errors.Is(err, credential.ErrScopes) {
		t.Errorf("more than was granted: %v", err)
	}
}
