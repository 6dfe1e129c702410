package console_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// approvalPolicies let everybody approve; a pair of people approves pairs, and nobody in time what is hasty.
const approvalPolicies = `
@id("call") @approval("one") permit (principal, action == Action::"call", resource);
@id("pair") @approval("two") permit (principal, action == Action::"pair", resource);
@id("pinned") @approval("pinned") permit (principal, action == Action::"pinned", resource);
@id("hasty") @approval("hasty") permit (principal, action == Action::"hasty", resource);
@id("approve") permit (principal, action in [Action::"approval.approve", Action::"approval.deny", Action::"approval.delegate", Action::"approval.revoke"], resource);
`

const approvalTerms = "approval_templates: {one: {ttl: 15m, edit: [branch], tell_comment: true}, two: {quorum: 2}, hasty: {decide_within: 3s}, pinned: {pin_revision: true}}\n"

// An office is the program with policies that ask for people.
type office struct{ *service }

// approvalStore has the policies that ask for people.
var approvalStore = fstest.MapFS{"policies.cedar": {Data: []byte(approvalPolicies)}, "config.yaml": {Data: []byte(approvalTerms)}}

// newOffice starts the program with further arguments.
func newOffice(t testing.TB, args ...string) *office {
	t.Helper()
	return newOfficeOn(t, approvalStore, args...)
}

// newOfficeOn is newOffice on a policy store.
func newOfficeOn(t testing.TB, store fs.FS, args ...string) *office {
	t.Helper()
	chromium(t)
	return &office{serveStore(t, store, args...)}
}

// person returns a browser in which somebody is signed in.
func (o *office) person(id string, l look) *browser {
	o.test.Helper()
	b := o.signIn(o.test, "user:"+id, l)
	b.visit("/requests")
	return b
}

// asked submits an access request with arguments and returns its task.
func (o *office) asked(action, subject, arguments string) string {
	o.test.Helper()
	return o.submit(strings.Replace(push(subject, arguments), `"tool.invoke"`, fmt.Sprintf("%q", action), 1))
}

// A stored is a request over the admin API.
type stored struct {
	Status string `json:"status"`
	Sheet  string `json:"sheet"`
	Items  []struct {
		Votes []struct {
			Approver struct {
				ID string `json:"id"`
			} `json:"approver"`
			Approve bool   `json:"approve"`
			Comment string `json:"comment"`
			Channel string `json:"channel"`
			Sheet   string `json:"sheet"`
		} `json:"votes"`
		Edit *struct {
			Changed []string `json:"changed"`
		} `json:"edit"`
	} `json:"items"`
}

func (o *office) read(task string) (r stored) {
	o.test.Helper()
	o.get(o.Admin+"/admin/v1/requests/"+task, &r)
	return r
}

// entries counts the entries of the log with a text.
func (o *office) entries(with string) (n int) {
	o.test.Helper()
	answer, err := http.Get(o.Admin + "/admin/v1/log/export")
	if err != nil {
		o.test.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		o.test.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte(with)) {
			n++
		}
	}
	return n
}

const ordinary = `{"repository":"acme/billing","branch":"main"}`

// calm waits as long as a page needs to be in front before its buttons work.
func (b *browser) calm() {
	b.Helper()
	since := eval[float64](b, "performance.now()")
	quiet := fmt.Sprintf(`(loaded => loaded > 0 && performance.now() - Math.max(loaded, %f) > 600)(performance.getEntriesByType("navigation")[0].loadEventEnd)`, since)
	b.until("the page is in front", func() error {
		if !eval[bool](b, quiet) {
			return errNotYet
		}
		return nil
	})
}

// Acceptance 2 and 3: signed out, a link leads to sign-in and then to the request; everything is on a
// phone; an approval with a comment is a vote for the sheet that was shown.
func TestApproveOnAPhone(t *testing.T) {
	o := newOffice(t)
	everyLook(t, func(t *testing.T, l look) {
		task := o.asked("call", "alice", ordinary)
		b := open(t, o.console, l)
		b.visit("/requests/" + task)
		b.sees("Sign in")
		b.visit(o.link("user:carol"))
		b.click("Sign in")
		b.sees("Sign out")
		b.visit("/requests/" + task)
		b.sees("alice wants to run github.push_code", "With exactly these arguments", "acme/billing", "Fix issue 555", "Nobody has checked it")
		b.narrow()
		b.accessible()
		b.shoot("request")
		if !b.has("button", "Approve") || !b.has("button", "Deny") {
			t.Fatalf("the page has no buttons:\n%s", b.text())
		}
		if seen := eval[bool](b, `(r => r.top >= 0 && r.bottom <= innerHeight)(document.getElementById("approve").getBoundingClientRect())`); !seen {
			t.Error("Approve is not on the screen")
		}
		b.fill("Comment, for the requester and the log", "for the release")
		b.calm()
		b.click("Approve")
		b.sees("You approved this", "for the release", "It is in the log as entry ")
		b.accessible()
		b.shoot("request-approved")
		r := o.read(task)
		if vote := r.Items[0].Votes[0]; r.Status != "approved" || vote.Channel != "console" || vote.Sheet != r.Sheet || vote.Comment != "for the release" {
			t.Errorf("the request is %+v", r)
		}
		if digits := r.Sheet[len("sha256:"):]; !strings.Contains(b.text(), digits[:4]+" "+digits[4:8]) {
			t.Errorf("the page does not show %s", digits[:8])
		}
	})
}

// Acceptance 4: a denial has the comment.
func TestDenyOnAPhone(t *testing.T) {
	o := newOffice(t)
	b, task := o.person("carol", look{}), o.asked("call", "alice", ordinary)
	b.visit("/requests/" + task)
	b.fill("Comment, for the requester and the log", "not on a Friday")
	b.calm()
	b.click("Deny")
	b.sees("You denied this", "not on a Friday")
	if display := eval[string](b, `getComputedStyle(document.querySelector(".note > div")).display`); display != "block" {
		t.Errorf("the sentence about the denial is in parts: %s", display)
	}
	b.shoot("request-denied")
	if r := o.read(task); r.Status != "denied" || o.entries(`"event":"deny"`) != 1 {
		t.Errorf("the request is %+v", r)
	}
}

// Acceptance 5: of two people, the second learns that the first has decided. One vote is in the log.
func TestSomebodyElseDecided(t *testing.T) {
	o := newOffice(t)
	carol, dave, task := o.person("carol", look{}), o.person("dave", look{desktop: true}), o.asked("call", "alice", ordinary)
	carol.visit("/requests/" + task)
	dave.visit("/requests/" + task)
	dave.calm()
	dave.click("Deny")
	dave.sees("You denied this")
	carol.closed("dave denied this")
	carol.calm()
	carol.click("Approve")
	carol.sees("Your decision did not count", "dave denied this")
	carol.accessible()
	carol.shoot("request-conflict")
	if votes := o.read(task).Items[0].Votes; len(votes) != 1 || o.entries(`"event":"approve"`) != 0 {
		t.Errorf("votes %+v", votes)
	}
}

// closed waits until the open page says why nobody can decide any more. Then it makes the buttons work again, as for
// somebody whose browser has not heard of it.
func (b *browser) closed(why string) {
	b.Helper()
	b.sees(why, "Show the request as it is now")
	b.until("the buttons are off", func() error {
		if !eval[bool](b, `[...document.querySelectorAll(".verdict button")].every(x => x.disabled)`) {
			return errNotYet
		}
		return nil
	})
	eval[string](b, `document.querySelectorAll(".verdict button").forEach(x => x.disabled = false); ""`)
}

// seesSoon waits until an open page shows a text, without loading it again, and logs how long that took.
func (b *browser) seesSoon(texts ...string) {
	b.Helper()
	since := time.Now()
	b.sees(texts...)
	b.Logf("%s after %s", texts[0], time.Since(since).Round(10*time.Millisecond))
	if eval[string](b, `document.body.dataset.open || ""`) != "yes" {
		b.Errorf("%s was loaded again", b.path())
	}
}

// keepOpen visits a page and marks it.
func (b *browser) keepOpen(path string) {
	b.Helper()
	b.visit(path)
	eval[string](b, `document.body.dataset.open = "yes"`)
}

// Acceptance 8 and 9: open pages say what has become of a request, that the policies have changed, and what is new in
// a list. Nothing above moves, and nothing is decided by a press on an old page.
func TestOpenPagesKeepUp(t *testing.T) {
	o := newOffice(t)
	b, first, second := o.person("carol", look{}), o.asked("call", "alice", ordinary), o.asked("pair", "alice", ordinary)
	list, overview := b.another(), b.another()
	list.keepOpen("/requests")
	overview.keepOpen("/")
	overview.sees("Waiting for a person", "Newest in the log", "alice")
	b.keepOpen("/requests/" + first)
	place := eval[float64](b, `document.getElementById("deny").getBoundingClientRect().top`)
	o.decide(first, "deny", "dave")
	b.seesSoon("dave denied this", "Show the request as it is now")
	if now := eval[float64](b, `document.getElementById("deny").getBoundingClientRect().top`); now != place {
		t.Errorf("Deny moved from %v to %v", place, now)
	}
	b.narrow()
	b.accessible()
	b.shoot("request-news")
	list.seesSoon("1 not in this list any more")
	third := o.asked("call", "bob", ordinary)
	list.seesSoon("1 new.", "1 not in this list any more")
	if shown := eval[bool](list, `(r => r.top >= 0 && r.bottom <= innerHeight)(document.getElementById("changed").getBoundingClientRect())`); !shown {
		t.Error("what is new is not on the screen")
	}
	list.accessible()
	list.shoot("requests-news")
	list.click("Show")
	list.sees("bob wants to run")
	overview.seesSoon("bob")

	b.keepOpen("/requests/" + second)
	o.decide(second, "approve", "dave")
	b.seesSoon("1 is missing")
	b.one("Approve", "button")
	o.cancel(second)
	b.seesSoon("The requester took it back")

	b.keepOpen("/requests/" + third)
	o.write("policies.cedar", approvalPolicies+"\n@id(\"new\") forbid (principal, action == Action::\"other\", resource);\n")
	b.seesSoon("The policies have changed since this page was made")
	b.accessible()
	b.shoot("request-new-policies")
	b.calm()
	b.click("Approve")
	b.sees("Nothing was decided. Look at the request once more")
	b.calm()
	b.click("Approve")
	b.sees("You approved this")
}

// cancel takes a request back, as its PEP does.
func (o *office) cancel(task string) {
	o.test.Helper()
	var answer authzen.TaskResponse
	o.post(o.URL+authzen.PathRequests+"/"+task+"/cancel", "{}", &answer)
}

// Acceptance 6: a quorum of two needs two people.
func TestQuorumInTheBrowser(t *testing.T) {
	o := newOffice(t)
	task := o.asked("pair", "alice", ordinary)
	carol := o.person("carol", look{})
	carol.visit("/requests/" + task)
	carol.sees("needs 2 approvals")
	carol.one("Comment, for the log", "textbox") // this template tells requesters nothing
	carol.calm()
	carol.click("Approve")
	carol.sees("Your approval is in the log", "1 more person has to approve")
	carol.shoot("request-one-more")
	again := o.person("carol", look{desktop: true})
	again.visit("/requests/" + task)
	again.sees("Your approval is in the log")
	if again.has("button", "Approve") {
		t.Error("carol can approve again")
	}
	dave := o.person("dave", look{})
	dave.visit("/requests/" + task)
	dave.calm()
	dave.click("Approve")
	dave.sees("You approved this")
	if r := o.read(task); r.Status != "approved" {
		t.Errorf("the request is %s", r.Status)
	}
}

// Acceptance 7: one's own request has no buttons, and says why.
func TestOwnRequestInTheBrowser(t *testing.T) {
	o := newOffice(t)
	b := o.person("alice", look{})
	b.visit("/requests/" + o.asked("call", "alice", ordinary))
	b.sees("You cannot decide this")
	if b.has("button", "Approve") || b.has("button", "Deny") {
		t.Error("the page has buttons")
	}
	b.accessible()
	b.shoot("request-own")
}

// Acceptance 8: a request that ends while the page is open says so, without loading the page again.
func TestExpiryWhileThePageIsOpen(t *testing.T) {
	o := newOffice(t)
	b, task := o.person("carol", look{}), o.asked("hasty", "alice", ordinary)
	b.visit("/requests/" + task)
	b.sees("Nobody decided in time")
	if disabled := eval[bool](b, `document.getElementById("approve").disabled`); !disabled {
		t.Error("Approve still works")
	}
	b.shoot("request-expires")
	process.Eventually(t, "the request is expired", func() bool { return o.read(task).Status == "expired" })
	b.visit("/requests/" + task)
	b.sees("Nobody decided in time. It ended at")
}

// Acceptance 10: hostile arguments are text with escapes and warnings; what is long is read before it is
// approved; a secret is masked, and showing it is an entry.
func TestHostileArguments(t *testing.T) {
	o := newOffice(t)
	many := ""
	for i := range 300 {
		many += fmt.Sprintf(`,"member-%d":"value-%d"`, i, i)
	}
	task := o.asked("call", "alice", `{"note":"<img src=x onerror=alert(1)>","file":"invoice-\u202egpj.exe","look":"p\u0430ypal","long":"`+strings.Repeat("a ", 4_000)+`rm -rf /","api_token":"sk-live-1"`+many+`}`)
	b := o.person("carol", look{})
	b.visit("/requests/" + task)
	b.sees(`\u{202E}`, "not visible", "two alphabets", "<img src=x onerror=alert(1)>", "rm -rf /", "value-299", "Read all arguments first")
	b.seesNot("sk-live-1")
	b.narrow()
	b.accessible()
	b.shoot("request-hostile")
	b.calm()
	b.click("Read all arguments first")
	if got := o.read(task).Status; got != "pending" || b.focused() != "Show all 8008 characters" {
		t.Errorf("the request is %s, and the focus on %q", got, b.focused())
	}
	b.click("Show all 8008 characters")
	b.sees("Approve")
	b.click("Reveal api_token")
	b.sees("Revealed, and in the log", "sk-live-1")
	b.shoot("request-revealed")
	if n := o.entries(`"action":"reveal"`); n != 1 {
		t.Errorf("the log has %d entries", n)
	}
	b.visit("/requests/" + task)
	b.seesNot("sk-live-1")
}

// Acceptance 19, of the request: by keyboard alone, and with JavaScript off.
func TestApproveWithoutScriptAndMouse(t *testing.T) {
	o := newOffice(t)
	without, task := o.person("carol", look{noScript: true}), o.asked("call", "alice", ordinary)
	without.visit("/requests")
	without.click("alice wants to run github.push_code…")
	without.sees("With exactly these arguments")
	without.narrow()
	without.click("Approve")
	without.sees("You approved this")
	if r := o.read(task); r.Status != "approved" {
		t.Errorf("without scripts the request is %s", r.Status)
	}
	keys, task := o.person("dave", look{}), o.asked("call", "alice", ordinary)
	keys.visit("/requests/" + task)
	keys.calm()
	keys.tabTo("Approve")
	keys.press("\r")
	keys.sees("You approved this")
}

// Approvers change the arguments that the template lets them change, and hand the decision on.
func TestOtherWaysToDecide(t *testing.T) {
	o := newOffice(t)
	b, task := o.person("carol", look{}), o.asked("call", "alice", ordinary)
	b.visit("/requests/" + task)
	b.click("Approve with other arguments")
	eval[string](b, `document.getElementById("argument-branch").value = '"staging"'`)
	b.calm()
	b.click("Approve")
	b.sees("Approved with other arguments", "staging")
	if edit := o.read(task).Items[0].Edit; edit == nil || len(edit.Changed) != 1 {
		t.Errorf("the edit is %+v", edit)
	}
	task = o.asked("call", "alice", ordinary)
	b.visit("/requests/" + task)
	b.click("More ways to decide")
	b.fill("Hand the decision to another person, who then decides alone", "dave")
	b.calm()
	b.click("Delegate")
	b.sees("Another person decides alone")
	b.shoot("request-delegated")
	dave := o.person("dave", look{})
	dave.visit("/requests/" + task)
	dave.calm()
	dave.click("Deny")
	dave.sees("You denied this")
}

// The lists have their requests in every look, and empty ones say so.
func TestListsInTheBrowser(t *testing.T) {
	o := newOffice(t)
	everyLook(t, func(t *testing.T, l look) {
		b := o.person("erin", l)
		for _, view := range []string{"For you", "For others", "Decided", "In use"} {
			b.click(view)
			b.until("the tab is chosen", func() error {
				if eval[string](b, `document.querySelector(".tabs [aria-current]").innerText`) != view {
					return errNotYet
				}
				return nil
			})
			b.narrow()
			b.accessible()
			b.shoot("requests-" + strings.ReplaceAll(strings.ToLower(view), " ", "-"))
		}
	})
	o.asked("call", "alice", ordinary)
	b := o.person("carol", look{})
	b.sees("alice wants to run github.push_code", "branch: \"main\"")
	b.accessible()
	b.shoot("requests-waiting")
}
