package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// evil serves a page at another host, or at another port of the console's host, which is another origin whose
// requests have the cookies of the console.
func evil(t *testing.T, host, html string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><title>Prizes</title><body>%s</body></html>`, html)
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + host + ":" + u.Port() + "/"
}

// A page of another site shows nothing of the console in a frame.
func TestConsoleIsNotFramed(t *testing.T) {
	c := newCampus(t)
	task := c.asked("call", "alice", ordinary)
	b := c.at("u-carol", "/requests/"+task, look{})
	b.visit(evil(t, "127.0.0.1", `<iframe id="f" src="`+c.console+`/requests/`+task+`" width="390" height="800"></iframe><p>Win</p>`))
	b.sees("Win")
	b.until("the frame is refused", func() error {
		if heard := strings.Join(b.complaints(), "\n"); !strings.Contains(heard, "frame-ancestors") && !strings.Contains(heard, "X-Frame-Options") {
			return errNotYet
		}
		return nil
	})
	if framed := eval[bool](b, `(f => { try { return f.contentDocument !== null && f.contentDocument.body.innerText !== "" } catch { return false } })(document.getElementById("f"))`); framed {
		t.Error("the frame shows the page")
	}
	if strings.Contains(b.text(), "Approve") || c.read(task).Status != "pending" {
		t.Error("the console is in a frame")
	}
	b.complaints()
}

// A press in the moment in which the page comes to the front decides nothing, and the page says so. The next
// one decides.
func TestAPressAtOnceDecidesNothing(t *testing.T) {
	c := newCampus(t)
	task := c.asked("call", "alice", ordinary)
	b := c.at("u-carol", "/requests/"+task, look{})
	for range 5 {
		b.visit("/requests/" + task)
		at := eval[float64](b, `(performance.now() < 400 && document.querySelector("button[value=deny]").click(), performance.now())`)
		if status := c.read(task).Status; status != "pending" {
			t.Fatalf("a press after less than %.0f ms decided: %s", at, status)
		}
	}
	said := eval[string](b, `(dispatchEvent(new Event("focus")), document.querySelector("button[value=deny]").click(), document.getElementById("sending").textContent)`)
	if !strings.Contains(said, "press again") || c.read(task).Status != "pending" {
		t.Errorf("after a press at once, the page says %q", said)
	}
	b.accessible()
	b.decide("Deny")
	b.sees("You denied this")
}

// A form and a script of another origin decide nothing, though the browser has a session and the page a valid
// form.
func TestOtherSitesDecideNothing(t *testing.T) {
	c := newCampus(t)
	task := c.asked("call", "alice", ordinary)
	b := c.at("u-carol", "/requests/"+task, look{})
	ticket := eval[string](b, `document.querySelector("#decide [name=ticket]").value`)
	sheet := eval[string](b, `document.querySelector("#decide [name=sheet]").value`)
	form := fmt.Sprintf(`<form method="post" action="%s/requests/%s/decision"><input name="ticket" value="%s"><input name="sheet" value="%s"><input name="decision" value="deny"><button>Win</button></form>`, c.console, task, ticket, sheet)
	other := b.another()
	for _, host := range []string{"prizes.example", "127.0.0.1"} {
		other.visit(evil(t, host, form))
		other.click("Win")
		other.sees("did not come from a page of this console")
		if got := c.read(task).Status; got != "pending" {
			t.Errorf("a form of %s decided: %s", host, got)
		}
	}
	other.visit(evil(t, "127.0.0.1", `<p>Win</p>`))
	evalAwait[string](other, fmt.Sprintf(`fetch(%q, {method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams({decision: "deny", ticket: %q, sheet: %q})}).then(() => "", () => "")`,
		c.console+"/requests/"+task+"/decision", ticket, sheet))
	if got := c.read(task).Status; got != "pending" {
		t.Errorf("a script of another site decided: %s", got)
	}
	other.complaints()
}

// payloads are texts that became markup, scripts, styles or addresses somewhere.
func payloads() (all []string) {
	for _, tag := range []string{"script", "img", "svg", "iframe", "object", "embed", "form", "a", "style", "link", "meta", "base", "input", "button", "textarea", "details", "video", "audio", "math", "template"} {
		all = append(all,
			fmt.Sprintf(`<%s src=x onerror=alert(1) onload=alert(1) autofocus onfocus=alert(1)>`, tag),
			fmt.Sprintf(`"><%s href="javascript:alert(1)" action="http://evil.example/" formaction="http://evil.example/">x</%s>`, tag, tag),
			fmt.Sprintf(`'/><%s style="background:url(http://evil.example/%s)">`, tag, tag),
			fmt.Sprintf(`</dd></dl></main></body><%s data="http://evil.example/" content="0;url=http://evil.example/" http-equiv="refresh">`, tag),
			fmt.Sprintf(`</title></textarea></style></script><%s xlink:href="data:text/html,<script>alert(1)</script>">`, tag),
			fmt.Sprintf(`&lt;%s&gt;<!--><%s hx-post="/requests" onclick=alert(1)-->`, tag, tag),
			fmt.Sprintf(`{{template "main"}}<%s>{{.}}${alert(1)}#{alert(1)}<%%= 1 %%>`, tag),
			fmt.Sprintf("<%s\n\t/onmouseover\n=\nalert(1)\x00>", tag),
			fmt.Sprintf(`javascript:/*--></%s><svg/onload='+/"/+/onmouseover=1/+/[*/[]/+alert(1)//'>`, tag),
			fmt.Sprintf(`@import "http://evil.example/%s.css"; } * { display: none } </style><%s>`, tag, tag),
		)
	}
	return all
}

// Whatever somebody writes is text on the pages: it makes no element, no request, no dialog and no report.
func TestPayloadsAreText(t *testing.T) {
	c := newCampus(t)
	all := payloads()
	if len(all) < 200 {
		t.Fatalf("there are %d payloads", len(all))
	}
	arguments := map[string]string{}
	for n, payload := range all {
		arguments[fmt.Sprintf("a%03d", n)] = payload
		if n%20 == 0 {
			arguments[payload] = "the name"
		}
	}
	text, err := json.Marshal(arguments, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	plain := c.at("u-carol", "/requests/"+c.asked("call", "alice", ordinary), look{desktop: true})
	kinds := `[...new Set([...document.querySelectorAll("*")].map(e => e.localName))].sort().join(" ")`
	events := `[...document.querySelectorAll("*")].filter(e => [...e.attributes].some(a => /^on|^style$|^hx-|javascript:|evil/.test(a.name + a.value))).length`
	plain.sees("acme/billing", "What approving does")
	known := eval[string](plain, kinds)
	task := c.asked("call", "alice <img src=x onerror=alert(1)>", string(text))
	plain.visit("/requests/" + task)
	plain.sees("a199")
	for _, tag := range strings.Fields(eval[string](plain, kinds)) {
		if !strings.Contains(" "+known+" details summary b ", " "+tag+" ") {
			t.Errorf("a payload has made an element %s", tag)
		}
	}
	if n := eval[int](plain, events); n != 0 {
		t.Errorf("%d elements have attributes of payloads", n)
	}
	shown := plain.text()
	for _, payload := range all {
		if first, _, _ := strings.Cut(payload, "\n"); !strings.Contains(shown, first) {
			t.Errorf("the page does not show %q", payload)
		}
	}
	plain.visit("/requests")
	plain.sees("onerror")
	for _, asked := range plain.requested() {
		if strings.Contains(asked, "evil") || strings.HasPrefix(asked, "data:") || strings.HasPrefix(asked, "javascript:") {
			t.Errorf("the page requested %s", asked)
		}
	}
}

// A page that leads elsewhere after signing in does not: neither the provider nor a link decides where.
func TestSignInLeadsNowhereElse(t *testing.T) {
	c := newCampus(t)
	for _, next := range []string{"//evil.example", `/\evil.example`, "https:evil.example", "%2f%2fevil.example", "/\t/evil.example", "http://evil.example/", "javascript:alert(1)"} {
		b := open(t, c.console, look{})
		b.visit("/sign-in/start?next=" + url.QueryEscape(next))
		b.click("u-carol")
		b.at("/requests")
	}
}
