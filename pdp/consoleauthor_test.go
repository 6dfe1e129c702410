package pdp_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// author starts a service with policies of its own and signs carol in at its console.
func author(t *testing.T, files map[string]string, c pdp.Config) (s *service, b *browser, dir string) {
	t.Helper()
	dir = storeDir(t, files)
	c.PolicyDir = dir
	s, b = startConsole(t, c)
	return s, b.signInAs(s, "carol"), dir
}

// want checks that a page has texts, in the form of HTML.
func (b *browser) want(path string, texts ...string) string {
	b.Helper()
	status, page, _ := b.get(path)
	if status != 200 {
		b.Fatalf("%s is %d: %s", path, status, page)
	}
	wantTexts(b.T, path, page, texts...)
	return page
}

func wantTexts(t *testing.T, at, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%s has no %q:\n%s", at, text, page)
		}
	}
}

// The overview says the state in one word, where the faults are, and what was decided; the picture of
// the last hour has the same in words and as a table.
func TestOverviewPage(t *testing.T) {
	s, b, dir := author(t, map[string]string{"a.cedar": aliceMayRead}, pdp.Config{ShadowDir: storeDir(t, map[string]string{"a.cedar": allMayRead})})
	for _, who := range []string{"alice", "bob"} {
		post(t, http.DefaultClient, s.main+authzen.PathEvaluation, strings.Replace(aliceReads, "alice", who, 1))
	}
	page := b.want("/", "Well", `role="img" aria-label="Decisions by minute in the last hour: 1 allowed, 1 denied, 0 failed.`, "The same as a table", "Deny to allow", "read-all", "user::bob", "50.0 % denied", `aria-current="page">Overview`)
	if strings.Contains(page, " style=") || strings.Contains(page, "<style") {
		t.Error("the page has styles of its own")
	}
	writeFile(t, filepath.Join(dir, "a.cedar"), aliceMayRead+"\npermit(<img src=x onerror=alert(1)>")
	s.reload(t)
	page = b.want("/", "Stale", "<code><bdi>a.cedar:2:8</bdi></code>", "The last valid policies decide")
	if strings.Contains(page, "<img") {
		t.Error("a policy's text is markup")
	}
	writeFile(t, filepath.Join(dir, "a.cedar"), aliceMayRead)
	s.reload(t)
	before := s.status(t, "").Policies
	b.want("/", "Well", "Run the tests")
	if before.Since.IsZero() {
		t.Error("the status does not say since when the policies are in force")
	}
	s.reload(t)
	if now := s.status(t, "").Policies; !now.Since.Equal(before.Since) || !now.Attempt.After(before.Attempt) {
		t.Errorf("the same revision is in force since %s, and after a reload since %s", before.Since, now.Since)
	}
}

// The pages of policies show files with numbered and coloured lines, what was in force when, and the
// differences of revisions.
func TestPolicyPages(t *testing.T) {
	s, b, dir := author(t, map[string]string{"a.cedar": "// first\n" + aliceMayRead, "config.yaml": "on_policy_error: deny\n"}, pdp.Config{})
	first := s.status(t, "").Policies.Revision
	writeFile(t, filepath.Join(dir, "a.cedar"), allMayRead+"\n"+`@id("hidden") permit(principal == user::"`+"\u202e"+`<b>", action, resource);`)
	s.reload(t)
	now := s.status(t, "").Policies.Revision
	b.want("/policies", "Loaded", "somebody asked for it", "the service started", "/policies/"+first+".."+now)
	page := b.want("/policies/current", `id="L2"`, `<span class="te">permit</span>`, `<span class="ts">&#34;hidden&#34;</span>`, `\u{202E}&lt;b&gt;`, "read-all", "config.yaml")
	if strings.Contains(page, "\u202e") {
		t.Error("a hidden character is shown as itself")
	}
	b.want("/policies/"+first, `<span class="tc">// first</span>`)
	b.want("/policies/current?file=config.yaml", "on_policy_error: deny")
	b.want("/policies/current?q=ERROR", "1 line found", "config.yaml")
	b.want("/policies/current?q=zebra", "Nothing found")
	b.want("/policies/"+first+".."+now, "removed", "added", "read-all", "a.cedar")
	writeFile(t, filepath.Join(dir, "a.cedar"), "permit(")
	s.reload(t)
	b.want("/policies", "<td>active</td>", `<code>`+now[7:15]+`</code></a> stayed`)
	b.want("/policies/current..current", "The policies are the same")
	for _, path := range []string{"/policies/sha256:00", "/policies/current..sha256:00", "/policies/%2e%2e%2fx"} {
		if status, _, _ := b.get(path); status != 404 && status != 200 || strings.Contains(path, "00") && status != 404 {
			t.Errorf("%s is %d", path, status)
		}
	}
}

// A form chooses two revisions to compare: the one before and the one in force, unless people choose others.
// In lines that changed, the words that differ are marked.
func TestCompareRevisions(t *testing.T) {
	s, b, dir := author(t, map[string]string{"a.cedar": aliceMayRead, "config.yaml": "on_policy_error: deny\n"}, pdp.Config{})
	first := s.status(t, "").Policies.Revision
	if page := b.want("/policies"); strings.Contains(page, "Compare two") {
		t.Error("one revision can be compared")
	}
	writeFile(t, filepath.Join(dir, "a.cedar"), strings.Replace(aliceMayRead, "alice", "<i>bob", 1))
	writeFile(t, filepath.Join(dir, "config.yaml"), "on_policy_error: skip\n")
	s.reload(t)
	b.want("/policies", `action="/policies/compare"`, `<option value="`+first+`" selected>`+first[7:15]+`, loaded `, `<option value="current" selected>`)
	status, page, at := b.get("/policies/compare?from=" + first + "&to=current")
	if status != 200 || at != "/policies/"+first+"..current" {
		t.Fatalf("%d at %s", status, at)
	}
	wantTexts(t, at, page,
		`<del class="ln"><span class="no">− 1</span>`, `<mark><span class="ts">alice</span></mark>`,
		`<ins class="ln"><span class="no">+ 1</span>`, `&lt;i&gt;bob`, `on_policy_error: <mark>skip</mark>`, `on_policy_error: <mark>deny</mark>`, `/policies/current..`+first)
	for _, query := range []string{"", "?from=current", "?from=current&to=..%2f..%2fx", "?from=current&to=https://evil.example", "?from=" + first + "&to=current..shadow", "?from=current&to=current&file=x"} {
		if status, _, _ := b.get("/policies/compare" + query); status != 400 {
			t.Errorf("%q is %d", query, status)
		}
	}
}

// The page of tests says what failed and what no test has tried.
func TestTestsPage(t *testing.T) {
	_, b, dir := author(t, map[string]string{"a.cedar": aliceMayRead + `@id("never") forbid(principal == user::"eve", action, resource);`, "tests/a.yaml": oneTest}, pdp.Config{})
	b.want("/tests", "1 test passed", "forbid never is never reached", "/policies/current?file=a.cedar#L1", "alice reads")
	b.want("/", "1 passed", "Results and gaps")
	writeFile(t, filepath.Join(dir, "tests", "a.yaml"), strings.Replace(oneTest, "true", "false", 1))
	b.want("/tests", "1 of 1 test failed", "decision is true, want false")
	b.want("/", "Well", "<b>1 of 1 test fails.</b>")
	writeFile(t, filepath.Join(dir, "tests", "a.yaml"), "tests: 7")
	b.want("/tests", "The tests cannot run", "tests/a.yaml:1:")
}

// A try begins with a decision, says why, what the shadow says, and that it is a try.
func TestTryPage(t *testing.T) {
	s, b, _ := author(t, map[string]string{"a.cedar": `@id("read") permit(principal, action == Action::"read", resource) when { context.level > 2 };`}, pdp.Config{ShadowDir: storeDir(t, map[string]string{"a.cedar": allMayRead})})
	response, _ := post(t, http.DefaultClient, s.main+authzen.PathEvaluation, strings.Replace(aliceReads, `"resource"`, `"context":{"level":1,"token":"s3cr3t-value"},"resource"`, 1))
	id := response.Header.Get("Decision-Id")
	b.want("/try", "&#34;level&#34;: 1")
	page := b.want("/try?from="+id, "&#34;level&#34;: 1", "/context/token", "/decisions/"+id)
	if strings.Contains(page, "s3cr3t") {
		t.Error("the page shows what the log masks")
	}
	form := url.Values{"request": {strings.Replace(aliceReads, `"resource"`, `"context":{"level":1},"resource"`, 1)}, "by": {"current"}}
	status, page, _ := b.post("/try", form)
	wantTexts(t, "a denied try", page, "The policies in force would deny it", "came nearest", "context.level &gt; 2", "The shadow policies would allow it", "Deny to allow", "This was a try")
	form.Set("request", strings.Replace(form.Get("request"), "1", "3", 1))
	if _, page, _ = b.post("/try", form); status != 200 || !strings.Contains(page, "The policies in force would allow it") {
		t.Errorf("%d %s", status, page)
	}
	for request, want := range map[string]string{"{\n  \"ä\" 1}": "not valid JSON at line 2, column 7", `{}`: "is required"} {
		if status, page, _ := b.post("/try", url.Values{"request": {request}, "by": {"current"}}); status != 400 || !strings.Contains(page, want) || !strings.Contains(page, "Not tried") {
			t.Errorf("%s: %d %s", request, status, page)
		}
	}
	if status, _, _ := b.send("POST", b.base+"/try", "https://evil.example", form); status != 403 {
		t.Errorf("a try from another site is %d", status)
	}
	_, entries := get(t, s.admin+pdp.PathLogQuery+"?kind=admin")
	if strings.Count(entries, `"action":"try"`) != 2 || !strings.Contains(entries, `"caller":"carol"`) {
		t.Errorf("%s", entries)
	}
}

// A replay of an upload says what would change. Its page looks again by itself while it runs.
func TestReplayPages(t *testing.T) {
	s, b, _ := author(t, map[string]string{"a.cedar": aliceMayRead}, pdp.Config{ShadowDir: storeDir(t, map[string]string{"a.cedar": allMayRead})})
	post(t, http.DefaultClient, s.main+authzen.PathEvaluation, strings.Replace(aliceReads, "alice", "bob", 1))
	b.want("/replays", "There are none", "Replay with the shadow policies")
	b.want("/shadow", "Deny to allow", "user::bob", "/policies/current..shadow")
	upload := func(archive []byte, since string) (int, string, string) {
		t.Helper()
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		part, _ := w.CreateFormFile("archive", "store.zip")
		_, _ = part.Write(archive)
		_ = w.WriteField("since", since)
		w.Close()
		r, err := http.NewRequestWithContext(t.Context(), "POST", b.base+"/replays", &body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", w.FormDataContentType())
		r.Header.Set("Origin", b.base)
		answer, err := b.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode, readAll(t, answer.Body), answer.Request.URL.Path
	}
	ended := func(path string) string {
		for {
			page := b.want(path)
			if !strings.Contains(page, "Look again") {
				return page
			}
		}
	}
	status, page, at := upload(zipped(t, map[string]string{"a.cedar": allMayRead}), "2020-01-01")
	if status != 200 || !regexp.MustCompile(`^/replays/rep_\w+$`).MatchString(at) {
		t.Fatalf("%d at %s: %s", status, at, page)
	}
	wantTexts(t, at, ended(at), "Deny to allow", "user::bob", "Would permit more", "uploaded policies")
	_, _, at = upload(zipped(t, map[string]string{"a.cedar": "permit("}), "")
	wantTexts(t, at, ended(at), "could not be replayed", "a.cedar:1:")
	for name, archive := range map[string][]byte{"no archive": []byte("x"), "nothing": nil, "too large": make([]byte, 5<<20)} {
		if status, page, _ := upload(archive, ""); status < 400 || status >= 500 || !strings.Contains(page, "Not begun") {
			t.Errorf("%s: %d %s", name, status, page)
		}
	}
	if status, _, _ := upload(nil, "yesterday"); status != 400 {
		t.Errorf("a day that is none: %d", status)
	}
	_, _, at = b.post("/replays", url.Values{"store": {"shadow"}})
	wantTexts(t, at, ended(at), "the shadow policies", "Deny to allow")
	if status, _, end := b.post(at+"/cancel", nil); status != 200 || end != at {
		t.Errorf("cancel: %d at %s", status, end)
	}
	if status, _, _ := b.get("/replays/rep_none"); status != 404 {
		t.Errorf("an unknown replay is %d", status)
	}
}
