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
	"strings"
	"testing"
	"testing/fstest"

	storing "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"

	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/conformance/process"
)

const logPolicies = `@id("readers")
permit (principal, action == Action::"read", resource);

@id("owners")
permit (principal, action == Action::"write", resource)
when { context.owner == "carol" };
`

// serveLogged starts the program on a store with a condition that requests can fail.
func serveLogged(t testing.TB) *service {
	t.Helper()
	return serveStore(t, fstest.MapFS{"a.cedar": {Data: []byte(logPolicies)}})
}

// again starts the program again on the same directories, after it has ended.
func (s *service) again() *service {
	s.test.Helper()
	next := *s
	next.Server = process.Launch(s.test, exec.Command(s.Process.Path, s.Process.Args[1:]...))
	process.Eventually(s.test, "the console listens", func() bool {
		found := consoleLine.FindStringSubmatch(next.Log())
		if found != nil {
			next.console = found[1]
		}
		return found != nil
	})
	return &next
}

// run runs a subcommand and returns what it prints.
func (s *service) run(args ...string) string {
	s.test.Helper()
	out, err := exec.Command(s.Process.Path, args...).CombinedOutput()
	if err != nil {
		s.test.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// ask asks for decisions about a subject.
func (s *service) ask(subject, action string, n int) {
	s.test.Helper()
	for range n {
		var answer map[string]any
		s.post(s.URL+"/access/v1/evaluation", fmt.Sprintf(`{"subject":{"type":"user","id":%q},"action":{"name":%q},"resource":{"type":"doc","id":"plan"},"context":{"owner":"bob"}}`, subject, action), &answer)
	}
}

// rowsOf returns the entries of the page.
func rowsOf(b *browser) []string {
	return eval[[]string](b, `[...document.querySelectorAll("table.entries tbody tr")].map(r => r.cells[5].innerText + " " + r.cells[2].innerText)`)
}

// A search is in the URL: a second auditor sees the same rows. Older reaches entry 0, and a search that finds
// nothing says how far it looked.
func TestSearchOfTheLog(t *testing.T) {
	s := serveLogged(t)
	s.ask("alice", "read", 70)
	s.ask("mallory", "erase", 60)
	b := s.signIn(t, "user:carol", look{desktop: true})
	b.visit("/decisions")
	b.fill("Subject, Decision-ID or request", "user:alice")
	b.click("Search")
	b.until("the search is not in the URL", func() error {
		if !strings.Contains(b.path(), "subject=user%3Aalice") {
			return errNotYet
		}
		return nil
	})
	b.sees("Looked at entries", "50 entries found")
	shared, rows := b.path(), rowsOf(b)
	if len(rows) != 50 || !strings.Contains(shared, "subject=user%3Aalice") {
		t.Errorf("%s has %d rows", shared, len(rows))
	}
	second := s.signIn(t, "user:dave", look{desktop: true})
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
	quiet := s.signIn(t, "user:erin", look{noScript: true})
	quiet.visit("/decisions")
	quiet.fill("Subject, Decision-ID or request", "mallory")
	quiet.press("\r")
	quiet.sees("Deny", "50 entries found")
}

// A denial shows the nearest permit, the condition that failed and the value that it read.
func TestReasonsOfADenial(t *testing.T) {
	s := serveLogged(t)
	s.ask("alice", "write", 1)
	for _, as := range []look{{}, {desktop: true, noScript: true}} {
		b := s.signIn(t, "user:carol", as)
		b.visit("/decisions/1")
		b.sees("alice may not write plan", "owners came nearest", "does not hold", `context.owner is "bob"`, "What would change it")
		if href := eval[string](b, `document.querySelector('a.button[href^="/try"]')?.getAttribute("href") ?? ""`); !strings.HasPrefix(href, "/try?from=") {
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
	s := serveLogged(t)
	s.ask("alice", "read", 20)
	b := s.signIn(t, "user:carol", look{})
	b.visit("/decisions/7")
	b.sees("Verified here", "saw the key", "7 of 2")
	b.visit("/decisions/8")
	b.sees("Verified here", "It keeps the key")
	s.run("log", "rotate-key", "--state", s.state)
	b.visit("/decisions/8")
	b.sees("Verified here", "The key changed")
	b.visit("/decisions/9")
	b.sees("Verified here", "It keeps the key")
	eval[bool](b, `(() => { localStorage.setItem("log-key", "policy-service/0000000000000000+00000000+AAAA"); return true })()`)
	b.visit("/decisions/9")
	b.sees("Not verified: another key")
	b.click("Trust this key in this browser")
	b.sees("Verified here")
	eval[bool](b, `(() => { document.querySelector("#pasted").closest("details").open = true; document.querySelector("#paste").value = "no key"; return true })()`)
	b.click("Use this key")
	b.sees("This is not a key")
	b.visit("/decisions/9")
	b.sees("Verified here", "It keeps the key")

	base := lying(t, s.console, func(text []byte) []byte { return bytes.Replace(text, []byte("alice"), []byte("bobby"), 1) })
	liar := open(t, base, look{})
	liar.visit(strings.TrimPrefix(s.link("user:carol"), s.console))
	liar.click("Sign in")
	liar.sees("Sign out")
	liar.visit("/decisions/7")
	liar.sees("Not verified", "entry 7 is not in the log")

	s.End(t)
	tamper(t, s.state)
	changed := s.again()
	b = changed.signIn(t, "user:carol", look{})
	b.visit("/decisions/7")
	b.sees("Not verified", "entry 7 is not in the log")
	out, err := exec.Command(s.Process.Path, "log", "verify", "--state", s.state).CombinedOutput()
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
	s := serveLogged(t)
	s.ask("alice", "write", 3)
	b := s.signIn(t, "user:carol", look{desktop: true})
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
	if err := os.WriteFile(keys, []byte(s.run("log", "keys", "--state", s.state)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := s.run("log", "verify", "--bundle", file, "--key", keys); !strings.HasPrefix(out, "verified: 1 entry (2 to 2)") {
		t.Error(out)
	}
	unpacked := filepath.Join(dir, "evidence")
	if out, err := exec.Command(external.Program(t, "python3"), "-m", "zipfile", "-e", file, unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(external.Program(t, "node"), filepath.Join(unpacked, "verify.mjs"), keys).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "verified: 1 entry") || !strings.Contains(string(out), "policies of sha256:") {
		t.Errorf("%v\n%s", err, out)
	}

	b.visit("/decisions?subject=alice")
	verifier, err := process.VerifyLog()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(verifier, b.download("Bundle"), keys).CombinedOutput(); err != nil || !strings.Contains(string(out), "3 entries") {
		t.Errorf("%v\n%s", err, out)
	}
}

// download presses a button, and returns the file that the browser stores.
func (b *browser) download(name string) (file string) {
	b.Helper()
	dir, parent := b.TempDir(), chromium(b.TB)
	all := cdp.WithExecutor(parent, chromedp.FromContext(parent).Browser)
	if err := storing.SetDownloadBehavior(storing.SetDownloadBehaviorBehaviorAllow).WithBrowserContextID(b.person).WithDownloadPath(dir).Do(all); err != nil {
		b.Fatal(err)
	}
	b.click(name)
	process.Eventually(b, "the file is stored", func() bool {
		files, _ := filepath.Glob(filepath.Join(dir, "*.zip"))
		file = strings.Join(files, "")
		return file != ""
	})
	return file
}

// Live shows new entries, stands still while it is paused, and then says how many it left out.
func TestLiveEntries(t *testing.T) {
	s := serveLogged(t)
	b := s.signIn(t, "user:carol", look{})
	b.visit("/live")
	b.sees("Connected")
	s.ask("alice", "read", 3)
	b.until("all are listed", func() error {
		if eval[int](b, `document.querySelectorAll("#entries .good").length`) != 3 {
			return errNotYet
		}
		return nil
	})
	b.sees("alice read on plan", "Allow")
	b.click("Pause")
	s.ask("zoe", "erase", 80)
	b.sees("Paused. 80 entries came since")
	b.seesNot("zoe")
	b.accessible()
	b.click("Go on")
	b.sees("zoe erase on plan", "30 entries are not listed")
	if rows := eval[int](b, `document.querySelectorAll("#entries a").length`); rows > 50 {
		t.Errorf("%d rows", rows)
	}
	b.narrow()
}

// Every page of the log is accessible and fits, in every size and colour.
func TestLooksOfTheLog(t *testing.T) {
	s := serveLogged(t)
	s.ask("alice", "read", 3)
	s.ask("alice-with-a-very-long-name-that-nobody-would-type@subsidiary.example.com", "write", 1)
	everyLook(t, func(t *testing.T, as look) {
		b := s.signIn(t, "user:carol", as)
		for name, page := range map[string]struct{ path, sees string }{
			"decisions": {"/decisions", "Looked at"}, "decisions-filters": {"/decisions?errors=true&action=read", "Nothing in the log matches"},
			"decision-allow": {"/decisions/1", "Verified here"}, "decision-deny": {"/decisions/4", "Verified here"}, "decision-raw": {"/decisions/1?raw", "as it was recorded"},
			"decision-reload": {"/decisions/0", "Verified here"}, "task": {"/tasks/arq_none", "nothing about this request"}, "live": {"/live", "Connected"},
		} {
			b.visit(page.path)
			b.sees(page.sees)
			b.good(name)
		}
	})
}
