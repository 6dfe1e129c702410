package console_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// write replaces a file of the policy store, as an editor does.
func (s *service) write(name, text string) {
	s.test.Helper()
	path := filepath.Join(s.store, name)
	if err := os.WriteFile(path+".tmp~", []byte(text), 0o600); err != nil {
		s.test.Fatal(err)
	}
	if err := os.Rename(path+".tmp~", path); err != nil {
		s.test.Fatal(err)
	}
}

// read returns a file of the policy store.
func (s *service) read(name string) string {
	s.test.Helper()
	text, err := os.ReadFile(filepath.Join(s.store, name))
	if err != nil {
		s.test.Fatal(err)
	}
	return string(text)
}

// decision asks for a decision and returns its id.
func (s *service) decision(request string) string {
	s.test.Helper()
	var answer authzen.Decision
	s.post(s.URL+authzen.PathEvaluation, request, &answer)
	var last struct {
		From string `json:"from"`
	}
	s.get(s.Admin+"/admin/v1/try", &last)
	return last.From
}

// A policy that is saved with a fault is on the overview within two seconds, with its place. When it
// is mended, all is well.
func TestFaultIsOnTheOverview(t *testing.T) {
	s := serve(t)
	b := s.signIn(t, "user:carol", look{desktop: true})
	b.visit("/")
	b.sees("Well")
	appears := func(word string, since time.Time) {
		t.Helper()
		process.Eventually(t, "the overview says "+word, func() bool { b.visit("/"); return strings.Contains(b.text(), word) })
		t.Logf("%s after %s", word, time.Since(since).Round(10*time.Millisecond))
	}
	saved := time.Now()
	s.write("zz.cedar", "\npermit (principal, action, resource) when { context.x == \"1 };")
	appears("Stale", saved)
	b.sees("zz.cedar:2:", "The last valid policies decide")
	b.good("overview-stale")
	if err := os.Remove(filepath.Join(s.store, "zz.cedar")); err != nil {
		t.Fatal(err)
	}
	appears("Well", time.Now())
	b.seesNot("zz.cedar")
}

// A denied decision leads to a try with its request. Changed, the try says allow, and that it is a try.
func TestTryOfADenial(t *testing.T) {
	for _, l := range []look{{desktop: true}, {noScript: true}} {
		s := serve(t)
		id := s.decision(`{"subject":{"type":"user","id":"mallory"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"github.push_code"},"context":{"purpose":"x"}}`)
		b := s.signIn(t, "user:carol", l)
		b.visit("/decisions/" + id)
		b.sees("mallory may not")
		b.visit("/try?from=" + id)
		b.sees("Begins with the request of")
		b.click("Try it")
		b.sees("would deny it", "This was a try")
		b.narrow()
		if l.noScript {
			continue // the kit cannot empty a field without scripts
		}
		eval[string](b, `document.getElementById("request").value = ""`)
		b.fill("Request, as a program would send it", `{"subject":{"type":"agent","id":"agent-7","properties":{"roles":["tool_reader"]}},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"github.get_file"}}`)
		b.click("Try it")
		b.sees("The policies in force would allow it", "This was a try")
	}
}

// zippedStore is the zip archive of a policy store that permits everything.
func zippedStore(t testing.TB) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	part, err := w.Create("all.cedar")
	if err == nil {
		_, err = part.Write([]byte(`@id("everything") permit (principal, action, resource);`))
	}
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// A replay of an uploaded store is chosen, sent and read with a browser.
func TestReplayInTheBrowser(t *testing.T) {
	s := serve(t)
	s.decision(`{"subject":{"type":"user","id":"mallory"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"github.push_code"},"context":{"purpose":"x"}}`)
	archive := filepath.Join(t.TempDir(), "store.zip")
	if err := os.WriteFile(archive, zippedStore(t), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, l := range []look{{}, {noScript: true}} {
		b := s.signIn(t, "user:carol", l)
		b.visit("/replays")
		b.run(chromedp.SetUploadFiles("#archive", []string{archive}, chromedp.ByQuery))
		b.click("Replay")
		b.sees("What would change", "Deny to allow", "everything", "user::mallory")
		b.narrow()
	}
}

// authorStates are the pages of authors and operators of policies in their states.
var authorStates = []state{
	{name: "overview-empty", open: at("/")},
	{name: "policies", open: at("/policies")},
	{name: "revision", open: at("/policies/current?file=tools.cedar")},
	{name: "revision-search", open: at("/policies/current?q=approval")},
	{name: "revision-nothing-found", open: at("/policies/current?q=zebra")},
	{name: "revision-unknown", open: at("/policies/sha256:00")},
	{name: "difference", open: at("/policies/current..shadow")},
	{name: "difference-none", open: at("/policies/current..current")},
	{name: "difference-changed", open: func(s *service, b *browser) {
		s.write("config.yaml", s.read("config.yaml")+"\n# changed\n")
		s.write("mcp.cedar", strings.ReplaceAll(s.read("mcp.cedar"), "tool_reader", "document_reader"))
		process.Eventually(b, "the change can be compared", func() bool {
			b.visit("/policies")
			return b.has("button", "Compare") && strings.Contains(b.text(), "files changed")
		})
		b.click("Compare")
		b.sees("document_reader", "The other way round")
	}},
	{name: "tests", open: at("/tests")},
	{name: "shadow", open: func(s *service, b *browser) {
		for n := range 12 {
			s.decision(fmt.Sprintf(`{"subject":{"type":"user","id":"user-%d"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"github.push_code"},"context":{"purpose":"x"}}`, n%7))
		}
		b.visit("/shadow")
	}},
	{name: "overview", open: at("/")},
	{name: "try", open: at("/try")},
	{name: "try-answer", open: func(_ *service, b *browser) { b.visit("/try"); b.click("Try it"); b.sees("This was a try") }},
	{name: "try-broken", open: func(_ *service, b *browser) {
		b.visit("/try")
		b.fill("Request, as a program would send it", "{")
		b.click("Try it")
		b.sees("Not tried")
	}},
	{name: "replays", open: at("/replays")},
	{name: "replay", open: func(_ *service, b *browser) {
		b.visit("/replays")
		b.click("Replay with the shadow policies")
		b.sees("What would change")
	}},
	{name: "replay-unknown", open: at("/replays/rep_none")},
	{name: "tests-faults", open: func(s *service, b *browser) { s.write("zz.cedar", "permit("); b.visit("/tests") }},
}

// Every state of these pages is accessible in every look.
func TestAuthorStatesAreAccessible(t *testing.T) {
	everyLook(t, func(t *testing.T, l look) {
		shadow := t.TempDir()
		if err := os.WriteFile(filepath.Join(shadow, "a.cedar"), []byte(`@id("everything") permit (principal, action, resource);`), 0o600); err != nil {
			t.Fatal(err)
		}
		s := serve(t, "--shadow", shadow)
		b := s.signIn(t, "user:carol", l)
		for _, state := range authorStates {
			state.open(s, b)
			b.good("author-" + state.name)
		}
	})
}
