package console_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var update = flag.Bool("update", false, "write the golden files")

// A campus is an office whose people sign in at an identity provider.
type campus struct {
	*office
	provider *jwkstest.Provider
}

// people have an id that is not their sub, and groups.
var people = map[string]map[string]any{
	"u-carol":   {"preferred_username": "carol", "groups": []string{"approvers"}},
	"u-dave":    {"preferred_username": "dave", "groups": []string{"approvers"}},
	"u-alice":   {"preferred_username": "alice", "groups": []string{"approvers"}},
	"u-erin":    {"preferred_username": "erin", "groups": []string{"auditors"}},
	"u-oscar":   {"preferred_username": "oscar", "groups": []string{"platform"}},
	"u-opal":    {"preferred_username": "opal", "groups": []string{"operators"}},
	"u-mallory": {"preferred_username": "mallory", "groups": []string{"approvers", "auditors", "platform"}, "org": "globex"},
	"u-eve":     {"preferred_username": "eve", "groups": []string{"staff"}},
}

// newCampus starts the program with an identity provider. more are lines of console.oidc.
func newCampus(t testing.TB, more ...string) *campus {
	t.Helper()
	return newCampusOn(t, approvalStore, more...)
}

// newCampusOn is newCampus on a policy store.
func newCampusOn(t testing.TB, store fs.FS, more ...string) *campus {
	t.Helper()
	address := docpage.FreeAddress(t)
	return newCampusAt(t, store, address, "http://"+address, nil, more...)
}

// newCampusAt is newCampusOn with a console that browsers reach by a URL, and further arguments.
func newCampusAt(t testing.TB, store fs.FS, address, base string, args []string, more ...string) *campus {
	t.Helper()
	c := &campus{provider: jwkstest.NewProvider(t, jwkstest.Client{ID: "console", Secret: "sesame", Redirect: base + "/sign-in/callback"})}
	c.provider.People = people
	c.office = newOfficeOn(t, store, append([]string{"--config", oidcSettings(t, c.provider.URL, base, more...), "--console.listen", address}, args...)...)
	return c
}

// oidcSettings writes a configuration file, and returns its path.
func oidcSettings(t testing.TB, issuer, base string, more ...string) (config string) {
	t.Helper()
	secret, config := filepath.Join(t.TempDir(), "secret"), filepath.Join(t.TempDir(), "config.yaml")
	settings := fmt.Sprintf(`console:
  url: %s
  oidc:
    issuer: %s
    client_id: console
    client_secret_file: %s
    id_claim: preferred_username
    alias_claims: [sub]
    scopes: {approvers: [approve], auditors: [audit], platform: [admin, audit], operators: [admin]}
    %s
`, base, issuer, secret, strings.Join(more, "\n    "))
	for path, text := range map[string]string{secret: "sesame\n", config: settings} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config
}

// enter signs a person in, from a page of the console.
func (c *campus) enter(b *browser, sub, path string) {
	b.Helper()
	b.visit(path)
	b.sees("Sign in at the provider")
	b.click(sub)
	b.at(path)
}

// at returns a browser in which a person is signed in, on a page.
func (c *campus) at(sub, path string, l look) *browser {
	c.test.Helper()
	b := open(c.test, c.console, l)
	c.enter(b, sub, path)
	return b
}

// approve presses Approve, and signs in again at the provider.
func (b *browser) approve(sub string) {
	b.Helper()
	b.decide("Approve")
	b.sees("Sign in at the provider")
	b.click(sub)
}

// decide presses a button until the page takes it: it does not before it has been in front for a while.
func (b *browser) decide(name string) {
	b.Helper()
	if b.noScript {
		b.click(name)
		return
	}
	eval[string](b, `document.body.dataset.waits = "yes"`)
	b.until(name+" is taken", func() error {
		b.click(name)
		if eval[bool](b, `document.body.dataset.waits === "yes" && !document.getElementById("decide").dataset.sent`) {
			return errNotYet
		}
		return nil
	})
}

// A link from the command line signs in once, by its button.
func TestAcceptance01SignInByLink(t *testing.T) {
	o := newOffice(t)
	link := o.link("user:carol")
	b := open(t, o.console, look{})
	b.visit(link)
	b.sees("Sign in as user:carol?")
	b.accessible()
	b.shoot("sign-in-link")
	b.click("Sign in")
	b.sees("Sign out", "carol")
	again := open(t, o.console, look{})
	again.visit(link)
	again.sees("This link signs nobody in")
	if again.has("button", "Sign in") {
		t.Error("the link has its button a second time")
	}
	again.shoot("sign-in-link-used")
}

// Whoever opens the page of a call signed out signs in, and is on that page, which a phone shows whole.
func TestAcceptance02SignInLeadsToTheRequest(t *testing.T) {
	c := newCampus(t)
	task := c.asked("call", "alice", ordinary)
	b := c.at("u-carol", "/requests/"+task, look{})
	b.sees("alice wants to run github.push_code", "acme/billing", "main", "carol")
	b.narrow()
	b.one("Approve", "button")
	b.one("Deny", "button")
	if asked := c.provider.Asked(); len(asked) != 1 {
		t.Errorf("the provider was asked %d times", len(asked))
	}
}

// An approval asks the provider once, counts for what was shown, and lets the call go on.
func TestAcceptance03ApproveWithStepUp(t *testing.T) {
	c := newCampus(t, "acr_values: [phr]")
	task := c.asked("call", "alice", ordinary)
	b := c.at("u-carol", "/requests/"+task, look{})
	b.fill("Comment, for the requester and the log", "for the release")
	b.approve("u-carol")
	b.at("/requests/" + task)
	b.sees("You approved this", "for the release", "It is in the log", "bound to this decision")
	b.accessible()
	b.shoot("request-approved-step-up")
	if asked := c.provider.Asked(); len(asked) != 2 || asked[1].Get("acr_values") != "phr" {
		t.Errorf("the provider was asked %v", asked)
	}
	r := c.read(task)
	if vote := r.Items[0].Votes[0]; r.Status != "approved" || vote.Approver.ID != "carol" || vote.Sheet != r.Sheet || vote.Comment != "for the release" {
		t.Errorf("the request is %+v", r)
	}
	for _, part := range []string{`"sheet":"` + r.Sheet, `"method":"oidc"`, `"bound":true`, `"acr":"phr"`, `"amr":["hwk"]`, `"sub":"u-carol"`, `"comment":"for the release"`} {
		if c.entries(part) == 0 {
			t.Errorf("the log has no %s", part)
		}
	}
	if shown := c.command("approvals", "show", task); !strings.Contains(strings.ReplaceAll(shown, " ", ""), r.Sheet[len("sha256:"):][:8]) {
		t.Errorf("approvals show does not have the digest %s:\n%s", r.Sheet, shown)
	}
	var told authzen.TaskResponse
	if c.get(c.URL+authzen.PathRequests+"/"+task, &told); told.Task.Status != authzen.TaskApproved {
		t.Errorf("the caller is told %s", told.Task.Status)
	}
}

// Of two people the second learns that hers did not count, after signing in again for it.
func TestAcceptance05SomebodyElseDecided(t *testing.T) {
	c := newCampus(t)
	task := c.asked("call", "alice", ordinary)
	carol, dave := c.at("u-carol", "/requests/"+task, look{}), c.at("u-dave", "/requests/"+task, look{desktop: true})
	dave.decide("Deny")
	dave.sees("You denied this")
	carol.closed("dave denied this")
	carol.approve("u-carol")
	carol.sees("Your decision did not count", "dave denied this")
	carol.shoot("request-conflict-step-up")
	if votes := c.read(task).Items[0].Votes; len(votes) != 1 || c.entries(`"event":"approve"`) != 0 {
		t.Errorf("votes %+v", votes)
	}
}

// A quorum of two counts people, and not browsers.
func TestAcceptance06Quorum(t *testing.T) {
	c := newCampus(t)
	task := c.asked("pair", "alice", ordinary)
	carol := c.at("u-carol", "/requests/"+task, look{})
	carol.approve("u-carol")
	carol.sees("1 more person has to approve")
	again := c.at("u-carol", "/requests/"+task, look{desktop: true})
	again.sees("Your approval is in the log")
	if again.has("button", "Approve") {
		t.Error("carol can approve again")
	}
	dave := c.at("u-dave", "/requests/"+task, look{})
	dave.approve("u-dave")
	dave.sees("You approved this")
	if r := c.read(task); r.Status != "approved" {
		t.Errorf("the request is %s", r.Status)
	}
}

// Nobody decides on a request of their own, by whatever name it was asked.
func TestAcceptance07OwnRequest(t *testing.T) {
	c := newCampus(t)
	for _, name := range []string{"alice", "u-alice", c.provider.URL + "#u-alice"} {
		task := c.asked("call", name, ordinary)
		b := c.at("u-alice", "/requests/"+task, look{})
		b.sees("You cannot decide this")
		if b.has("button", "Approve") || b.has("button", "Deny") {
			t.Errorf("%s: the page has buttons", name)
		}
		before := c.entries(`"event":"refuse"`)
		form := `document.getElementById("decide")`
		eval[string](b, `const d = document.createElement("input"); d.name = "decision"; d.value = "deny"; `+form+`.append(d); `+form+`.submit(); ""`)
		b.sees("Your decision did not count, and the log has that you tried")
		if c.entries(`"event":"refuse"`) != before+1 || c.read(task).Status != "pending" {
			t.Errorf("%s: the refusal is not in the log, or the request is decided", name)
		}
	}
}

// A request that ends while its page is open says so without loading it again, and cannot be decided.
func TestAcceptance08Expiry(t *testing.T) {
	c := newCampus(t)
	b := c.at("u-carol", "/requests", look{})
	task := c.asked("hasty", "alice", ordinary)
	b.visit("/requests/" + task)
	b.sees("Nobody decided in time")
	process.Eventually(t, "the request is expired", func() bool { return c.read(task).Status == "expired" })
	b.closed("It ended at")
	b.decide("Deny")
	b.sees("Your decision did not count")
}

// Everything of 2 to 7 works by keyboard alone, and without JavaScript.
func TestAcceptance19KeyboardAndNoScript(t *testing.T) {
	c := newCampus(t)
	keys := open(t, c.console, look{})
	task := c.asked("call", "alice", ordinary)
	keys.visit("/requests/" + task)
	keys.sees("Sign in at the provider")
	keys.tabTo("u-carol")
	keys.press("\r")
	keys.at("/requests/" + task)
	keys.tabTo("Approve")
	keys.until("Enter approves", func() error { // not before the page has been in front for a while
		keys.press("\r")
		if !strings.Contains(keys.text(), "Sign in at the provider") {
			return errNotYet
		}
		return nil
	})
	keys.tabTo("u-carol")
	keys.press("\r")
	keys.sees("You approved this")

	without := open(t, c.console, look{noScript: true})
	task = c.asked("call", "alice", ordinary)
	without.visit("/requests/" + task)
	without.click("u-dave")
	without.sees("With exactly these arguments")
	without.fill("Comment, for the requester and the log", "read")
	without.approve("u-dave")
	without.sees("You approved this", "read")
	task = c.asked("call", "alice", ordinary)
	without.visit("/requests/" + task)
	without.decide("Deny")
	without.sees("You denied this")
	without.click("Sign out")
	without.at("/sign-in")
	if c.read(task).Status != "denied" {
		t.Error("the request is not denied")
	}
}

// Policies that change while the page is open are said to have changed, where the approval ends with them.
func TestAcceptance09PoliciesChange(t *testing.T) {
	c := newCampus(t)
	task := c.asked("pinned", "alice", ordinary)
	b := c.at("u-carol", "/requests/"+task, look{})
	c.write("policies.cedar", approvalPolicies+"\n@id(\"new\") forbid (principal, action == Action::\"other\", resource);\n")
	process.Eventually(t, "the new policies are in force", func() bool { return strings.Count(c.Log(), "policies loaded") > 1 })
	b.sees("The policies have changed since this was asked")
	if !eval[bool](b, `document.getElementById("approve").disabled && !document.getElementById("deny").disabled`) {
		t.Error("Approve works, or Deny does not")
	}
	eval[string](b, `document.getElementById("approve").disabled = false; ""`)
	b.approve("u-carol")
	b.sees("Nothing was decided", "The policies have changed since this was asked")
	if r := c.read(task); r.Status == "approved" {
		t.Errorf("the request is %s", r.Status)
	}
}

// write changes a file of the policy store.
func (o *office) write(name, text string) {
	o.test.Helper()
	if err := os.WriteFile(filepath.Join(o.store, name), []byte(text), 0o644); err != nil {
		o.test.Fatal(err)
	}
}

// Hostile arguments are text, with escapes and warnings. What is long is read before it is approved, a secret is
// masked, and revealing it is an entry.
func TestAcceptance10HostileArguments(t *testing.T) {
	c := newCampus(t)
	many := ""
	for i := range 300 {
		many += fmt.Sprintf(`,"member-%d":"value-%d %s"`, i, i, strings.Repeat("y", 1_900))
	}
	long := strings.Repeat("x ", 4_000) + "rm -rf /"
	task := c.asked("call", "alice", `{"note":"<img src=x onerror=alert(1)>","file":"invoice-\u202egpj.exe","long":"`+long+`","api_token":"sk-live-1"`+many+`}`)
	b := c.at("u-carol", "/requests/"+task, look{})
	b.sees("<img src=x onerror=alert(1)>", `\u{202E}`, "Read all arguments first", "value-299")
	b.seesNot("sk-live-1")
	b.narrow()
	b.calm()
	b.click("Read all arguments first")
	b.click("Show all 8008 characters")
	b.sees("rm -rf /")
	b.click("Reveal api_token")
	b.sees("sk-live-1")
	if n := c.entries(`"action":"reveal"`); n != 1 {
		t.Errorf("the log has %d entries of the reveal", n)
	}
	b.click("Show all 8008 characters")
	b.approve("u-carol")
	b.sees("You approved this")
}

// golden compares a text with a file of testdata. With -update it writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// Whoever was signed out while reading decides nothing, and comes back to the request after signing in.
func TestSignedOutWhileReading(t *testing.T) {
	c := newCampus(t)
	task := c.asked("call", "alice", ordinary)
	b := c.at("u-carol", "/requests/"+task, look{noScript: true})
	other := b.another()
	other.visit("/requests")
	other.click("Sign out")
	other.at("/sign-in")
	b.decide("Deny")
	b.click("Sign in at " + strings.TrimPrefix(c.provider.URL, "http://"))
	b.at("/requests/" + task)
	b.one("Deny", "button")
	if got := c.read(task).Status; got != "pending" {
		t.Errorf("the request is %s", got)
	}
}
