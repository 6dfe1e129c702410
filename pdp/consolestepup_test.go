package pdp_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// stepUp is a request on which carol, who is signed in at the provider, decides.
type stepUp struct {
	*staff
	provider *jwkstest.Provider
	browser  *browser
	task     string
}

func newStepUp(t *testing.T, change func(*console.OIDC)) *stepUp {
	t.Helper()
	s, p, b := startSignIn(t, change)
	b.signIn(p, "carol", "/requests")
	staff := &staff{service: s, t: t}
	return &stepUp{staff, p, b, staff.asked("", "call", "alice", "")}
}

var toProvider = regexp.MustCompile(`href="([^"]*)">Go to the identity provider`)

// approve sends the form, and returns the page of the provider that comes then.
func (s *stepUp) approve(more ...string) (form string) {
	s.t.Helper()
	page := s.browser.open(s.task)
	return s.follow(page.decide(page.form("approve", more...)))
}

// follow goes to the provider.
func (s *stepUp) follow(page *decisionPage) (form string) {
	s.t.Helper()
	link := toProvider.FindStringSubmatch(page.text)
	if link == nil {
		s.t.Fatalf("%d, no step-up: %s", page.status, page.words())
	}
	_, form, _ = s.browser.send(http.MethodGet, html.UnescapeString(link[1]), "", nil)
	return form
}

// votes returns the number of votes that count.
func (s *stepUp) votes() int { return len(s.read(s.task).Items[0].Votes) }

func sha256Hex(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// An approval counts when its person has signed in again, for exactly it: the nonce that the provider has
// signed can be made of the vote.
func TestApprovalNeedsANewSignIn(t *testing.T) {
	s := newStepUp(t, nil)
	before := s.browser.sessionID()
	form := s.approve("comment", "for the release")
	if s.votes() != 0 {
		t.Fatal("the vote counts before the provider has answered")
	}
	status, page, at := s.browser.choose(s.provider, "carol", form)
	if status != http.StatusOK || at != "/requests/"+s.task || !strings.Contains(page, "approved this") {
		t.Fatalf("%d at %s: %s", status, at, page)
	}
	asked := s.provider.Asked()
	last := asked[len(asked)-1]
	if last.Get("max_age") != "0" || last.Get("prompt") != "login" {
		t.Errorf("the provider was asked with %v", last)
	}
	vote := s.read(s.task).Items[0].Votes[0]
	if vote.Approver.ID != "carol@example.com" || vote.Authn.Method != "oidc" || !vote.Authn.Bound || vote.Authn.Subject != "carol" || vote.Authn.Token == "" || vote.Authn.Time.IsZero() {
		t.Errorf("%+v by %+v", vote, vote.Authn)
	}
	a := vote.Authn
	lines := []string{"policy-service verdict 1", vote.Sheet, "approve", a.Items, a.Until, sha256Hex("for the release"), a.Rest, a.Salt, ""}
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	if want := base64.RawURLEncoding.EncodeToString(sum[:]); last.Get("nonce") != want {
		t.Errorf("the nonce is %s, and that of the vote %s", last.Get("nonce"), want)
	}
	_, entries := get(t, s.admin+pdp.PathLogQuery+"?kind=approval&task="+s.task)
	for _, member := range []string{`"nonce":"` + last.Get("nonce"), `"nonce_salt":"` + a.Salt, `"key_id":"` + jwkstest.KeyID} {
		if !strings.Contains(entries, member) {
			t.Errorf("the entry of the vote has no %s: %s", member, entries)
		}
	}
	if after := s.browser.sessionID(); after == before || after == "" {
		t.Error("the session has the id of before")
	}
	old := newBrowser(t, s.browser.base)
	at2 := mustParse(t, old.base)
	old.http.Jar.SetCookies(at2, []*http.Cookie{{Name: "session-" + at2.Port(), Value: before, Path: "/"}})
	if !old.signedOut() {
		t.Error("the id of before is still good")
	}
}

// sessionID returns the cookie of the session.
func (b *browser) sessionID() string {
	b.Helper()
	at := mustParse(b.T, b.base)
	for _, cookie := range b.http.Jar.Cookies(at) {
		if cookie.Name == "session-"+at.Port() {
			return cookie.Value
		}
	}
	return ""
}

// A denial and, where the settings say so, an approval need no new sign-in.
func TestDecisionsWithoutANewSignIn(t *testing.T) {
	s := newStepUp(t, nil)
	page := s.browser.open(s.task)
	if after := page.decide(page.form("deny")); !strings.Contains(after.words(), "You denied this") {
		t.Errorf("deny: %d %s", after.status, after.words())
	}
	if vote := s.read(s.task).Items[0].Votes[0]; vote.Authn.Bound || vote.Authn.Method != "oidc" || vote.Authn.Token == "" {
		t.Errorf("deny: %+v", vote.Authn)
	}
	s = newStepUp(t, func(o *console.OIDC) { o.StepUp = console.StepUpNever })
	page = s.browser.open(s.task)
	if after := page.decide(page.form("approve")); !strings.Contains(after.words(), "You approved this") || s.read(s.task).Items[0].Votes[0].Authn.Bound {
		t.Errorf("never: %d %s", after.status, after.words())
	}
}

// A stolen session does not hand a decision to an accomplice: delegating needs a new sign-in as well.
func TestDelegationNeedsANewSignIn(t *testing.T) {
	s := newStepUp(t, nil)
	page := s.browser.open(s.task)
	after := page.decide(page.form("delegate", "to", "dave@example.com"))
	if toProvider.FindString(after.text) == "" || len(s.read(s.task).Items[0].Delegations) != 0 {
		t.Errorf("delegated without a new sign-in: %s", after.words())
	}
}

// A form that was open while its person signed in again for another decision is still good.
func TestFormsOutliveANewSignIn(t *testing.T) {
	s := newStepUp(t, nil)
	other := s.asked("", "call", "alice", "")
	open := s.browser.open(other)
	s.browser.choose(s.provider, "carol", s.approve())
	if after := open.decide(open.form("deny")); !strings.Contains(after.words(), "You denied this") {
		t.Errorf("the form of before: %d %s", after.status, after.words())
	}
}

// A form with two decisions decides nothing.
func TestFormHasOneDecision(t *testing.T) {
	s := newStepUp(t, nil)
	page := s.browser.open(s.task)
	form := page.form("deny")
	form.Add("decision", "approve")
	if after := page.decide(form); after.status != http.StatusBadRequest || s.votes() != 0 {
		t.Errorf("two decisions: %d %s", after.status, after.words())
	}
}

// Nothing but a new sign-in of the same person, for this verdict and as strong as required, makes the vote.
func TestStepUpRefusesOtherTokens(t *testing.T) {
	s := newStepUp(t, func(o *console.OIDC) { o.ACRValues = []string{"phr", "mfa"} })
	for name, change := range map[string]func(map[string]any){
		"of another verdict":       func(c map[string]any) { c["nonce"] = s.provider.Asked()[0].Get("nonce") },
		"of another person":        func(c map[string]any) { c["sub"] = "dave" },
		"with another id":          func(c map[string]any) { c["email"] = "dave@example.com" },
		"of yesterday":             func(c map[string]any) { c["auth_time"] = time.Now().Add(-24 * time.Hour).Unix() },
		"of two minutes ago":       func(c map[string]any) { c["auth_time"] = time.Now().Add(-2 * time.Minute).Unix() },
		"of the future":            func(c map[string]any) { c["auth_time"] = time.Now().Add(time.Hour).Unix() },
		"without a time":           func(c map[string]any) { delete(c, "auth_time") },
		"with a weak method":       func(c map[string]any) { c["acr"] = "pwd" },
		"without a method":         func(c map[string]any) { delete(c, "acr") },
		"of nobody who may decide": func(c map[string]any) { c["groups"] = []string{"staff"} },
	} {
		t.Run(name, func(t *testing.T) {
			form := s.approve()
			s.provider.Change(change)
			status, page, _ := s.browser.choose(s.provider, "carol", form)
			s.provider.Change(nil)
			if status != http.StatusForbidden || !strings.Contains(page, "Nothing was decided") && !strings.Contains(page, "Your groups") {
				t.Errorf("%d %s", status, page)
			}
			if s.votes() != 0 {
				t.Error("the vote counts")
			}
		})
	}
	if entries := adminEntries(t, s.service); strings.Count(entries, `"action":"step_up_refused","by":"user:carol@example.com"`) != 10 {
		t.Errorf("the log: %s", entries)
	}
	if status, page, _ := s.browser.choose(s.provider, "dave", s.approve()); status != http.StatusForbidden || !strings.Contains(page, "another person signed in") {
		t.Errorf("dave: %d %s", status, page)
	}
	if status, _, at := s.browser.choose(s.provider, "carol", s.approve()); status != http.StatusOK || at != "/requests/"+s.task || s.votes() != 1 {
		t.Errorf("without a fault: %d at %s", status, at)
	}
}

// callbackOf chooses a person, and returns the path to which the provider leads, without going there.
func (s *stepUp) callbackOf(person, form string) (path string) {
	s.t.Helper()
	defer func() { s.browser.http.CheckRedirect = nil }()
	s.browser.http.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		path = r.URL.RequestURI()
		return http.ErrUseLastResponse
	}
	s.browser.choose(s.provider, person, form)
	return path
}

// The answer to one verdict is no answer to another, and is good once: of fifty that come at once, one counts.
func TestStepUpAnswersOneVerdictOnce(t *testing.T) {
	s := newStepUp(t, nil)
	first, second := s.callbackOf("carol", s.approve("comment", "one")), s.callbackOf("carol", s.approve("comment", "two"))
	mixed := url.Values{"state": {mustParse(t, second).Query().Get("state")}, "code": {mustParse(t, first).Query().Get("code")}, "iss": {s.provider.URL}}
	if status, page, _ := s.browser.get("/sign-in/callback?" + mixed.Encode()); status != http.StatusForbidden || s.votes() != 0 {
		t.Errorf("the code of another verdict: %d %s", status, page)
	}
	if status, _, _ := s.browser.get(second); status != http.StatusForbidden || s.votes() != 0 {
		t.Errorf("a state that was used: %d", status)
	}
	other := newBrowser(t, s.browser.base)
	other.signIn(s.provider, "carol", "/requests")
	if status, page, _ := other.get(first); status != http.StatusForbidden || !strings.Contains(page, "Another browser, or another session") || s.votes() != 0 {
		t.Errorf("in another browser of the same person: %d %s", status, page)
	}
	third := s.callbackOf("carol", s.approve("comment", "three"))
	cookies := s.browser.http.Jar.Cookies(mustParse(t, s.browser.base))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.browser.base+third, nil)
			if err != nil {
				t.Error(err)
				return
			}
			for _, cookie := range cookies {
				r.AddCookie(cookie)
			}
			answer, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			answer.Body.Close()
		})
	}
	all.Wait()
	if got := s.votes(); got != 1 {
		t.Errorf("%d votes count", got)
	}
}

// Cancelling at the provider decides nothing, nor does a provider that is down; then the same page decides.
func TestStepUpThatEndsDecidesNothing(t *testing.T) {
	s := newStepUp(t, nil)
	query := action.FindStringSubmatch(s.approve())
	status, page, _ := s.browser.send(http.MethodPost, s.provider.URL+"/authorize?"+html.UnescapeString(query[1]), s.provider.URL, url.Values{"cancel": {"yes"}})
	if status != http.StatusForbidden || !strings.Contains(page, "Nothing was decided") || !strings.Contains(page, fmt.Sprintf(`href="/requests/%s"`, s.task)) {
		t.Errorf("cancelled: %d %s", status, page)
	}
	form := s.approve()
	s.provider.Keys.Down.Store(true)
	callback := s.callbackOf("carol", form)
	s.provider.Down.Store(true)
	if status, page, _ := s.browser.get(callback); status != http.StatusServiceUnavailable || !strings.Contains(page, "Nothing was decided") {
		t.Errorf("down: %d %s", status, page)
	}
	s.provider.Down.Store(false)
	s.provider.Keys.Down.Store(false)
	if s.votes() != 0 {
		t.Error("a vote counts")
	}
	if _, _, at := s.browser.choose(s.provider, "carol", s.approve()); at != "/requests/"+s.task || s.votes() != 1 {
		t.Errorf("afterwards: at %s", at)
	}
}
