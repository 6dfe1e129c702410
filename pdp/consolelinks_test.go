package pdp_test

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Where people sign in at a provider, links sign nobody in unless the settings want both. Without a
// provider they do, unless the settings refuse them.
func TestLinksBesideAProvider(t *testing.T) {
	for name, c := range map[string]struct {
		provider bool
		links    *bool
		want     string // in the error of the command line; "" if a link signs in
	}{
		"no provider":                  {},
		"no provider, links wanted":    {links: new(true)},
		"no provider, links refused":   {links: new(false), want: "console.links is false"},
		"a provider":                   {provider: true, want: "set console.links: true and restart"},
		"a provider and links":         {provider: true, links: new(true)},
		"a provider and links refused": {provider: true, links: new(false), want: "console.links is false"},
	} {
		t.Run(name, func(t *testing.T) {
			address := docpage.FreeAddress(t)
			settings := console.Settings{Listen: address, URL: "http://" + address, Links: c.links}
			if c.provider {
				settings.OIDC = &console.OIDC{Issuer: "http://127.0.0.1:1", ClientID: "console", Scopes: map[string][]callers.Scope{"a": {callers.ScopeAudit}}}
			}
			s := start(t, pdp.Config{Console: settings})
			said := map[bool]string{true: "console links on\n", false: "console links off\n"}[c.want == ""]
			if _, text := get(t, s.admin+"/readyz?verbose"); !strings.Contains(text, said) {
				t.Errorf("readyz does not say %q: %s", said, text)
			}
			b := newBrowser(t, s.console)
			if _, page, _ := b.get("/sign-in"); strings.Contains(page, "policy-service console --as") != (c.want == "") {
				t.Errorf("the page for signing in: %s", page)
			}
			if c.want == "" {
				b.byLink(s)
				return
			}
			_, err := console.Link(s.state, authzen.Subject{Type: "user", ID: "carol"}, time.Now())
			if !errors.Is(err, console.ErrNoLinks) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the command line: %v", err)
			}
		})
	}
}

// byLink signs carol in by a link.
func (b *browser) byLink(s *service) {
	b.Helper()
	_, ticket := link(b.T, s, time.Now())
	if status, page, _ := b.post("/sign-in/local", ticket); status != http.StatusOK || !strings.Contains(page, "carol") {
		b.Errorf("by a link: %d %s", status, page)
	}
}

// When the settings of a running service get a provider, links that were made before sign nobody in, and
// sessions by a link end. Without the provider, links sign in again, but neither those sessions nor those links
// are worth anything.
func TestLinksEndWithAProvider(t *testing.T) {
	address := docpage.FreeAddress(t)
	base := "http://" + address
	p := jwkstest.NewProvider(t, jwkstest.Client{ID: "console", Redirect: base + "/sign-in/callback"})
	var now *console.OIDC
	reload := make(chan os.Signal, 1)
	s := start(t, pdp.Config{
		Reload:   reload,
		Console:  console.Settings{Listen: address, URL: base},
		Settings: func() (*pdp.Settings, error) { return &pdp.Settings{OIDC: now}, nil },
	})
	b := newBrowser(t, base)
	b.byLink(s)
	path, ticket := link(t, s, time.Now())

	now = &console.OIDC{Issuer: p.URL, ClientID: "console", Scopes: map[string][]callers.Scope{"approvers": {callers.ScopeApprove}}}
	reload <- syscall.SIGHUP
	process.Eventually(t, "the session by a link has ended", b.signedOut)
	for name, try := range map[string]func() (int, string, string){
		"the link":   func() (int, string, string) { return newBrowser(t, base).get(path) },
		"its button": func() (int, string, string) { return newBrowser(t, base).post("/sign-in/local", ticket) },
		"no ticket":  func() (int, string, string) { return newBrowser(t, base).post("/sign-in/local", url.Values{}) },
	} {
		if status, page, _ := try(); status != http.StatusForbidden || !strings.Contains(page, "The console refuses links") && !strings.Contains(page, "the console refuses links") {
			t.Errorf("%s: %d %s", name, status, page)
		}
	}
	if _, err := console.Link(s.state, authzen.Subject{Type: "user", ID: "carol"}, time.Now()); !errors.Is(err, console.ErrNoLinks) {
		t.Errorf("the command line: %v", err)
	}
	if entries := adminEntries(t, s); strings.Count(entries, `"action":"sign_in"`) != 1 {
		t.Errorf("the log: %s", entries)
	}

	now = nil
	reload <- syscall.SIGHUP
	process.Eventually(t, "links are made again", func() bool {
		_, err := console.Link(s.state, authzen.Subject{Type: "user", ID: "carol"}, time.Now())
		return err == nil
	})
	if !b.signedOut() {
		t.Error("the session of before the provider goes on after it")
	}
	if status, page, _ := b.post("/sign-in/local", ticket); status != http.StatusForbidden || !b.signedOut() {
		t.Errorf("a link of before the provider: %d %s", status, page)
	}
	b.byLink(s)
}

// Links beside a provider are for a console that this host alone reaches.
func TestLinksNeedThisHost(t *testing.T) {
	for name, s := range map[string]console.Settings{
		"other hosts":  {Listen: "0.0.0.0:8082", TLSCert: "c", TLSKey: "k"},
		"no host":      {Listen: ":8082", TLSCert: "c", TLSKey: "k"},
		"a proxy":      {Listen: "127.0.0.1:8082", BehindProxy: true, URL: "https://console.example.com"},
		"another host": {Listen: "192.0.2.1:8082", TLSCert: "c", TLSKey: "k"},
	} {
		s.Links = new(true)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), "console.links") {
			t.Errorf("%s: %v", name, err)
		}
	}
	own := console.Settings{Listen: "localhost:8082", Links: new(true)}
	if err := own.Check(); err != nil {
		t.Error(err)
	}
}
