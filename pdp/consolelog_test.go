package pdp_test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/console"
)

// signIn signs carol in to the console of a service.
func signIn(t *testing.T, s *service, b *browser) {
	t.Helper()
	_, ticket := link(t, s, time.Now())
	if status, page, _ := b.post("/sign-in/local", ticket); status != 200 {
		t.Fatalf("sign in: %d %s", status, page)
	}
}

// The pages of the log show every state of an entry.
func TestLogPages(t *testing.T) {
	state := t.TempDir()
	lost := entriesLog(t, state)
	s, b := startConsole(t, pdp.Config{State: state})
	if err := os.Rename(lost, lost+".away"); err != nil {
		t.Fatal(err)
	}
	defer os.Rename(lost+".away", lost) // the whole log is verified at the end
	signIn(t, s, b)
	for path, want := range map[string][]string{
		"/decisions": {"Looked at entries 0 up to", "2 decisions", "1 of 2 denied", `href="/decisions/allowed"`},
		"/decisions?decision=deny&kind=evaluation": {"Deny", "entries found"},
		"/decisions?subject=nobody":                {"Nothing in the log matches", "All entries were looked at"},
		"/decisions/allowed":                       {"may <bdi>read</bdi>", "<b>readers</b> permits it", "holds", "data-index=\"0\""},
		"/decisions/0":                             {"<b>readers</b> permits it"},
		"/decisions/denied":                        {"may not <bdi>delete</bdi>", "came nearest", "does not hold", "/try?from=denied"},
		"/decisions/masked":                        {"the log hides the value at <code>/context/token</code>", "<b>writers</b>"},
		"/decisions/lost":                          {"the archive does not have the policies"},
		"/decisions/other":                         {"comes out otherwise: it was allow and is deny"},
		"/decisions/batch":                         {"2 decisions in one request", "/decisions/batch.1"},
		"/decisions/batch.1":                       {"may not <bdi>delete</bdi>"},
		"/decisions/admin":                         {"What was recorded"},
		"/decisions/allowed?raw":                   {"as it was recorded", "{&#34;index&#34;:0,"},
		"/tasks/arq_none":                          {"nothing about this request"},
		"/live":                                    {"Live", "live.", `aria-current="page">Decisions`},
	} {
		status, page, _ := b.get(path)
		if status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s does not have %q:\n%s", path, text, page)
			}
		}
	}
	for _, path := range []string{"/decisions/none", "/decisions/99999", "/decisions/export"} {
		if status, _, _ := b.get(path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
	const id = "01a20019-7b47-7aaf-874c-9734075811e8"
	for path, want := range map[string]string{"/decisions?subject=arq_1": "/tasks/arq_1", "/decisions?id=denied": "/decisions/denied", "/decisions?subject=" + id: "/decisions/" + id} {
		if _, _, at := b.get(path); at != want {
			t.Errorf("%s leads to %s", path, at)
		}
	}
	if status, text, _ := b.get("/decisions/0/proof"); status != http.StatusOK || !strings.Contains(text, `"checkpoint":`) {
		t.Errorf("proof: %d %s", status, text)
	}
	if status, pack, _ := b.get("/decisions/0/evidence"); status != http.StatusOK || !strings.HasPrefix(pack, "PK") {
		t.Errorf("evidence: %d %.20s", status, pack)
	}
}

// An export at the console is an entry under the name of the person.
func TestExportAtConsole(t *testing.T) {
	state := t.TempDir()
	fillLog(t, state, 10)
	s, b := startConsole(t, pdp.Config{State: state})
	signIn(t, s, b)
	status, table, _ := b.post("/decisions/export", url.Values{"query": {"subject=user:u7&decision=deny"}, "format": {"csv"}})
	if status != http.StatusOK || strings.Count(table, "\n") != 2 || !strings.Contains(table, ",u7,") {
		t.Errorf("%d %s", status, table)
	}
	for _, query := range []string{"subjekt=x", "%zz"} {
		if status, page, _ := b.post("/decisions/export", url.Values{"query": {query}, "format": {"csv"}}); status != http.StatusBadRequest || !strings.Contains(page, "<h1>") {
			t.Errorf("%s: %d %s", query, status, page)
		}
	}
	_, lines := get(t, s.admin+pdp.PathLogQuery+"?kind=admin")
	if strings.Count(lines, `"action":"export","by":"user:carol"`) != 1 || !strings.Contains(lines, `"format":"csv","query":"decision=deny&subject=user%3Au7"`) {
		t.Errorf("entries of the export:\n%s", lines)
	}
}

// Text of requests is shown as text, with characters written out that nobody sees.
func TestLogPagesEscape(t *testing.T) {
	s, b := startConsole(t, pdp.Config{Policies: policySet(t, "todo")})
	const id, name = `<img src=x onerror=alert(1)>`, "a\u202eb"
	post(t, http.DefaultClient, s.main+"/access/v1/evaluation",
		fmt.Sprintf(`{"subject":{"type":"user","id":%q},"action":{"name":%q},"resource":{"type":"todo","id":"1"},"context":{"x":"</pre><script>alert(1)</script>\u202e"}}`, id, name))
	signIn(t, s, b)
	for _, path := range []string{"/decisions", "/decisions?subject=" + url.QueryEscape(id), "/decisions/1", "/decisions/1?raw"} {
		_, page, _ := b.get(path)
		if strings.Contains(page, "<img") || strings.Contains(page, "<script>") || strings.Contains(page, "\u202e") || !strings.Contains(page, "&lt;img") {
			t.Errorf("%s:\n%s", path, page)
		}
	}
}

// A live page receives nothing after its person has signed out.
func TestLiveEndsWithTheSession(t *testing.T) {
	s, b := startConsole(t, pdp.Config{Policies: policySet(t, "todo")})
	signIn(t, s, b)
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/live/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.http.Do(request)
	if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(answer, err)
	}
	defer answer.Body.Close()
	b.post("/sign-out", nil)
	if _, err := io.Copy(io.Discard, answer.Body); err != nil { // waits for the end
		t.Errorf("the stream ends with %v", err)
	}
}

// An auditor of a tenant sees nothing of another: no row, entry, proof, evidence, export, history or live entry.
func TestLogPagesOfTenants(t *testing.T) {
	s, p, b := startSignIn(t, func(o *console.OIDC) { o.TenantClaim = "org" })
	p.People["dave"]["org"] = "globex"
	for range 3 {
		for _, tenant := range []string{"acme", "globex"} {
			post(t, http.DefaultClient, s.main+"/tenants/"+tenant+"/access/v1/evaluation",
				fmt.Sprintf(`{"subject":{"type":"user","id":"%s-alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}`, tenant))
		}
	}
	_, lines := get(t, s.admin+pdp.PathLogQuery+"?tenant=acme")
	acme := records(t, []byte(lines))[0]
	if status, page, at := b.signIn(p, "dave", "/decisions"); status != http.StatusOK || at != "/decisions" || !strings.Contains(page, "globex-alice") {
		t.Fatalf("%d at %s: %s", status, at, page)
	}
	for _, path := range []string{"/decisions", "/decisions?subject=acme-alice", "/decisions?tenant=acme", "/decisions?until=4", "/live"} {
		if status, page, _ := b.get(path); status != http.StatusOK || strings.Contains(page, "Looked at entries") || strings.Contains(page, "<bdi>acme") || strings.Contains(page, acme.Entry.ID) {
			t.Errorf("%s: %d %s", path, status, page)
		}
	}
	for _, of := range []string{"/decisions/%s", "/decisions/%s?raw", "/decisions/%s/evidence"} {
		_, unknown, _ := b.get(fmt.Sprintf(of, "nothing"))
		for _, id := range []string{acme.Entry.ID, fmt.Sprint(acme.Index), acme.Entry.ID + ".0", "100000"} {
			if status, page, _ := b.get(fmt.Sprintf(of, id)); status != http.StatusNotFound || page != unknown {
				t.Errorf(of+": %d %s", id, status, page)
			}
		}
	}
	_, unknown, _ := b.get("/decisions/100000/proof")
	if status, page, _ := b.get(fmt.Sprintf("/decisions/%d/proof", acme.Index)); status != http.StatusBadRequest || page != unknown {
		t.Errorf("proof: %d %s", status, page)
	}
	for _, format := range []string{"jsonl", "csv", "ocsf"} {
		if status, text, _ := b.post("/decisions/export", url.Values{"query": {""}, "format": {format}}); status != http.StatusOK || strings.Contains(text, "acme") || !strings.Contains(text, "globex") {
			t.Errorf("export of %s: %d %s", format, status, text)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base+"/live/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Last-Event-ID", "0")
	answer, err := b.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	l := &listener{T: t, lines: bufio.NewScanner(answer.Body), response: answer}
	if first := l.next(); len(first.Entries) != 3 || first.Entries[0].Tenant != "globex" || first.Allowed+first.Denied != 3 {
		t.Errorf("live: %+v", first)
	}
}

// The page of a decision lists the other entries of the same request, each once, and no others.
func TestDecisionListsItsRequest(t *testing.T) {
	s, b := startConsole(t, pdp.Config{Policies: policySet(t, "todo")})
	const trace = "4bf92f3577b34da6a3ce929d0e0e4730"
	ask := func(who, request, trace string) (id string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.main+"/access/v1/evaluation",
			strings.NewReader(fmt.Sprintf(`{"subject":{"type":"user","id":%q},"action":{"name":"read"},"resource":{"type":"todo","id":"1"}}`, who)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Request-ID", request)
		if trace != "" {
			r.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.Header.Get("Decision-ID")
	}
	both, one, other := ask("same-both", "r1", trace), ask("same-request", "r1", ""), ask("same-trace", "r2", trace)
	ask("neither", "r3", "")
	signIn(t, s, b)
	_, page, _ := b.get("/decisions/" + both)
	_, list, found := strings.Cut(page, "Everything else of this request")
	list, _, _ = strings.Cut(list, "</table>")
	if !found || strings.Count(list, "<tr>") != 3 || strings.Contains(list, both) || strings.Contains(list, "neither") {
		t.Errorf("the list is %s", list)
	}
	for _, id := range []string{one, other} {
		if strings.Count(list, `href="/decisions/`+id) != 1 {
			t.Errorf("the list does not have %s once: %s", id, list)
		}
	}
	if _, page, _ = b.get("/decisions/" + one); !strings.Contains(page, "same-both") || strings.Contains(page, "same-trace") {
		t.Errorf("the page of %s: %s", one, page)
	}
}

// The links of a decision lead to the search that they name. A parameter that a page does not know is an
// error, and never a list of everything.
func TestLinksOfDecisionsSearch(t *testing.T) {
	s, b := startConsole(t, pdp.Config{Policies: policySet(t, "todo")})
	for _, who := range []string{"alice", "bob::b&c=d"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.main+"/access/v1/evaluation",
			strings.NewReader(fmt.Sprintf(`{"subject":{"type":"user","id":%q},"action":{"name":"read"},"resource":{"type":"todo","id":"1"}}`, who)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e473"+fmt.Sprint(len(who)%10)+"-00f067aa0ba902b7-01")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	signIn(t, s, b)
	_, page, _ := b.get("/decisions/2")
	links := regexp.MustCompile(`href="(/decisions\?[^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(links) != 2 {
		t.Fatalf("%d links to searches:\n%s", len(links), page)
	}
	for _, link := range links {
		status, page, _ := b.get(html.UnescapeString(link[1]))
		if status != http.StatusOK || !strings.Contains(page, "1 entry found") || !strings.Contains(page, "bob::b&amp;c=d") {
			t.Errorf("%s: %d %s", link[1], status, page)
		}
	}
	for _, path := range []string{"/decisions?subject%3duser%253A%253Abob", "/decisions?subjekt=bob", "/decisions?subject=%zz", "/decisions?subject=a;b", "/policies?x", "/?x=1", "/live?of=acme", "/try?form=1"} {
		if status, page, _ := b.get(path); status != http.StatusBadRequest || !strings.Contains(page, "does not know") {
			t.Errorf("%s: %d %s", path, status, page)
		}
	}
}
