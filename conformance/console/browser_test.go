package console_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/conformance/process"
)

func TestMain(m *testing.M) {
	code := process.Main(m)
	if endChromium != nil {
		endChromium()
	}
	os.Exit(code)
}

// endChromium ends the browser, if a test has started it.
var endChromium func()

// startChromium starts the browser, one for all tests of the package. Names below .example are this
// host, so that tests have pages of other sites.
var startChromium = sync.OnceValues(func() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // chromium refuses to run as root with one
		chromedp.Flag("host-resolver-rules", "MAP *.example 127.0.0.1"),
		chromedp.Flag("ignore-certificate-errors", true),
		chromedp.WSURLReadTimeout(time.Minute),
	)
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {})) // events that chromedp does not know
	endChromium = func() { cancel(); end() }
	return ctx, chromedp.Run(ctx)
})

func chromium(t testing.TB) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("runs Chromium: make check runs it")
	}
	external.Program(t, "chromium")
	ctx, err := startChromium()
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// A look is how a browser shows pages. The zero value is a phone in light colours.
type look struct {
	desktop  bool
	dark     bool
	noScript bool // JavaScript is off
}

func (l look) String() string {
	size, colours := "390x844", "light"
	if l.desktop {
		size = "1280x800"
	}
	if l.dark {
		colours = "dark"
	}
	return size + "-" + colours
}

// looks are the sizes and colours in which pages have to be good. Without pictures, two of the four are
// looked at: each size and each colours.
var looks = func() []look {
	if os.Getenv("SCREENSHOTS") == "" {
		return []look{{}, {desktop: true, dark: true}}
	}
	return []look{{}, {dark: true}, {desktop: true}, {desktop: true, dark: true}}
}()

// A browser is the one of a person: it shares no cookies with others.
type browser struct {
	testing.TB
	look
	base string // URL of the console

	person cdp.BrowserContextID
	ctx    context.Context // of the tab

	mu     sync.Mutex
	faults []string // reports of Content-Security-Policy, errors and messages of scripts
	asked  []string // URLs of requests
}

// open starts a browser for a console. The test fails at its end if a page broke the
// Content-Security-Policy, wrote to the console of the browser, or opened a dialog.
func open(t testing.TB, base string, l look) *browser {
	t.Helper()
	parent := chromium(t)
	all := cdp.WithExecutor(parent, chromedp.FromContext(parent).Browser)
	person, err := target.CreateBrowserContext().Do(all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.DisposeBrowserContext(person).Do(all) })
	return openTab(t, person, base, l)
}

// another returns a further tab of the same person.
func (b *browser) another() *browser {
	b.Helper()
	return openTab(b.TB, b.person, b.base, b.look)
}

func openTab(t testing.TB, person cdp.BrowserContextID, base string, l look) *browser {
	t.Helper()
	parent := chromium(t)
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(person).WithNewWindow(true).Do(cdp.WithExecutor(parent, chromedp.FromContext(parent).Browser))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithTargetID(id))
	b := &browser{TB: t, look: l, base: base, person: person, ctx: ctx}
	t.Cleanup(func() {
		for _, fault := range b.complaints() {
			t.Errorf("in the browser: %s", fault)
		}
		cancel()
	})
	b.start()
	return b
}

func (b *browser) start() {
	b.Helper()
	chromedp.ListenTarget(b.ctx, b.hear)
	width, height, mobile := int64(390), int64(844), true
	if b.desktop {
		width, height, mobile = 1280, 800, false
	}
	scheme := "light"
	if b.dark {
		scheme = "dark"
	}
	if err := chromedp.Run(b.ctx); err != nil { // the first context of a tab ends it
		b.Fatal(err)
	}
	b.run(log.Enable(), runtime.Enable(), network.Enable(), page.Enable(), audits.Enable(), accessibility.Enable(),
		emulation.SetDeviceMetricsOverride(width, height, 1, mobile),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		emulation.SetScriptExecutionDisabled(b.noScript))
}

// try runs actions.
func (b *browser) try(actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(b.ctx, process.Patience)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// run runs actions, and ends the test if one fails.
func (b *browser) run(actions ...chromedp.Action) {
	b.Helper()
	if err := b.try(actions...); err != nil {
		b.Fatalf("%v at %s", err, b.url())
	}
}

// hear keeps what pages must not do.
func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Source != log.SourceNetwork { // statuses such as 409
			b.faults = append(b.faults, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		for _, argument := range e.Args {
			b.faults = append(b.faults, "console: "+string(argument.Value))
		}
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, "exception: "+e.ExceptionDetails.Error())
	case *audits.EventIssueAdded:
		if issue := e.Issue.Details.ContentSecurityPolicyIssueDetails; issue != nil {
			b.faults = append(b.faults, fmt.Sprintf("Content-Security-Policy: %s blocked %s", issue.ViolatedDirective, issue.BlockedURL))
		}
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *page.EventJavascriptDialogOpening:
		b.faults = append(b.faults, "dialog: "+e.Message)
		go b.try(page.HandleJavaScriptDialog(false))
	}
}

// complaints returns what pages did that they must not do, and forgets it.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.faults
	b.faults = nil
	return all
}

// requested returns the URLs of all requests so far.
func (b *browser) requested() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.asked...)
}

// visit opens a path of the console, or a URL.
func (b *browser) visit(to string) {
	b.Helper()
	if strings.HasPrefix(to, "/") {
		to = b.base + to
	}
	b.run(chromedp.Navigate(to))
}

// eval returns the value of an expression on the page as it is now.
func eval[T any](b *browser, expression string) (value T) {
	b.Helper()
	b.until(expression, func() error { return b.try(chromedp.Evaluate(expression, &value)) })
	return value
}

// evalAwait is eval for the promise of a value.
func evalAwait[T any](b *browser, expression string) (value T) {
	b.Helper()
	await := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	b.run(chromedp.Evaluate(expression, &value, await))
	return value
}

// until repeats what a page that is being left refuses.
func (b *browser) until(what string, do func() error) {
	b.Helper()
	var last error
	deadline := time.After(process.Patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if last = do(); last == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.Fatalf("%s: %v after %s at %s:\n%s", what, last, process.Patience, b.url(), b.text())
		}
	}
}

// url returns the URL of the page.
func (b *browser) url() (url string) {
	_ = b.try(chromedp.Location(&url))
	return url
}

// path returns the part of the URL below the console.
func (b *browser) path() string { return strings.TrimPrefix(b.url(), b.base) }

// text returns the text that the page shows.
func (b *browser) text() (text string) {
	_ = b.try(chromedp.Evaluate(`document.body ? document.body.innerText : ""`, &text))
	return text
}

var errNotYet = errors.New("not yet")

// sees waits until the page shows texts.
func (b *browser) sees(texts ...string) {
	b.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf("the page does not show %q", text), func() error {
			if !strings.Contains(b.text(), text) {
				return errNotYet
			}
			return nil
		})
	}
}

// seesNot fails if the page shows one of those texts.
func (b *browser) seesNot(texts ...string) {
	b.Helper()
	shown := b.text()
	for _, text := range texts {
		if strings.Contains(shown, text) {
			b.Errorf("%s shows %q:\n%s", b.url(), text, shown)
		}
	}
}

// at waits until the browser is at a path of the console.
func (b *browser) at(path string) {
	b.Helper()
	b.until("the browser is not at "+path, func() error {
		if b.path() != path {
			return errNotYet
		}
		return nil
	})
}

// named returns the shown elements with a role and an accessible name, as a screen reader has them.
// A name that ends with "…" is the beginning of one.
func (b *browser) named(role, name string) (found []cdp.BackendNodeID) {
	_ = b.try(chromedp.ActionFunc(func(ctx context.Context) error {
		root, err := dom.GetDocument().Do(ctx)
		if err != nil {
			return err
		}
		nodes, err := accessibility.QueryAXTree().WithNodeID(root.NodeID).WithRole(role).Do(ctx)
		if err != nil {
			return err
		}
		begin, begins := strings.CutSuffix(name, "…")
		for _, node := range nodes {
			var is string
			if node.Name != nil {
				is = strings.Trim(string(node.Name.Value), `"`)
			}
			if !node.Ignored && (is == name || begins && strings.HasPrefix(is, begin)) {
				found = append(found, node.BackendDOMNodeID)
			}
		}
		return nil
	}))
	return found
}

// has reports whether the page has a button, link or other element of that name now.
func (b *browser) has(role, name string) bool { return len(b.named(role, name)) > 0 }

// one waits for the only element with a role and a name.
func (b *browser) one(name string, roles ...string) (node cdp.BackendNodeID) {
	b.Helper()
	b.until(fmt.Sprintf("%s %q", strings.Join(roles, " or "), name), func() error {
		var all []cdp.BackendNodeID
		for _, role := range roles {
			all = append(all, b.named(role, name)...)
		}
		if len(all) != 1 {
			return fmt.Errorf("there are %d", len(all))
		}
		node = all[0]
		return nil
	})
	return node
}

// click clicks in the middle of a button, link, checkbox or other thing to click, by its name.
func (b *browser) click(name string) {
	b.Helper()
	node := b.one(name, "button", "link", "checkbox", "radio", "DisclosureTriangle", "tab")
	b.until("click "+name, func() error {
		return b.try(chromedp.ActionFunc(func(ctx context.Context) error {
			if err := dom.ScrollIntoViewIfNeeded().WithBackendNodeID(node).Do(ctx); err != nil {
				return err
			}
			quads, err := dom.GetContentQuads().WithBackendNodeID(node).Do(ctx)
			if err != nil {
				return err
			}
			if len(quads) == 0 {
				return errNotYet
			}
			q := quads[0]
			return chromedp.MouseClickXY((q[0]+q[2]+q[4]+q[6])/4, (q[1]+q[3]+q[5]+q[7])/4).Do(ctx)
		}))
	})
}

// fill writes a text into a field, by its name.
func (b *browser) fill(name, text string) {
	b.Helper()
	node := b.one(name, "textbox", "searchbox", "combobox")
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		if err := dom.Focus().WithBackendNodeID(node).Do(ctx); err != nil {
			return err
		}
		return input.InsertText(text).Do(ctx)
	}))
}

// focused returns the name of the element that has the focus, or "".
func (b *browser) focused() string {
	return strings.TrimSpace(eval[string](b, `(e => e && e !== document.body ? (e.getAttribute("aria-label") || (e.labels && e.labels[0] || e).innerText || "") : "")(document.activeElement)`))
}

// tabTo presses Tab until the element of a name has the focus.
func (b *browser) tabTo(name string) {
	b.Helper()
	for range 200 {
		b.run(chromedp.KeyEvent("\t"))
		if b.focused() == name {
			return
		}
	}
	b.Fatalf("the keyboard does not reach %q at %s", name, b.url())
}

// press presses a key.
func (b *browser) press(key string) {
	b.Helper()
	b.run(chromedp.KeyEvent(key))
}

// narrow fails if the page is wider than the screen.
func (b *browser) narrow() {
	b.Helper()
	if wide := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide > 0 {
		b.Errorf("%s is %d px wider than the screen (%s)", b.url(), wide, b.look)
	}
}

// shoot writes a picture of the whole page to the directory $SCREENSHOTS, if it is set.
func (b *browser) shoot(name string) {
	b.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	var picture []byte
	b.run(chromedp.FullScreenshot(&picture, 100))
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name+"-"+b.look.String()+".png"), picture, 0o644)); err != nil {
		b.Fatal(err)
	}
}
