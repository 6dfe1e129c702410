package pdp_test

import (
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A browser sends what a browser sends, and keeps cookies.
type browser struct {
	*testing.T
	base string
	http *http.Client
}

// startConsole starts a service with a console, and returns a browser that nobody is signed in to.
func startConsole(t *testing.T, c pdp.Config) (*service, *browser) {
	t.Helper()
	c.Console.Listen = "127.0.0.1:0"
	s := start(t, c)
	return s, newBrowser(t, s.console)
}

func newBrowser(t *testing.T, base string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, base, &http.Client{Jar: jar}}
}

// send sends a request with the headers of a browser, and returns status, page and where it ended.
func (b *browser) send(method, at, origin string, form url.Values) (status int, page, path string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, at, strings.NewReader(form.Encode()))
	if err != nil {
		b.Fatal(err)
	}
	if method != http.MethodGet {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	answer, err := b.http.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answer.StatusCode, string(text), answer.Request.URL.Path
}

func (b *browser) get(path string) (status int, page, at string) {
	return b.send(http.MethodGet, b.base+path, "", nil)
}

func (b *browser) post(path string, form url.Values) (status int, page, at string) {
	return b.send(http.MethodPost, b.base+path, b.base, form)
}

// link returns a link that signs carol in, made at a time.
func link(t *testing.T, s *service, made time.Time) (path string, ticket url.Values) {
	t.Helper()
	address, err := console.Link(s.state, authzen.Subject{Type: "user", ID: "carol"}, made)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.RequestURI(), url.Values{"ticket": {u.Query().Get("ticket")}}
}

// A link from the command line signs in once, by its button, within a minute. Both are in the log.
func TestLinkSignsInOnce(t *testing.T) {
	s, b := startConsole(t, pdp.Config{})
	path, ticket := link(t, s, time.Now())
	for range 3 { // as programs that look at links in messages do
		if status, page, _ := b.get(path); status != 200 || !strings.Contains(page, "user:carol") {
			t.Fatalf("the link: %d %s", status, page)
		}
	}
	if _, _, at := b.get("/requests"); at != "/sign-in" {
		t.Errorf("opening the link signed in: %s", at)
	}
	if status, page, at := b.post("/sign-in/local", ticket); status != 200 || at != "/" || !strings.Contains(page, "carol") {
		t.Fatalf("the button: %d at %s: %s", status, at, page)
	}
	other := newBrowser(t, s.console)
	if status, _, _ := other.post("/sign-in/local", ticket); status != 403 {
		t.Errorf("the same link a second time: %d", status)
	}
	if _, _, at := b.post("/sign-out", nil); at != "/sign-in" {
		t.Errorf("signing out leads to %s", at)
	}
	if _, _, at := b.get("/requests"); at != "/sign-in" {
		t.Errorf("after signing out, /requests leads to %s", at)
	}
	_, entries := get(t, s.admin+pdp.PathLogQuery+"?kind=admin")
	for _, action := range []string{`"action":"sign_in"`, `"action":"sign_out"`, `"by":"user:carol"`, `"method":"link"`} {
		if !strings.Contains(entries, action) {
			t.Errorf("the log has no %s: %s", action, entries)
		}
	}
}

// Old links, forged ones and those of another run of the service sign nobody in.
func TestOtherLinksSignNobodyIn(t *testing.T) {
	s, b := startConsole(t, pdp.Config{})
	earlier, _ := startConsole(t, pdp.Config{})
	_, old := link(t, s, time.Now().Add(-2*time.Minute))
	_, other := link(t, earlier, time.Now())
	_, forged := link(t, s, time.Now())
	content, mac, _ := strings.Cut(forged.Get("ticket"), ".")
	for name, ticket := range map[string]string{
		"old": old.Get("ticket"), "of another service": other.Get("ticket"), "no signature": content, "empty": "", "with the other's signature": content + "." + strings.ToUpper(mac),
	} {
		if status, _, _ := b.post("/sign-in/local", url.Values{"ticket": {ticket}}); status != 403 {
			t.Errorf("a ticket %s: %d", name, status)
		}
	}
	if status, _, _ := b.post("/sign-in/local", forged); status != 200 {
		t.Errorf("the ticket itself: %d", status)
	}
}

// A form of another page does nothing, nor does one of which the browser does not say the page.
func TestFormsComeFromTheConsole(t *testing.T) {
	s, b := startConsole(t, pdp.Config{})
	for _, origin := range []string{"https://evil.example", "http://127.0.0.1:1", "null", ""} {
		_, ticket := link(t, s, time.Now())
		if status, _, _ := b.send(http.MethodPost, s.console+"/sign-in/local", origin, ticket); status != 403 {
			t.Errorf("a form of %q: %d", origin, status)
		}
	}
}

// Connections of people who are not signed in do not keep those out who are.
func TestStrangersDoNotFillTheConsole(t *testing.T) {
	s, b := startConsole(t, pdp.Config{Limits: pdp.Limits{Connections: 4}})
	_, ticket := link(t, s, time.Now())
	if status, _, _ := b.post("/sign-in/local", ticket); status != 200 {
		t.Fatalf("sign in: %d", status)
	}
	for range 20 {
		idle, err := net.Dial("tcp", strings.TrimPrefix(s.console, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
	}
	if status, _, at := b.get("/requests"); status != 200 || at != "/requests" {
		t.Errorf("with 20 connections of strangers: %d at %s", status, at)
	}
}

// Another host name, as after DNS rebinding, is refused on every page.
func TestConsoleHasItsHost(t *testing.T) {
	s, _ := startConsole(t, pdp.Config{})
	for _, path := range []string{"/", "/sign-in", "/requests", "/sign-in/local"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.console+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "evil.example"
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s with another host: %d", path, answer.StatusCode)
		}
	}
}
