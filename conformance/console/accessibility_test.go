package console_test

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
)

// A state is a page in one of its states, and how to get there. A person is signed in.
type state struct {
	name   string
	person string // "" means carol
	open   func(*service, *browser)
}

const (
	plainArguments   = `{"repository":"acme/billing","branch":"main","force":false,"paths":["a.go","b.go"]}`
	hostileArguments = `{"html":"<img src=x onerror=alert(1)>","bidi":"abc\u202etxt.exe","mixed":"p\u0430ypal","api_key":"sk-live-1234567890abcdef","line":"one\ntwo","blank":"` + "\u200b" + `"}`
)

// longArguments has values that the page folds.
var longArguments = fmt.Sprintf(`{"script":%q,"word":%q}`, strings.Repeat("rm -rf / # ", 700), strings.Repeat("x", 5000))

// at opens a path.
func at(path string) func(*service, *browser) {
	return func(_ *service, b *browser) { b.visit(path) }
}

// waiting opens a new request.
func waiting(arguments string) func(*service, *browser) {
	return func(s *service, b *browser) { b.visit("/requests/" + s.submit(push("alice", arguments))) }
}

// decided opens a request after carol's decision.
func decided(decision string) func(*service, *browser) {
	return func(s *service, b *browser) {
		task := s.submit(push("alice", plainArguments))
		s.decide(task, decision, "carol")
		b.visit("/requests/" + task)
	}
}

// states are those of the pages of approvers.
var states = []state{
	{name: "requests-empty", open: at("/requests")},
	{name: "not-found", open: at("/requests/arq_unknown")},
	{name: "request", open: waiting(plainArguments)},
	{name: "request-hostile", open: waiting(hostileArguments)},
	{name: "request-long", open: waiting(longArguments)},
	{name: "request-without-arguments", open: waiting(`{}`)},
	{name: "request-own", person: "user:alice", open: waiting(plainArguments)},
	{name: "request-not-permitted", person: "user:bob", open: waiting(plainArguments)},
	{name: "request-approved", open: decided("approve")},
	{name: "request-denied", open: decided("deny")},
	{name: "requests", open: at("/requests")},
}

// Every state of every page has no finding of axe-core, is no wider than the screen, and has targets of
// 44 pixels on phones.
func TestStatesAreAccessible(t *testing.T) {
	everyLook(t, func(t *testing.T, l look) {
		s := serve(t)
		out := open(t, s.console, l)
		out.visit("/sign-in")
		out.good("sign-in")
		out.visit(s.link("user:carol"))
		out.good("sign-in-link")
		browsers := map[string]*browser{}
		for _, state := range states {
			if state.person == "" {
				state.person = "user:carol"
			}
			b := browsers[state.person]
			if b == nil {
				b = s.signIn(t, state.person, l)
				browsers[state.person] = b
			}
			state.open(s, b)
			b.good(state.name)
		}
	})
}

// good checks and photographs the page.
func (b *browser) good(name string) {
	b.Helper()
	b.sees("policy-service")
	b.accessible()
	b.narrow()
	if !b.desktop {
		b.touchable()
	}
	b.shoot(name)
}

// touchable fails if something to touch is smaller than 44 pixels. Links in the flow of a text are exempt
// (WCAG 2.5.8).
func (b *browser) touchable() {
	b.Helper()
	small := eval[[]string](b, `[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")].filter(e => {
		const box = e.getBoundingClientRect(), inText = e.matches("a") && getComputedStyle(e).display === "inline";
		const area = e.matches("input[type=checkbox], input[type=radio]") && e.closest("label") ? e.closest("label").getBoundingClientRect() : box;
		return e.checkVisibility({visibilityProperty: true}) && box.width > 1 && !inText && (area.height < 43.9 || area.width < 43.9) && !e.matches(".skip");
	}).map(e => e.outerHTML.slice(0, 120) + " is " + Math.round(e.getBoundingClientRect().width) + " x " + Math.round(e.getBoundingClientRect().height))`)
	for _, e := range small {
		b.Errorf("%s: %s", b.path(), e)
	}
}

// identifier is the part of a path that names an object.
var identifier = regexp.MustCompile(`/(arq_|apr_|cap_|rep_|sha256:|[0-9a-f]{8}-|[0-9]+($|/))[^/?]*`)

// shape returns a path without what is different in each of its kind.
func shape(path string) string {
	u, err := url.Parse(path)
	if err != nil {
		return path
	}
	return identifier.ReplaceAllString(u.Path, "/ID")
}

// mostPages is the maximum number of pages that a crawl visits.
const mostPages = 40

// mostOfShape is the maximum number of pages of one shape that a crawl visits: three, and
// more of them for pictures.
var mostOfShape = func() int {
	if os.Getenv("SCREENSHOTS") == "" {
		return 3
	}
	return 5
}()

// crawl visits every page that links lead to, some of each shape, and looks at it.
func (b *browser) crawl(look func(name string)) {
	b.Helper()
	seen := map[string]int{}
	todo, queued := []string{"/"}, map[string]bool{}
	for pages := 0; len(todo) > 0 && pages < mostPages; {
		path := todo[0]
		todo = todo[1:]
		if seen[shape(path)] == mostOfShape {
			continue
		}
		pages++
		seen[shape(path)]++
		b.visit(path)
		if title := eval[string](b, "document.title"); strings.HasPrefix(title, "Not Found") {
			b.Errorf("a link leads to %s, which does not exist", path)
		}
		look(fmt.Sprintf("crawl%s-%d", strings.ReplaceAll(shape(path), "/", "-"), seen[shape(path)]))
		for _, link := range eval[[]string](b, `[...document.querySelectorAll("a[href]")].filter(a => a.origin === location.origin && !a.hasAttribute("download")).map(a => a.pathname + a.search)`) {
			if !queued[link] {
				queued[link], todo = true, append(todo, link)
			}
		}
	}
	if len(seen) < 8 {
		b.Errorf("only %v are linked", seen)
	}
}

// busy is a service with a request that waits and one that was denied.
func busy(t *testing.T) *service {
	t.Helper()
	s := serve(t)
	s.submit(push("alice", plainArguments))
	s.decide(s.submit(push("alice", hostileArguments)), "deny", "carol")
	return s
}

// Every page that links lead to is accessible, whoever has added it.
func TestLinkedPagesAreAccessible(t *testing.T) {
	everyLook(t, func(t *testing.T, l look) {
		b := busy(t).signIn(t, "user:carol", l)
		b.crawl(b.good)
	})
}

// words returns the words that the page shows, without the heads of tables, which phones do not need.
func (b *browser) words() []string {
	b.Helper()
	return strings.Fields(eval[string](b, `[...document.querySelectorAll("thead")].reduce((text, head) => text.replace(head.innerText, ""), document.querySelector("main").innerText)`))
}

// A phone shows everything that a desktop shows.
func TestPhonesShowWhatDesktopsShow(t *testing.T) {
	b := busy(t).signIn(t, "user:carol", look{noScript: true})
	b.crawl(func(string) {
		phone := b.words()
		b.run(emulation.SetDeviceMetricsOverride(1280, 800, 1, false))
		for _, word := range b.words() {
			if !slices.Contains(phone, word) {
				b.Errorf("%s: only a desktop shows %q", b.path(), word)
			}
		}
		b.run(emulation.SetDeviceMetricsOverride(390, 844, 1, true))
	})
}

// A screen of 320 pixels and text of 200 % need no sideways scrolling.
func TestNarrowScreensAndLargeText(t *testing.T) {
	s := serve(t)
	task := s.submit(push("alice", hostileArguments))
	for name, scale := range map[string]string{"320": "100%", "large": "200%"} {
		b := s.signIn(t, "user:carol", look{})
		if name == "320" {
			b.run(emulation.SetDeviceMetricsOverride(320, 640, 1, true))
		}
		for _, path := range []string{"/requests", "/requests/" + task} {
			b.visit(path)
			before := eval[float64](b, `parseFloat(getComputedStyle(document.querySelector("h1")).fontSize)`)
			eval[string](b, fmt.Sprintf(`document.documentElement.style.fontSize = %q`, scale))
			if after := eval[float64](b, `parseFloat(getComputedStyle(document.querySelector("h1")).fontSize)`); name == "large" && after < 1.9*before {
				t.Errorf("%s: text of 200 %% is %.1f px, before %.1f", path, after, before)
			}
			b.narrow()
			b.shoot("narrow-" + name + strings.ReplaceAll(shape(path), "/", "-"))
		}
	}
}

// The keyboard reaches everything in order, the focus has a ring of 3 pixels, and the bar with the buttons
// never hides it.
func TestFocusIsSeen(t *testing.T) {
	s := serve(t)
	task := s.submit(push("alice", hostileArguments))
	for _, l := range looks {
		b := s.signIn(t, "user:carol", l)
		for _, path := range []string{"/requests", "/requests/" + task} {
			b.visit(path)
			var reached []string
			for range 60 {
				b.press("\t")
				at := eval[map[string]string](b, `(e => {
					if (!e || e === document.body) return {name: ""};
					const style = getComputedStyle(e), box = e.getBoundingClientRect();
					const x = box.left + Math.min(box.width / 2, 40), y = box.top + Math.min(box.height / 2, 12);
					const top = document.elementFromPoint(x, y);
					return {
						name: e.tagName + " " + (e.name || e.id || e.innerText || "").slice(0, 40),
						ring: style.outlineStyle === "none" ? "0" : String(parseFloat(style.outlineWidth)),
						hidden: String(!(top && (e.contains(top) || top.contains(e) || top.closest("label")?.contains(e)))),
					};
				})(document.activeElement)`)
				if at["name"] == "" {
					break
				}
				reached = append(reached, at["name"])
				if at["ring"] != "3" || at["hidden"] == "true" {
					t.Errorf("%s (%s): %s has a ring of %s px, hidden: %s", path, l, at["name"], at["ring"], at["hidden"])
				}
			}
			if len(reached) < 4 {
				t.Errorf("%s: the keyboard reaches %q", path, reached)
			}
		}
	}
}

// Keys lead to pages and through lists, never decide, and can be turned off.
func TestKeys(t *testing.T) {
	s := serve(t)
	first, second := s.submit(push("alice", plainArguments)), s.submit(push("alice", plainArguments))
	b := s.signIn(t, "user:carol", look{desktop: true})
	ready := func(path string) {
		t.Helper()
		b.at(path)
		b.one("Keyboard", "button") // the script shows it
	}
	b.visit("/requests/" + first)
	ready("/requests/" + first)
	for _, key := range []string{"a", "d", "y", "\r", " ", "1", "x"} {
		b.press(key)
	}
	b.at("/requests/" + first)
	b.press("g")
	b.press("a")
	ready("/requests")
	lower := eval[string](b, `document.querySelectorAll("a.row")[1].pathname`) // of the same second, in any order
	b.press("j")
	b.press("j")
	b.press("k")
	b.press("j")
	b.press("\r")
	ready(lower)
	b.press("?")
	b.sees("No key decides.")
	b.good("keys")
	b.press("g")
	b.press("a")
	b.at(lower)
	b.click("Keys are on")
	b.click("Close")
	b.press("g")
	b.press("a")
	b.at(lower)
	b.visit("/requests")
	ready("/requests")
	b.press("j")
	if got := eval[string](b, "document.activeElement.tagName"); got != "BODY" {
		t.Errorf("after the keys were turned off, j leads to %s", got)
	}
	for _, task := range []string{first, second} {
		var r struct {
			Status string `json:"status"`
		}
		s.get(s.Admin+"/admin/v1/requests/"+task, &r)
		if r.Status != "pending" {
			t.Errorf("%s is %s", task, r.Status)
		}
	}
}

// Without JavaScript the pages of approvers say and do the same: no control is there that does nothing.
func TestPagesWithoutJavaScript(t *testing.T) {
	s := serve(t)
	task := s.submit(push("alice", longArguments))
	b := s.signIn(t, "user:carol", look{noScript: true})
	b.visit("/requests/" + task)
	b.narrow()
	if b.has("button", "Keyboard") || b.has("dialog", "Keyboard") {
		t.Error("the page offers keys, which need JavaScript")
	}
	b.sees(strings.Repeat("x", 5000)[:200], "Approve", "Deny")
	b.click("Deny")
	b.sees("You denied this")
}
