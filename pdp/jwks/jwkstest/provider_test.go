package jwkstest_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

const redirect = "https://console.example.com/sign-in/callback"

// A party is a client of the provider with a browser.
type party struct {
	*testing.T
	*jwkstest.Provider
	config  oauth2.Config
	ids     *oidc.IDTokenVerifier
	browser http.Client
}

func newParty(t *testing.T) *party {
	p := &party{T: t, Provider: jwkstest.NewProvider(t, jwkstest.Client{ID: "console", Secret: "sesame", Redirect: redirect})}
	p.People["carol"] = map[string]any{"email": "carol@example.com"}
	found, err := oidc.NewProvider(t.Context(), p.URL)
	if err != nil {
		t.Fatal(err)
	}
	p.config = oauth2.Config{ClientID: "console", ClientSecret: "sesame", Endpoint: found.Endpoint(), RedirectURL: redirect, Scopes: []string{"openid"}}
	p.ids = found.Verifier(&oidc.Config{ClientID: "console"})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.browser = http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return p
}

// ask sends the browser to the provider. It returns the answer, or nil if the sign-in page is shown.
func (p *party) ask(options ...oauth2.AuthCodeOption) url.Values {
	p.Helper()
	return p.answer(p.browser.Get(p.address(options...)))
}

// enter chooses carol on the sign-in page.
func (p *party) enter(options ...oauth2.AuthCodeOption) url.Values {
	p.Helper()
	return p.answer(p.browser.PostForm(p.address(options...), url.Values{"person": {"carol"}}))
}

func (p *party) address(options ...oauth2.AuthCodeOption) string {
	return p.config.AuthCodeURL("state", append(options, oauth2.S256ChallengeOption("verifier"), oidc.Nonce("nonce"))...)
}

func (p *party) answer(response *http.Response, err error) url.Values {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
	defer response.Body.Close()
	to, err := response.Location()
	if err != nil {
		text, _ := io.ReadAll(response.Body)
		if !strings.Contains(string(text), "Sign in at the provider") {
			p.Fatalf("%d %s", response.StatusCode, text)
		}
		return nil
	}
	return to.Query()
}

// The provider signs a person in as OpenID Connect Core says, for a client that is not
// of this module.
func TestProvider(t *testing.T) {
	p := newParty(t)
	if p.ask() != nil {
		t.Fatal("somebody is signed in already")
	}
	code := p.enter(oauth2.SetAuthURLParam("acr_values", "other phr")).Get("code")
	if _, err := p.config.Exchange(t.Context(), code, oauth2.VerifierOption("another")); err == nil {
		t.Error("a code is good with another verifier")
	}
	if _, err := p.config.Exchange(t.Context(), code, oauth2.VerifierOption("verifier")); err == nil {
		t.Error("a code is good twice")
	}
	answer := p.ask()
	if answer.Get("state") != "state" || answer.Get("iss") != p.URL {
		t.Errorf("the answer is %v", answer)
	}
	token, err := p.config.Exchange(t.Context(), answer.Get("code"), oauth2.VerifierOption("verifier"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := p.ids.Verify(t.Context(), token.Extra("id_token").(string))
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		ACR   string   `json:"acr"`
		AMR   []string `json:"amr"`
		Email string   `json:"email"`
	}
	if err := id.Claims(&claims); err != nil || id.Subject != "carol" || id.Nonce != "nonce" || claims.ACR != "phr" || claims.AMR[0] != "hwk" || claims.Email != "carol@example.com" {
		t.Errorf("%+v %+v %v", id, claims, err)
	}
}

// Whoever has to sign in again does not come back at once.
func TestProviderAsksAgain(t *testing.T) {
	p := newParty(t)
	p.enter()
	for name, option := range map[string]oauth2.AuthCodeOption{
		"max_age=0":    oauth2.SetAuthURLParam("max_age", "0"),
		"prompt=login": oauth2.SetAuthURLParam("prompt", "login"),
		"another acr":  oauth2.SetAuthURLParam("acr_values", "phr"),
	} {
		if p.ask(option) != nil {
			t.Errorf("%s: the sign-in page is not shown", name)
		}
	}
	if p.ask(oauth2.SetAuthURLParam("max_age", "3600")) == nil {
		t.Error("max_age=3600: the sign-in page is shown")
	}
	if got := p.ask(oauth2.SetAuthURLParam("prompt", "none"), oauth2.SetAuthURLParam("max_age", "0")).Get("error"); got != "login_required" {
		t.Errorf("prompt=none: %s", got)
	}
}
