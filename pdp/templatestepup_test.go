package pdp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/console"
)

// With step_up: templates, an approval needs a new sign-in where its template requires one, and not elsewhere.
func TestTemplatesRequireANewSignIn(t *testing.T) {
	s := newStepUp(t, func(o *console.OIDC) { o.StepUp = console.StepUpTemplates })
	page := s.browser.open(s.task)
	if after := page.decide(page.form("approve")); strings.Contains(page.words(), "asked to sign in again") || !strings.Contains(after.words(), "You approved this") {
		t.Errorf("a template without step_up: %d %s", after.status, after.words())
	}
	s.task = s.asked("", "strict", "alice", "")
	if words := s.browser.open(s.task).words(); !strings.Contains(words, "You will be asked to sign in again to approve") || !strings.Contains(words, "Whoever approves has to sign in again for it") {
		t.Errorf("the page does not say that approving needs a new sign-in: %s", words)
	}
	form := s.approve()
	if s.votes() != 0 {
		t.Fatal("the vote counts before the provider has answered")
	}
	if status, page, _ := s.browser.choose(s.provider, "carol", form); status != http.StatusOK || !strings.Contains(page, "approved this") {
		t.Fatalf("%d %s", status, page)
	}
	if vote := s.read(s.task).Items[0].Votes[0]; !vote.Authn.Bound {
		t.Errorf("the vote is %+v by %+v", vote, vote.Authn)
	}
}

// A session that cannot have a new sign-in does not approve where the template requires one. It says why, and can
// deny. A form that is sent by hand counts as little as the key of a program.
func TestSessionsWithoutAProviderCannotStepUp(t *testing.T) {
	never := newStepUp(t, func(o *console.OIDC) { o.StepUp = console.StepUpNever })
	byLink, browser := office(t)
	for name, one := range map[string]*stepUp{"never": never, "by a link": {staff: byLink, browser: browser}} {
		one.t, one.task = t, one.asked("", "strict", "alice", "")
		page := one.browser.open(one.task)
		if strings.Contains(page.text, `value="approve"`) || !strings.Contains(page.words(), "You cannot approve here: the template requires a new sign-in") {
			t.Errorf("%s: %s", name, page.words())
		}
		if after := page.decide(page.form("approve")); after.status != http.StatusForbidden || !strings.Contains(after.words(), "its template requires a new sign-in") || one.votes() != 0 {
			t.Errorf("%s, by hand: %d %s", name, after.status, after.words())
		}
		body := `{"decision":"approve","approver":{"type":"user","id":"dave"}}`
		if code := askAs(t, "", "POST", one.admin+pdp.PathRequests+"/"+one.task+"/decision", body, nil); code != http.StatusForbidden || one.votes() != 0 {
			t.Errorf("%s, by a program: %d", name, code)
		}
		if _, log := get(t, one.admin+pdp.PathLogQuery+"?kind=request"); strings.Count(log, `"event":"refuse"`) != 2 {
			t.Errorf("%s: the log lacks a refusal: %s", name, log)
		}
		page = one.browser.open(one.task)
		if after := page.decide(page.form("deny")); !strings.Contains(after.words(), "You denied this") {
			t.Errorf("%s, deny: %d %s", name, after.status, after.words())
		}
	}
}
