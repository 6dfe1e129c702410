package pdp_test

import (
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// poll asks for a page as an open page does that knows a tag.
func (b *browser) poll(path, tag string) (status int, page, now string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, b.base+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Console-Poll", "1")
	r.Header.Set("If-None-Match", tag)
	return b.read(r)
}

// read sends a request, and returns status, body and entity tag.
func (b *browser) read(r *http.Request) (status int, body, tag string) {
	b.Helper()
	answer, err := b.http.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	var text strings.Builder
	if err := answer.Write(&text); err != nil {
		b.Fatal(err)
	}
	return answer.StatusCode, text.String(), answer.Header.Get("ETag")
}

// An open page learns that it is up to date from an answer without a body, and otherwise gets the page as it is now.
func TestOpenPagesAskForChanges(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "call", "alice", "")
	tags := map[string]string{}
	for _, path := range []string{"/requests/" + task, "/requests", "/requests?view=decided", "/"} {
		_, page, tag := b.poll(path, "")
		if tag == "" || !strings.Contains(page, `data-watch="`+path+`"`) {
			t.Fatalf("%s has no tag, or does not ask for changes: %s", path, page)
		}
		tags[path] = tag
		if status, page, _ := b.poll(path, tag); status != http.StatusNotModified || strings.Contains(page, "<") {
			t.Errorf("%s without a change: %d %s", path, status, page)
		}
	}
	dave := b.signInAs(s.service, "dave")
	page := dave.open(task)
	page.decide(page.form("deny"))
	for path, tag := range tags {
		if status, _, now := b.poll(path, tag); status != http.StatusOK || now == tag {
			t.Errorf("%s after a decision: %d, tag %s, before %s", path, status, now, tag)
		}
	}
	if _, page, _ := b.poll("/requests/"+task, "x"); !strings.Contains(page, "dave</bdi> denied") {
		t.Errorf("the page does not say who decided: %s", page)
	}
	b.post("/sign-out", nil)
	if status, page, _ := b.poll("/requests/"+task, "x"); status != http.StatusUnauthorized || strings.Contains(page, "alice") {
		t.Errorf("signed out: %d %s", status, page)
	}
}

// An open overview follows decisions every ten seconds, and a new request at once.
func TestOpenOverviewFollowsDecisionsSlowly(t *testing.T) {
	s, b := office(t)
	_, _, tag := b.poll("/", "")
	post(t, http.DefaultClient, s.main+authzen.PathEvaluation, strings.ReplaceAll(aliceReads, "alice", "zoe"))
	if status, page, _ := b.poll("/", tag); status != http.StatusNotModified {
		t.Errorf("after a decision: %d %s", status, page)
	}
	parts := strings.Split(strings.TrimSuffix(tag, `"`), ".")
	for _, seconds := range []time.Duration{-11 * time.Second, time.Minute} {
		parts[len(parts)-1] = strconv.FormatInt(time.Now().Add(seconds).Unix(), 10)
		if status, page, _ := b.poll("/", strings.Join(parts, ".")+`"`); status != http.StatusOK || !strings.Contains(page, "zoe") {
			t.Errorf("a page of %s: %d %s", seconds, status, page)
		}
	}
	s.asked("", "call", "alice", "")
	if status, page, _ := b.poll("/", tag); status != http.StatusOK || !strings.Contains(page, "Look at them") {
		t.Errorf("after a request: %d %s", status, page)
	}
}

// An open page does not prolong the session of its person.
func TestOpenPagesDoNotProlongSessions(t *testing.T) {
	c := pdp.Config{Policies: anybodyApproves}
	c.Console.SessionIdle = time.Second
	s, b := startConsole(t, c)
	b = b.signInAs(s, "carol")
	process.Eventually(t, "the session ends", func() bool {
		status, _, _ := b.poll("/requests", "x")
		return status == http.StatusUnauthorized
	})
}

// Callers learn from an entity tag whether a request, or a list of their tenants, is as they know it. Changes of other
// tenants do not change it.
func TestEntityTags(t *testing.T) {
	d := newDesks(t)
	task := d.submit("acme")
	tag := func(tenants, path, known string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+d.key(tenants, pdp.ScopeApprove))
		r.Header.Set("If-None-Match", known)
		status, _, now := newBrowser(t, "").read(r)
		return status, now
	}
	const lists, standing = pdp.PathRequests + "?status=pending", pdp.PathApprovals + "?standing=true"
	one := pdp.PathRequests + "/" + task
	before := map[string]string{}
	for _, path := range []string{lists, standing, one} {
		status, now := tag("acme", path, "")
		if status != http.StatusOK || !strings.HasPrefix(now, `W/"`) {
			t.Fatalf("%s: %d, tag %q", path, status, now)
		}
		before[path] = now
	}
	_, globex := tag("globex", lists, "")
	if status, _ := tag("globex", one, before[one]); status != http.StatusNotFound {
		t.Errorf("the request of another tenant: %d", status)
	}
	d.submit("globex")
	if status, _ := tag("acme", one, before[one]); status != http.StatusNotModified {
		t.Errorf("the request after a change of another tenant: %d", status)
	}
	if status, now := tag("globex", lists, globex); status != http.StatusOK || now == globex {
		t.Errorf("the list of the tenant itself: %d, tag %s", status, now)
	}
	if code, body := d.ask("POST", one+"/decision", d.key("acme", pdp.ScopeApprove), `{"decision":"approve"}`); code != http.StatusOK {
		t.Fatalf("approve: %d %s", code, body)
	}
	for path, known := range before {
		if status, now := tag("acme", path, known); status != http.StatusOK || now == known {
			t.Errorf("%s after a decision: %d, tag %s", path, status, now)
		}
	}
}

// An approval that names policies counts only under them. A denial counts under any.
func TestApprovalUnderOtherPolicies(t *testing.T) {
	store := storeDir(t, map[string]string{"policies.cedar": string(anybodyApproves["policies.cedar"].Data), "config.yaml": string(anybodyApproves["config.yaml"].Data)})
	service, b := startConsole(t, pdp.Config{PolicyDir: store})
	s, b := &staff{service: service, t: t}, b.signInAs(service, "carol")
	tasks := []string{s.asked("", "call", "alice", ""), s.asked("", "call", "alice", "")}
	first, second := b.open(tasks[0]), b.open(tasks[1])
	if was := s.read(tasks[0]).Policies; was == "" || first.hidden("policies") != was {
		t.Fatalf("the page has the policies %q, and the API %q", first.hidden("policies"), was)
	}
	writeFile(t, filepath.Join(store, "more.cedar"), `@id("new") forbid (principal, action == Action::"other", resource);`)
	if code := s.reload(t); code != http.StatusOK {
		t.Fatalf("reload: %d", code)
	}
	again := first.decide(first.form("approve"))
	if again.status != http.StatusConflict || !strings.Contains(again.words(), "The policies have changed since this page was made") || len(s.read(tasks[0]).Items[0].Votes) != 0 {
		t.Fatalf("the page of before: %d %s", again.status, again.words())
	}
	if after := again.decide(again.form("approve")); !strings.Contains(after.words(), "You approved this") {
		t.Errorf("after another look: %d %s", after.status, after.words())
	}
	if after := second.decide(second.form("deny")); !strings.Contains(after.words(), "You denied this") {
		t.Errorf("a denial: %d %s", after.status, after.words())
	}
}
