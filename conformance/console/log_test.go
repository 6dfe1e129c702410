package console_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/conformance/process"
)

const logPolicies = `@id("readers")
permit (principal, action == Action::"read", resource);

@id("owners")
permit (principal, action == Action::"write", resource)
when { context.owner == "carol" };
`

// A logged is a service with a log, and its console.
type logged struct {
	testing.TB
	*process.Server
	program, state, console string
}

var consoleAt = regexp.MustCompile(`console on (http://\S+) `)

// launchLogged starts the program with a policy store.
func launchLogged(t testing.TB, state string) *logged {
	t.Helper()
	program, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	store := t.TempDir()
	if err := os.WriteFile(filepath.Join(store, "a.cedar"), []byte(logPolicies), 0o600); err != nil {
		t.Fatal(err)
	}
	s := process.LaunchToKill(t, exec.Command(program, "serve", "--policies", store, "--state", state,
		"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--console.listen", "127.0.0.1:0"))
	l := &logged{TB: t, Server: s, program: program, state: state}
	process.Eventually(t, "the console's address is known", func() bool {
		found := consoleAt.FindStringSubmatch(s.Log())
		if found != nil {
			l.console = found[1]
		}
		return found != nil
	})
	return l
}

// run runs a subcommand and returns what it prints.
func (l *logged) run(args ...string) string {
	l.Helper()
	out, err := exec.Command(l.program, args...).CombinedOutput()
	if err != nil {
		l.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// decide asks for decisions about a subject.
func (l *logged) decide(subject, action string, n int) {
	l.Helper()
	for range n {
		body := fmt.Sprintf(`{"subject":{"type":"user","id":%q},"action":{"name":%q},"resource":{"type":"doc","id":"plan"},"context":{"owner":"bob"}}`, subject, action)
		answer, err := http.Post(l.URL+"/access/v1/evaluation", "application/json", strings.NewReader(body))
		if err != nil {
			l.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != http.StatusOK {
			l.Fatal(answer.Status)
		}
	}
}

// enter opens a browser and signs somebody in by a link from the command line.
func (l *logged) enter(t testing.TB, base, who string, as look) *browser {
	t.Helper()
	b := open(t, base, as)
	link := strings.TrimSpace(l.run("console", "--as", who, "--state", l.state))
	address, err := url.Parse(link[strings.LastIndex(link, "http"):])
	if err != nil {
		t.Fatal(err)
	}
	b.visit(address.RequestURI())
	b.click("Sign in")
	b.at("/requests")
	return b
}

// rowsOf returns the entries of the page.
func rowsOf(b *browser) []string {
	return eval[[]string](b, `[...document.querySelectorAll("table.entries tbody tr")].map(r => r.cells[5].innerText + " " + r.cells[2].innerText)`)
}

// A search is in the URL: a second auditor sees the same rows. Older reaches entry 0, and a search that finds
// nothing says how far it looked.
func TestSearchOfTheLog(t *testing.T) {
	l := launchLogged(t, t.TempDir())
	l.decide("alice", "read", 70)
	l.decide("mallory", "erase", 60)
	b := l.enter(t, l.console, "user:carol", look{desktop: true})
	b.visit("/decisions")
	b.fill("Subject, Decision-ID or request", "user:alice")
	b.click("Search")
	b.sees("Looked at entries", "50 entries found")
	shared, rows := b.path(), rowsOf(b)
	if len(rows) != 50 || !strings.Contains(shared, "subject=user%3Aalice") {
		t.Errorf("%s has %d rows", shared, len(rows))
	}
	second := l.enter(t, l.console, "user:dave", look{desktop: true})
	second.visit(shared)
	if got := rowsOf(second); strings.Join(got, "\n") != strings.Join(rows, "\n") {
		t.Errorf("the second auditor sees %q", got)
	}
	b.click("Older")
	b.sees("Looked at entries 0 up to", "20 entries found")
	if b.has("link", "Older") {
		t.Error("there is more before entry 0")
	}
	b.visit("/decisions?subject=nobody")
	b.sees("Nothing in the log matches", "All entries were looked at", "Looked at entries 0 up to 1")
	quiet := l.enter(t, l.console, "user:erin", look{noScript: true})
	quiet.visit("/decisions")
	quiet.fill("Subject, Decision-ID or request", "mallory")
	quiet.press("\r")
	quiet.sees("Deny", "50 entries found")
}

// A denial shows the nearest permit, the condition that failed and the value that it read.
func TestReasonsOfADenial(t *testing.T) {
	l := launchLogged(t, t.TempDir())
	l.decide("alice", "write", 1)
	for _, as := range []look{{}, {desktop: true, noScript: true}} {
		b := l.enter(t, l.console, "user:carol", as)
		b.visit("/decisions/1")
		b.sees("alice may not write plan", "owners came nearest", "does not hold", `context.owner is "bob"`, "What would change it")
		if href := eval[string](b, `document.querySelector('a[href^="/try"]')?.getAttribute("href") ?? ""`); !strings.HasPrefix(href, "/try?from=") {
			t.Errorf("the link to try it again is %q", href)
		}
		b.narrow()
	}
}

// lying is a server before the console that changes the proofs that browsers get.
func lying(t testing.TB, console string, change func([]byte) []byte) string {
	t.Helper()
	to, err := url.Parse(console)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host },
		ModifyResponse: func(r *http.Response) error {
			if !strings.HasSuffix(r.Request.URL.Path, "/proof") {
				return nil
			}
			text, err := io.ReadAll(r.Body)
			text = change(text)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
			r.Header.Set("Content-Length", fmt.Sprint(len(text)))
			return err
		},
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	return s.URL
}

// The browser verifies entries, keeps the key, follows its signed change, and shows red what does not verify.
func TestVerificationInTheBrowser(t *testing.T) {
	state := t.TempDir()
	l := launchLogged(t, state)
	l.decide("alice", "read", 20)
	b := l.enter(t, l.console, "user:carol", look{})
	b.visit("/decisions/7")
	b.sees("Verified here", "saw the key", "7 of 2")
	b.visit("/decisions/8")
	b.sees("Verified here", "It keeps the key")
	l.run("log", "rotate-key", "--state", state)
	b.visit("/decisions/8")
	b.sees("Verified here", "The key changed")
	b.visit("/decisions/9")
	b.sees("Verified here", "It keeps the key")
	eval[bool](b, `(() => { localStorage.setItem("log-key", "policy-service/0000000000000000+00000000+AAAA"); return true })()`)
	b.visit("/decisions/9")
	b.sees("Not verified: another key")
	b.click("Trust this key in this browser")
	b.sees("Verified here")

	liar := l.enter(t, lying(t, l.console, func(text []byte) []byte { return bytes.Replace(text, []byte("alice"), []byte("bobby"), 1) }), "user:carol", look{})
	liar.visit("/decisions/7")
	liar.sees("Not verified", "entry 7 is not in the log")

	l.Process.Process.Signal(os.Interrupt)
	<-l.Done
	tamper(t, state)
	changed := launchLogged(t, state)
	b = changed.enter(t, changed.console, "user:carol", look{})
	b.visit("/decisions/7")
	b.sees("Not verified", "entry 7 is not in the log")
	out, err := exec.Command(changed.program, "log", "verify", "--state", state).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "entry 7 ") {
		t.Errorf("log verify says %v %s", err, out)
	}
}

// tamper changes a byte of entry 7 on the disk.
func tamper(t testing.TB, state string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(state, "log", "*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for at := range content { // every copy of the page
		if rest := content[at:]; bytes.HasPrefix(rest, []byte(`{"index":7,`)) {
			if name := bytes.Index(rest[:600], []byte(`"alice"`)); name > 0 {
				copy(rest[name:], `"malic"`)
			}
		}
	}
	if err := os.WriteFile(files[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Evidence from the page verifies with the program, and offline with its own.
func TestEvidenceFromThePage(t *testing.T) {
	l := launchLogged(t, t.TempDir())
	l.decide("alice", "write", 3)
	b := l.enter(t, l.console, "user:carol", look{desktop: true})
	b.visit("/decisions/2")
	b.one("Evidence pack", "link")
	encoded := evalAwait[string](b, `fetch(document.querySelector('a[href$="/evidence"]').href).then(r => r.arrayBuffer()).then(a => btoa(String.fromCharCode(...new Uint8Array(a))))`)
	pack, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, keys := filepath.Join(dir, "evidence.zip"), filepath.Join(dir, "keys.txt")
	if err := os.WriteFile(file, pack, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keys, []byte(l.run("log", "keys", "--state", l.state)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := l.run("log", "verify", "--bundle", file, "--key", keys); !strings.HasPrefix(out, "verified: 1 entries (2 to 2)") {
		t.Error(out)
	}
	unpacked := filepath.Join(dir, "evidence")
	if out, err := exec.Command(external.Program(t, "python3"), "-m", "zipfile", "-e", file, unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(external.Program(t, "node"), filepath.Join(unpacked, "verify.mjs"), keys).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "verified: 1 entries") || !strings.Contains(string(out), "policies of sha256:") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Live shows new entries, stands still while it is paused, and then says how many it left out.
func TestLiveEntries(t *testing.T) {
	l := launchLogged(t, t.TempDir())
	b := l.enter(t, l.console, "user:carol", look{})
	b.visit("/live")
	b.sees("Connected")
	l.decide("alice", "read", 3)
	b.sees("alice read on plan", "Allow")
	b.click("Pause")
	l.decide("zoe", "erase", 80)
	b.sees("Paused. 80 entries came since")
	b.seesNot("zoe")
	b.accessible()
	b.click("Go on")
	b.sees("zoe erase on plan", "30 entries are not listed")
	if rows := eval[int](b, `document.querySelectorAll("#entries li").length`); rows > 50 {
		t.Errorf("%d rows", rows)
	}
	b.narrow()
}

// Every page of the log is accessible and fits, in every size and colour.
func TestLooksOfTheLog(t *testing.T) {
	l := launchLogged(t, t.TempDir())
	l.decide("alice", "read", 3)
	l.decide("alice-with-a-very-long-name-that-nobody-would-type@subsidiary.example.com", "write", 1)
	everyLook(t, func(t *testing.T, as look) {
		b := l.enter(t, l.console, "user:carol", as)
		for name, page := range map[string]struct{ path, sees string }{
			"decisions": {"/decisions", "Looked at"}, "decisions-filters": {"/decisions?errors=true&action=read", "Nothing in the log matches"},
			"decision-allow": {"/decisions/1", "Verified here"}, "decision-deny": {"/decisions/4", "Verified here"}, "decision-raw": {"/decisions/1?raw", "as it was recorded"},
			"decision-reload": {"/decisions/0", "Verified here"}, "task": {"/tasks/arq_none", "nothing about this request"}, "live": {"/live", "Connected"},
		} {
			b.visit(page.path)
			b.sees(page.sees)
			b.narrow()
			b.accessible()
			b.shoot(name)
		}
	})
}
