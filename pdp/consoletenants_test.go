package pdp_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// What belongs to another tenant looks as what does not exist, on every page, for whoever has all scopes.
func TestConsoleHidesOtherTenants(t *testing.T) {
	address := docpage.FreeAddress(t)
	base := "http://" + address
	p := jwkstest.NewProvider(t, jwkstest.Client{ID: "console", Redirect: base + "/sign-in/callback"})
	for person, org := range map[string]string{"carol": "acme", "mallory": "globex", "eve": "evil"} {
		p.People[person] = map[string]any{"email": person + "@example.com", "email_verified": true, "groups": []string{"all"}, "org": org}
	}
	store := fstest.MapFS{}
	for _, tenant := range []string{"acme", "globex"} {
		store["tenants/"+tenant+"/policies.cedar"] = anybodyApproves["policies.cedar"]
		store["tenants/"+tenant+"/config.yaml"] = anybodyApproves["config.yaml"]
	}
	s := &staff{t: t, service: start(t, pdp.Config{Policies: store, Console: console.Settings{Listen: address, URL: base, OIDC: &console.OIDC{
		Issuer: p.URL, ClientID: "console", TenantClaim: "org", Tenants: []string{"acme", "globex"},
		Scopes: map[string][]callers.Scope{"all": {callers.ScopeApprove, callers.ScopeAudit, callers.ScopeAdmin}},
	}}})}
	main := s.main
	s.main += "/tenants/acme"
	task := s.asked("", "call", "alice", "")
	s.main = main
	carol, mallory := newBrowser(t, base), newBrowser(t, base)
	carol.signIn(p, "carol", "/requests")
	mallory.signIn(p, "mallory", "/requests")
	if status, page, _ := carol.get("/requests/" + task); status != http.StatusOK || !strings.Contains(page, "alice") {
		t.Fatalf("carol: %d %s", status, page)
	}
	const unknown = "arq_AAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, route := range []struct{ method, path string }{{"GET", ""}, {"POST", "/decision"}, {"POST", "/reveal"}} {
		form := map[string][]string{"decision": {"deny"}, "path": {"/context"}, "ticket": {"x"}, "sheet": {"sha256:" + strings.Repeat("0", 64)}}
		status, page, _ := mallory.send(route.method, base+"/requests/"+task+route.path, base, form)
		wantStatus, wantPage, _ := mallory.send(route.method, base+"/requests/"+unknown+route.path, base, form)
		if status != http.StatusNotFound || status != wantStatus || strings.ReplaceAll(page, task, unknown) != wantPage {
			t.Errorf("%s %s: %d and %d, or other pages", route.method, route.path, status, wantStatus)
		}
	}
	for _, view := range []string{"mine", "others", "decided", "standing"} {
		if _, page, _ := mallory.get("/requests?view=" + view); strings.Contains(page, "alice") || strings.Contains(page, "acme") {
			t.Errorf("the list %s has a request of acme", view)
		}
	}
	if status, page, _ := newBrowser(t, base).signIn(p, "eve", "/requests"); status != http.StatusForbidden || !strings.Contains(page, "names no tenant") {
		t.Errorf("a tenant that the settings do not allow: %d %s", status, page)
	}
	if votes := s.read(task).Items[0].Votes; len(votes) != 0 {
		t.Errorf("the votes are %+v", votes)
	}
}

// No page of an operator without further scopes links to a page that they do not open.
func TestLinksNeedTheScope(t *testing.T) {
	s, p, b := startSignIn(t, func(o *console.OIDC) { o.Scopes["operators"] = []callers.Scope{callers.ScopeAdmin} })
	p.People["dave"]["groups"] = []string{"operators"}
	post(t, http.DefaultClient, s.main+authzen.PathEvaluation, aliceReads)
	b.signIn(p, "dave", "/")
	pages := []string{"/", "/policies", "/policies/current", "/tests", "/shadow", "/try", "/replays"}
	for _, path := range pages {
		page := b.want(path)
		for _, link := range regexp.MustCompile(`<a [^>]*href="(/[^"#]*)`).FindAllStringSubmatch(page, -1) {
			if status, _, _ := b.get(html.UnescapeString(link[1])); status != http.StatusOK {
				t.Errorf("%s links to %s, which is %d", path, link[1], status)
			}
		}
	}
	_, page, _ := b.post("/try", url.Values{"request": {aliceReads}, "by": {"current"}})
	if !strings.Contains(page, "This was a try") || strings.Contains(page, `href="/decisions`) {
		t.Errorf("a try: %s", page)
	}
}

// The overview of a person with tenants says why it lacks what is about all tenants. A person of a group
// of every tenant has it.
func TestOverviewOfTenants(t *testing.T) {
	s, p, b := startSignIn(t, func(o *console.OIDC) {
		o.TenantClaim, o.AllTenantsGroups = "org", []string{"sre"}
		o.Scopes["operators"], o.Scopes["sre"] = []callers.Scope{callers.ScopeAdmin}, []callers.Scope{callers.ScopeAdmin}
	})
	p.People["dave"]["groups"], p.People["dave"]["org"] = []string{"operators"}, "globex"
	b.signIn(p, "dave", "/")
	b.want("/", "You are here for 1 tenant.", "are about all tenants")
	p.People["carol"]["groups"] = []string{"sre"}
	b = newBrowser(t, s.console)
	if _, page, _ := b.signIn(p, "carol", "/"); strings.Contains(page, "You are here for") || !strings.Contains(page, "Last hour") {
		t.Errorf("the overview of a person for every tenant: %s", page)
	}
}
