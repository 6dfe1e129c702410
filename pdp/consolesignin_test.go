package pdp_test

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// startSignIn starts a service whose console has an identity provider, with carol and dave, who may
// approve, and eve, who may nothing.
func startSignIn(t *testing.T, change func(*console.OIDC)) (*service, *jwkstest.Provider, *browser) {
	t.Helper()
	address := docpage.FreeAddress(t)
	base := "http://" + address
	p := jwkstest.NewProvider(t, jwkstest.Client{ID: "console", Secret: "sesame", Redirect: base + "/sign-in/callback"})
	for name, groups := range map[string][]string{"carol": {"approvers"}, "dave": {"approvers", "auditors"}, "eve": {"staff"}} {
		p.People[name] = map[string]any{"email": name + "@example.com", "email_verified": true, "groups": groups}
	}
	settings := console.OIDC{
		Issuer: p.URL, ClientID: "console", ClientSecretFile: filepath.Join(t.TempDir(), "secret"), AliasClaims: []string{"sub"},
		Scopes: map[string][]callers.Scope{"approvers": {callers.ScopeApprove}, "auditors": {callers.ScopeAudit}},
	}
	if err := os.WriteFile(settings.ClientSecretFile, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&settings)
	}
	c := pdp.Config{Policies: anybodyApproves}
	c.Console = console.Settings{Listen: address, URL: base, OIDC: &settings}
	s := start(t, c)
	return s, p, newBrowser(t, base)
}

var action = regexp.MustCompile(`action="\?([^"]+)"`)

// signIn goes to a page of the console, and chooses a person at the provider.
func (b *browser) signIn(p *jwkstest.Provider, person, path string) (status int, page, at string) {
	b.Helper()
	_, form, _ := b.get(path)
	return b.choose(p, person, form)
}

// choose chooses a person on the page of the provider.
func (b *browser) choose(p *jwkstest.Provider, person, form string) (status int, page, at string) {
	b.Helper()
	query := action.FindStringSubmatch(form)
	if query == nil {
		b.Fatalf("not the page of the provider: %s", form)
	}
	return b.send(http.MethodPost, p.URL+"/authorize?"+html.UnescapeString(query[1]), p.URL, url.Values{"person": {person}})
}

// adminEntries returns the entries of kind admin.
func adminEntries(t *testing.T, s *service) string {
	t.Helper()
	_, entries := get(t, s.admin+pdp.PathLogQuery+"?kind=admin")
	return entries
}

// Whoever opens a page signed out signs in at the provider and comes to that page, with the id by
// which policies know people. Signing in and out are in the log.
func TestSignInAtTheProvider(t *testing.T) {
	s, p, b := startSignIn(t, nil)
	status, page, at := b.signIn(p, "carol", "/requests?view=mine")
	if status != http.StatusOK || at != "/requests" || !strings.Contains(page, "carol@example.com") {
		t.Fatalf("%d at %s: %s", status, at, page)
	}
	asked := p.Asked()[0]
	if asked.Get("redirect_uri") != b.base+"/sign-in/callback" || asked.Get("code_challenge_method") != "S256" || len(asked.Get("state")) < 43 || len(asked.Get("nonce")) < 43 ||
		asked.Get("scope") != "openid email profile" || asked.Has("max_age") {
		t.Errorf("the authorization request has %v", asked)
	}
	if _, _, at := b.post("/sign-out", nil); at != "/sign-in" {
		t.Errorf("signing out leads to %s", at)
	}
	if _, page, _ := b.get("/sign-in"); !strings.Contains(page, "Sign in at <bdi>"+strings.TrimPrefix(p.URL, "http://")) {
		t.Errorf("the page for signing in: %s", page)
	}
	entries := adminEntries(t, s)
	for _, part := range []string{`"action":"sign_in","by":"user:carol@example.com"`, `"method":"oidc"`, `"sub":"carol"`, `"token_digest":"sha256:`, `"action":"sign_out"`} {
		if !strings.Contains(entries, part) {
			t.Errorf("the log has no %s: %s", part, entries)
		}
	}
}

// A person of no known group signs in nowhere, and the log says who it was.
func TestSignInNeedsAGroup(t *testing.T) {
	s, p, b := startSignIn(t, nil)
	status, page, _ := b.signIn(p, "eve", "/requests")
	if status != http.StatusForbidden || !strings.Contains(page, "Your groups do not let you see this") {
		t.Errorf("%d %s", status, page)
	}
	other := regexp.MustCompile(`href="([^"]*)">Use another account`).FindStringSubmatch(page)
	if other == nil || !strings.Contains(page, "<bdi>The settings of the console") {
		t.Fatalf("no way to another account: %s", page)
	}
	b.get(html.UnescapeString(other[1]))
	if asked := p.Asked(); asked[len(asked)-1].Get("prompt") != "login" {
		t.Errorf("the provider was asked with %v", asked[len(asked)-1])
	}
	if _, form, _ := b.get("/requests"); action.FindString(form) == "" && !strings.Contains(form, "Your groups") {
		t.Errorf("eve is signed in: %s", form)
	}
	if entries := adminEntries(t, s); !strings.Contains(entries, `"action":"sign_in_refused"`) || !strings.Contains(entries, `"sub":"eve"`) {
		t.Errorf("the log: %s", entries)
	}
}

// An ID token that is not for this sign-in signs nobody in.
func TestSignInRefusesTokens(t *testing.T) {
	s, p, _ := startSignIn(t, nil)
	other := jwkstest.NewKey(t)
	for name, fault := range map[string]struct {
		change func(map[string]any)
		sign   func(map[string]any) string
	}{
		"another nonce":             {change: func(c map[string]any) { c["nonce"] = "other" }},
		"no nonce":                  {change: func(c map[string]any) { delete(c, "nonce") }},
		"another audience":          {change: func(c map[string]any) { c["aud"] = "other" }},
		"several audiences":         {change: func(c map[string]any) { c["aud"] = []string{"console", "other"} }},
		"another client":            {change: func(c map[string]any) { c["aud"], c["azp"] = []string{"console", "other"}, "other" }},
		"another issuer":            {change: func(c map[string]any) { c["iss"] = "https://evil.example" }},
		"expired":                   {change: func(c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() }},
		"email not verified":        {change: func(c map[string]any) { c["email_verified"] = false }},
		"email said to be text":     {change: func(c map[string]any) { c["email_verified"] = "true" }},
		"no email":                  {change: func(c map[string]any) { delete(c, "email") }},
		"claim in another spelling": {change: func(c map[string]any) { c["Sub"] = "dave" }},
		"groups are a number":       {change: func(c map[string]any) { c["groups"] = 1 }},
		"key of another": {sign: func(c map[string]any) string {
			return jwkstest.Sign(t, jose.RS256, other, jwkstest.KeyID, c, nil)
		}},
		"secret as key": {sign: func(c map[string]any) string {
			return jwkstest.Sign(t, jose.HS256, []byte("a secret of at least thirty-two bytes"), jwkstest.KeyID, c, nil)
		}},
		"unsigned": {sign: func(map[string]any) string { return "eyJhbGciOiJub25lIn0.e30." }},
		"no token": {sign: func(map[string]any) string { return "" }},
	} {
		t.Run(name, func(t *testing.T) {
			p.Change(fault.change)
			p.SignBy(fault.sign)
			b := newBrowser(t, s.console)
			if status, page, at := b.signIn(p, "carol", "/requests"); status < 400 || at != "/sign-in/callback" {
				t.Errorf("%d at %s: %s", status, at, page)
			}
			if !b.signedOut() {
				t.Error("carol is signed in")
			}
		})
	}
	p.Change(nil)
	p.SignBy(nil)
	if status, _, at := newBrowser(t, s.console).signIn(p, "carol", "/requests"); status != http.StatusOK || at != "/requests" {
		t.Errorf("without a fault: %d at %s", status, at)
	}
}

// signedOut reports whether the browser has no session.
func (b *browser) signedOut() bool {
	b.Helper()
	still := *b.http
	still.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := still.Get(b.base + "/requests")
	if err != nil {
		b.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusSeeOther
}

// The answer of the provider is for the browser that asked, once: nobody is signed in as another by a
// link, and a code that was stolen is worth nothing.
func TestSignInIsOfTheBrowserThatBegan(t *testing.T) {
	s, p, attacker := startSignIn(t, nil)
	callback := attacker.stopAtCallback(p, "carol")
	victim := newBrowser(t, s.console)
	if status, page, _ := victim.get(callback); status != http.StatusForbidden || !strings.Contains(page, "Another browser") {
		t.Errorf("in another browser: %d %s", status, page)
	}
	victim = newBrowser(t, s.console)
	victim.get("/sign-in/start") // has a sign-in of its own
	if status, _, _ := victim.get(attacker.stopAtCallback(p, "carol")); status != http.StatusForbidden || !victim.signedOut() {
		t.Errorf("in another browser with a sign-in: %d", status)
	}
	callback = attacker.stopAtCallback(p, "carol")
	if _, _, at := attacker.get(callback); at != "/" && at != "/requests" {
		t.Errorf("in the browser that began: at %s", at)
	}
	for range 2 {
		if status, page, _ := attacker.get(callback); status != http.StatusForbidden || !strings.Contains(page, "was used before") || !strings.Contains(page, `href="/"`) {
			t.Errorf("once more: %d %s", status, page)
		}
	}
	for _, made := range []string{"/sign-in/callback", "/sign-in/callback?state=x&code=y", "/sign-in/callback?code=y"} {
		if status, page, _ := newBrowser(t, s.console).get(made); status != http.StatusForbidden || !strings.Contains(page, "did not ask for it. Begin again") {
			t.Errorf("%s: %d %s", made, status, page)
		}
	}
}

// stopAtCallback signs a person in at the provider, and returns the path to which the provider leads.
func (b *browser) stopAtCallback(p *jwkstest.Provider, person string) string {
	b.Helper()
	_, form, _ := b.get("/sign-in/start")
	if query := action.FindStringSubmatch(form); query == nil {
		b.Fatalf("not the page of the provider: %s", form)
	}
	defer func(was func(*http.Request, []*http.Request) error) { b.http.CheckRedirect = was }(b.http.CheckRedirect)
	var callback string
	b.http.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		callback = r.URL.RequestURI()
		return http.ErrUseLastResponse
	}
	b.choose(p, person, form)
	b.http.Jar.SetCookies(mustParse(b.T, p.URL), []*http.Cookie{{Name: "provider", MaxAge: -1, Path: "/"}})
	return callback
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A cookie that was planted before signing in is worth nothing after it.
func TestSessionHasANewID(t *testing.T) {
	s, p, b := startSignIn(t, nil)
	at := mustParse(t, b.base)
	name := "session-" + at.Port()
	b.http.Jar.SetCookies(at, []*http.Cookie{{Name: name, Value: "planted", Path: "/"}})
	b.signIn(p, "carol", "/requests")
	ids := map[string]bool{"planted": true}
	for _, cookie := range b.http.Jar.Cookies(at) {
		if cookie.Name == name {
			ids[cookie.Value] = true
		}
	}
	if len(ids) != 2 {
		t.Errorf("the sessions are %v", ids)
	}
	thief := newBrowser(t, s.console)
	thief.http.Jar.SetCookies(at, []*http.Cookie{{Name: name, Value: "planted", Path: "/"}})
	if !thief.signedOut() {
		t.Error("the planted id has a session")
	}
	for id := range ids {
		if strings.Contains(adminEntries(t, s), id) {
			t.Errorf("the log has the id %s", id)
		}
	}
}

// While the provider is down, nobody signs in and a page says so. Afterwards it goes on.
func TestSignInSaysThatTheProviderIsDown(t *testing.T) {
	_, p, b := startSignIn(t, nil)
	p.Down.Store(true)
	status, page, _ := b.get("/requests")
	if status != http.StatusServiceUnavailable || !strings.Contains(page, "identity provider does not answer") || !strings.Contains(page, "Sign in again") {
		t.Errorf("%d %s", status, page)
	}
	p.Down.Store(false)
	process.Eventually(t, "the provider is asked again", func() bool { _, page, _ := b.get("/requests"); return action.MatchString(page) })
	_, form, _ := b.get("/requests")
	p.Down.Store(true)
	b.http.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if "http://"+r.URL.Host == p.URL {
			return http.ErrUseLastResponse
		}
		return nil
	}
	process.Eventually(t, "a provider that stopped after use is noticed", func() bool {
		status, page, _ := b.get("/")
		return status == http.StatusServiceUnavailable && strings.Contains(page, "identity provider does not answer")
	})
	p.Down.Store(false)
	b.http.CheckRedirect = nil
	process.Eventually(t, "the provider is asked again", func() bool { _, page, _ := b.get("/requests"); return action.MatchString(page) })
	p.Keys.Down.Store(true)
	if status, page, _ := b.choose(p, "carol", form); status < 400 {
		t.Errorf("without keys: %d %s", status, page)
	}
}

// Settings that are read again count for people who are signed in.
func TestSessionFollowsTheSettings(t *testing.T) {
	address := docpage.FreeAddress(t)
	base := "http://" + address
	p := jwkstest.NewProvider(t, jwkstest.Client{ID: "console", Redirect: base + "/sign-in/callback"})
	p.People["carol"] = map[string]any{"email": "carol@example.com", "email_verified": true, "groups": []string{"approvers"}}
	now := console.OIDC{Issuer: p.URL, ClientID: "console", Scopes: map[string][]callers.Scope{"approvers": {callers.ScopeApprove}}}
	reload := make(chan os.Signal, 1)
	start(t, pdp.Config{
		Reload:   reload,
		Console:  console.Settings{Listen: address, URL: base, OIDC: &now},
		Settings: func() (*pdp.Settings, error) { then := now; return &pdp.Settings{OIDC: &then}, nil },
	})
	b := newBrowser(t, base)
	b.signIn(p, "carol", "/requests")
	now.Scopes = map[string][]callers.Scope{"others": {callers.ScopeApprove}}
	reload <- syscall.SIGHUP
	process.Eventually(t, "carol may see nothing", func() bool {
		status, page, _ := b.get("/requests")
		return status == http.StatusForbidden && strings.Contains(page, "Your groups do not let you see this")
	})
}

// Settings of signing in that would let the wrong people in are refused.
func TestOIDCSettingsAreChecked(t *testing.T) {
	good := console.OIDC{Issuer: "https://idp.example.com", ClientID: "console", Scopes: map[string][]callers.Scope{"approvers": {callers.ScopeApprove}}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*console.OIDC){
		"issuer is required":       func(o *console.OIDC) { o.Issuer = "" },
		"issuer must be an https":  func(o *console.OIDC) { o.Issuer = "http://idp.example.com" },
		"client_id is required":    func(o *console.OIDC) { o.ClientID = "" },
		"scopes is required":       func(o *console.OIDC) { o.Scopes = nil },
		"scopes.a must be a group": func(o *console.OIDC) { o.Scopes = map[string][]callers.Scope{"a": {}} },
		"scopes.a.0 must be one":   func(o *console.OIDC) { o.Scopes = map[string][]callers.Scope{"a": {callers.ScopeEvaluate}} },
		"step_up must be":          func(o *console.OIDC) { o.StepUp = "sometimes" },
		"acr_values has no effect": func(o *console.OIDC) { o.StepUp, o.ACRValues = console.StepUpNever, []string{"phr"} },
		"acr_values is empty":      func(o *console.OIDC) { o.ACRValues = []string{} },
		"tenants goes together":    func(o *console.OIDC) { o.Tenants = []string{"acme"} },
		"tenants.0 no tenant":      func(o *console.OIDC) { o.Tenants, o.TenantClaim = []string{"../acme"}, "org" },
		"alias_claims.0 must be":   func(o *console.OIDC) { o.AliasClaims = []string{""} },
	} {
		bad := good
		bad.Scopes = maps.Clone(good.Scopes)
		change(&bad)
		if err := bad.Check(); err == nil || !strings.Contains(strings.ReplaceAll(fmt.Sprint(err), ":", ""), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
