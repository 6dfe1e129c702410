package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/conformance/process"
)

// site serves pages with a Content-Security-Policy.
func site(t *testing.T, pages map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; style-src 'self'")
		greeting := ""
		if name := r.FormValue("name"); name != "" {
			greeting = "Hello " + name
		}
		fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><title>Page</title><main><h1>Page</h1>%s<p>%s</p></main></html>`, pages[r.URL.Path], greeting)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// What a page must not do does not escape the kit.
func TestKitHearsFaults(t *testing.T) {
	for name, c := range map[string]struct{ page, want string }{
		"inline script": {`<script>alert(1)</script>`, "Content-Security-Policy: script-src"},
		"inline style":  {`<p style="color:red">x</p>`, "Content-Security-Policy: style-src"},
		"image":         {`<img alt="x" src="http://evil.example/x.png">`, "Content-Security-Policy: img-src"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, site(t, map[string]string{"/": c.page}), look{})
			b.visit("/")
			var heard []string
			process.Eventually(t, "the report is heard", func() bool {
				heard = append(heard, b.complaints()...)
				return strings.Contains(strings.Join(heard, "\n"), c.want)
			})
			b.complaints()
		})
	}
}

// A form is filled in and sent by the names that people see, with and without JavaScript.
func TestKitFillsForms(t *testing.T) {
	base := site(t, map[string]string{"/": `<form method="post"><label for="n">Your name</label><input id="n" name="name"><button>Greet</button></form>`})
	for _, l := range []look{{}, {noScript: true, desktop: true, dark: true}} {
		b := open(t, base, l)
		b.visit("/")
		b.fill("Your name", "carol")
		b.click("Greet")
		b.sees("Hello carol")
		b.narrow()
		b.one("Greet", "button")
		if b.has("button", "Deny") {
			t.Error("a button is found that is not there")
		}
	}
	b := open(t, base, look{})
	b.visit("/")
	b.tabTo("Your name")
	b.press("d")
	b.press("\r")
	b.sees("Hello d")
	b.accessible()
}

// Tabs of one person share cookies, people do not, and every page can be looked at in each look.
func TestKitTellsPeopleApart(t *testing.T) {
	everyLook(t, func(t *testing.T, l look) {
		b := open(t, site(t, map[string]string{"/next": "Next page"}), l)
		b.visit("/")
		eval[string](b, `document.cookie = "person=carol"`)
		tab := b.another()
		tab.visit("/next")
		tab.at("/next")
		tab.sees("Next page")
		tab.seesNot("Hello")
		tab.shoot("kit")
		if got := eval[string](tab, "document.cookie"); got != "person=carol" {
			t.Errorf("the tab has the cookies %q", got)
		}
		other := open(t, b.base, l)
		other.visit("/")
		if got := eval[string](other, "document.cookie"); got != "" || !slices.Contains(other.requested(), b.base+"/") {
			t.Errorf("another person has the cookies %q, and asked for %q", got, other.requested())
		}
	})
}
