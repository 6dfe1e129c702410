package pdp_test

import (
	"context"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/pdp/notify"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// signInAs returns a browser in which a person is signed in.
func (b *browser) signInAs(s *service, id string) *browser {
	b.Helper()
	other := newBrowser(b.T, b.base)
	address, err := console.Link(s.state, authzen.Subject{Type: "user", ID: id}, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		b.Fatal(err)
	}
	if status, page, _ := other.post("/sign-in/local", url.Values{"ticket": {u.Query().Get("ticket")}}); status != 200 {
		b.Fatalf("sign in: %d %s", status, page)
	}
	return other
}

// A decisionPage is the page of a request in a browser.
type decisionPage struct {
	*browser
	task   string
	status int
	text   string // HTML
}

// open opens the page of a request.
func (b *browser) open(task string) *decisionPage {
	b.Helper()
	status, page, _ := b.get("/requests/" + task)
	return &decisionPage{b, task, status, page}
}

// words returns what a reader sees: the text of the page without its markup.
func (p *decisionPage) words() string {
	text := regexp.MustCompile(`(?s)<(script|svg)\b.*?</(script|svg)>`).ReplaceAllString(p.text, "")
	return html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(text, ""))
}

// hidden returns the value of a hidden field of the form that decides.
func (p *decisionPage) hidden(name string) string {
	found := regexp.MustCompile(`<input type="hidden" name="` + name + `" value="([^"]*)">`).FindStringSubmatch(p.text)
	if found == nil {
		return ""
	}
	return html.UnescapeString(found[1])
}

// form returns the form that decides, as the browser would send it.
func (p *decisionPage) form(decision string, more ...string) url.Values {
	form := url.Values{"ticket": {p.hidden("ticket")}, "sheet": {p.hidden("sheet")}, "policies": {p.hidden("policies")}, "decision": {decision}}
	for n := 0; n < len(more); n += 2 {
		form.Add(more[n], more[n+1])
	}
	return form
}

// decide sends the form, and returns the page that follows.
func (p *decisionPage) decide(form url.Values) *decisionPage {
	p.Helper()
	status, page, _ := p.post("/requests/"+p.task+"/decision", form)
	return &decisionPage{p.browser, p.task, status, page}
}

// office is a service with a console, and a browser in which carol is signed in.
func office(t *testing.T) (*staff, *browser) {
	t.Helper()
	s, b := startConsole(t, pdp.Config{Policies: anybodyApproves})
	return &staff{service: s, t: t}, b.signInAs(s, "carol")
}

// read returns a request over the admin API.
func (s *staff) read(task string) (r pdp.AccessRequest) {
	s.t.Helper()
	if got := askAs(s.t, "", "GET", s.admin+pdp.PathRequests+"/"+task, "", &r); got != 200 {
		s.t.Fatalf("read: %d", got)
	}
	return r
}

// An approval on the page is a vote for the sheet that the page shows, by the person who is signed in.
func TestPageApproves(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "call", "alice", "")
	page := b.open(task)
	after := page.decide(page.form("approve", "comment", "for the release"))
	if after.status != 200 || !strings.Contains(after.words(), "You approved this") || strings.Contains(after.text, `value="approve"`) {
		t.Errorf("%d: %s", after.status, after.words())
	}
	r := s.read(task)
	if len(r.Items[0].Votes) != 1 {
		t.Fatalf("votes: %+v", r.Items[0].Votes)
	}
	vote := r.Items[0].Votes[0]
	if vote.Approver.ID != "carol" || vote.Channel != "console" || vote.Comment != "for the release" || vote.Sheet != page.hidden("sheet") || vote.Sheet != r.Sheet ||
		vote.Authn.Method != "link" || vote.Authn.Session == "" || vote.Entry == "" {
		t.Errorf("the vote is %+v by %+v", vote, vote.Authn)
	}
	other := b.open(s.asked("", "call", "alice", ""))
	if !strings.Contains(page.words(), "Nothing decided for this requester") || !strings.Contains(other.words(), "1 approved, 0 denied for this requester") {
		t.Errorf("before: %s, and then: %s", page.words(), other.words())
	}
	if !strings.Contains(after.words(), "in the log as entry ") {
		t.Errorf("the page names no entry: %s", after.words())
	}
	if !strings.Contains(strings.ReplaceAll(page.words(), " ", ""), "Sheet"+r.Sheet[len("sha256:"):][:8]) {
		t.Errorf("the page shows other digits than %s", r.Sheet)
	}
}

// After a decision, the page leads to the next request and to the history. It mentions messages if there are any.
func TestPageLeadsOn(t *testing.T) {
	hook := notify.Topic{Name: "phones", Location: notify.Location{URL: "http://127.0.0.1:1/approvals"}}
	for _, messages := range []bool{true, false} {
		c := pdp.Config{Policies: anybodyApproves}
		if messages {
			c.Notify.Ntfy = []notify.Topic{hook}
		}
		service, b := startConsole(t, c)
		s, b := &staff{service: service, t: t}, b.signInAs(service, "carol")
		first, second := s.asked("", "call", "alice", ""), s.asked("", "call", "alice", "")
		page := b.open(first)
		if strings.Contains(page.words(), "the same in the message") != messages {
			t.Errorf("messages are %v: %s", messages, page.words())
		}
		after := page.decide(page.form("deny"))
		if !strings.Contains(after.text, `href="/requests/`+second+`">Next request`) || !strings.Contains(after.text, `href="/tasks/`+first+`"`) {
			t.Errorf("%s", after.words())
		}
		page = b.open(second)
		if after := page.decide(page.form("deny")); !strings.Contains(after.words(), "Nothing else waits for you.") {
			t.Errorf("%s", after.words())
		}
	}
}

// The log tells who approved what somebody else asked. The history has the denial that began it, and the page of
// that denial begins with the approval.
func TestHistoryOfAnApproval(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "call", "alice", "")
	page := b.open(task)
	page.decide(page.form("approve"))
	item := s.read(task).Items[0]
	entry := b.at("/decisions/" + item.Votes[0].Entry)
	if !strings.Contains(entry.words(), "carol approved what alice asked: call on d") || strings.Contains(entry.words(), "asked by carol") {
		t.Errorf("%s", entry.words())
	}
	if history := b.at("/tasks/" + task); !strings.Contains(history.text, `href="/decisions/`+item.EvaluationID+`"`) {
		t.Errorf("the history lacks the denial: %s", history.words())
	}
	words := b.at("/decisions/" + item.EvaluationID).words()
	first, second := strings.Index(words, "A person has to approve this"), strings.Index(words, "the PEP does not declare")
	if first < 0 || second < first {
		t.Errorf("%d, %d: %s", first, second, words)
	}
}

// at opens any page.
func (b *browser) at(path string) *decisionPage {
	b.Helper()
	status, page, _ := b.get(path)
	return &decisionPage{b, "", status, page}
}

// Deny, with a comment of several lines.
func TestPageDenies(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "call", "alice", "")
	page := b.open(task)
	if after := page.decide(page.form("deny", "comment", "not on\r\na Friday")); !strings.Contains(after.words(), "You denied this") {
		t.Errorf("%d: %s", after.status, after.words())
	}
	if vote := s.read(task).Items[0].Votes[0]; vote.Approve || vote.Comment != "not on\na Friday" {
		t.Errorf("the vote is %+v", vote)
	}
}

// What a person sends for another sheet than the request's does not count.
func TestPageOfAnotherSheetDoesNotCount(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "call", "alice", "")
	page := b.open(task)
	for _, sheet := range []string{"sha256:" + strings.Repeat("0", 64), "", "x"} {
		form := b.open(task).form("approve")
		form.Set("sheet", sheet)
		after := page.decide(form)
		if after.status < 400 || !strings.Contains(after.words(), "Nothing was decided") {
			t.Errorf("sheet %q: %d %s", sheet, after.status, after.words())
		}
	}
	if r := s.read(task); r.Status != authzen.TaskPending {
		t.Errorf("the request is %s", r.Status)
	}
}

// A form counts once: not sent twice, nor by another session, nor for another request, nor forged.
func TestFormCountsOnce(t *testing.T) {
	s, b := office(t)
	task, other := s.asked("", "pair", "alice", ""), s.asked("", "call", "alice", "")
	page := b.open(task)
	again := b.signInAs(s.service, "carol").open(task)
	for name, form := range map[string]url.Values{
		"of another session": again.form("approve"),
		"of another request": b.open(other).form("approve"),
		"forged":             {"ticket": {strings.ToUpper(page.hidden("ticket"))}, "sheet": {page.hidden("sheet")}, "decision": {"approve"}},
		"without a ticket":   {"sheet": {page.hidden("sheet")}, "decision": {"approve"}},
	} {
		form.Set("sheet", page.hidden("sheet"))
		if after := page.decide(form); after.status != 409 || !strings.Contains(after.words(), "Nothing was decided by this") {
			t.Errorf("a form %s: %d %s", name, after.status, after.words())
		}
	}
	if votes := s.read(task).Items[0].Votes; len(votes) > 0 {
		t.Fatalf("votes: %+v", votes)
	}
	var sent sync.WaitGroup
	form := page.form("approve")
	for range 50 {
		sent.Go(func() { page.decide(form) })
	}
	sent.Wait()
	if after := page.decide(form); after.status != 409 || !strings.Contains(after.words(), "The form was sent before") {
		t.Errorf("once more: %d %s", after.status, after.words())
	}
	if votes := s.read(task).Items[0].Votes; len(votes) != 1 {
		t.Errorf("50 times the same form: %d votes", len(votes))
	}
	if permits, _ := s.votes(); permits != 2 { // the policies' and the vote
		t.Errorf("the log has %d permits and votes", permits)
	}
}

// One's own request has no buttons, and a form by hand is refused and recorded.
func TestOwnRequestHasNoButtons(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "call", "carol", "")
	page := b.open(task)
	if strings.Contains(page.text, `name="decision"`) || !strings.Contains(page.words(), "You cannot decide this") {
		t.Errorf("the page: %s", page.words())
	}
	form := b.open(s.asked("", "call", "alice", "")).form("approve")
	form.Set("sheet", page.hidden("sheet"))
	form.Set("ticket", page.hidden("ticket"))
	if after := page.decide(form); after.status != 403 || !strings.Contains(after.words(), "the log has that you tried") {
		t.Errorf("by hand: %d %s", after.status, after.words())
	}
	if permits, refused := s.votes(); permits != 0 || refused != 1 {
		t.Errorf("the log has %d permits and %d refused votes", permits, refused)
	}
}

// Of two people who have the page open, the second learns who decided, and that theirs does not count.
func TestSecondDecisionDoesNotCount(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "call", "alice", "")
	carol, dave := b.open(task), b.signInAs(s.service, "dave").open(task)
	dave.decide(dave.form("deny", "comment", "not on a Friday"))
	after := carol.decide(carol.form("approve"))
	for _, want := range []string{"Your decision did not count", "dave denied this", "not on a Friday"} {
		if !strings.Contains(after.words(), want) {
			t.Errorf("the page does not say %q: %s", want, after.words())
		}
	}
	if votes := s.read(task).Items[0].Votes; after.status != 409 || len(votes) != 1 {
		t.Errorf("%d, votes %+v", after.status, votes)
	}
}

// A quorum counts people: who has approved sees that one more is needed.
func TestPageOfAQuorum(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "pair", "alice", "")
	page := b.open(task)
	after := page.decide(page.form("approve"))
	if !strings.Contains(after.words(), "Your approval is in the log. 1 more person has to approve") {
		t.Errorf("after the first: %s", after.words())
	}
	again := b.signInAs(s.service, "carol").open(task)
	if strings.Contains(again.text, `value="approve"`) {
		t.Errorf("a second time by the same person: %s", again.words())
	}
	dave := b.signInAs(s.service, "dave").open(task)
	if after := dave.decide(dave.form("approve")); !strings.Contains(after.words(), "You approved this") || s.read(task).Status != authzen.TaskApproved {
		t.Errorf("after the second: %s", after.words())
	}
}

// hostile is a request whose texts pretend to be something else.
const hostile = `"note":"<img src=x onerror=alert(1)>","file":"invoice-\u202egpj.exe","zero":"a\u200bb","look":"p\u0430ypal",
	"markup":"</dd></dl><button name=decision value=approve>Approve</button>","template":"{{.}}${x}","true":"true","number":"12","blank":" padded ","empty":"","none":{},"nested":{"a › b":[1,false]},
	"big":123456789012345678,"secret_token":"sk-live-1"`

// The page shows every leaf of the sheet, as itself or with escapes.
func TestPageShowsTheWholeSheet(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "call", "alice", hostile+`,"long":"`+strings.Repeat(" ", 5_000)+`rm -rf /"`)
	page := b.open(task)
	_, text := s.send("", "GET", pdp.PathRequests+"/"+task+"/sheet", "")
	words := page.words()
	n := 0
	eachLeaf(t, jsontext.Value(text), func(leaf string) {
		if n++; !strings.Contains(words, leaf) {
			t.Errorf("the page does not show %.200q", leaf)
		}
	})
	if n < 40 {
		t.Errorf("the sheet has only %d leaves", n)
	}
	for _, not := range []string{"<img", "<button name=decision", "sk-live-1", "\u202e", "\u200b"} {
		if strings.Contains(page.text, not) {
			t.Errorf("the page has %q", not)
		}
	}
	for _, want := range []string{"Show all 5008 characters", `\u{202E}`, "two alphabets", `"true"`, `"12"`, `" padded "`} {
		if !strings.Contains(words, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// eachLeaf calls f with each leaf of a value as the page has to show it.
func eachLeaf(t *testing.T, value jsontext.Value, f func(string)) {
	t.Helper()
	var members map[string]jsontext.Value
	var elements []jsontext.Value
	switch {
	case value.Kind() == '{' && json.Unmarshal(value, &members) == nil && len(members) > 0:
		for name, member := range members {
			f(plain.Text(name))
			eachLeaf(t, member, f)
		}
	case value.Kind() == '[' && json.Unmarshal(value, &elements) == nil && len(elements) > 0:
		for _, element := range elements {
			eachLeaf(t, element, f)
		}
	case value.Kind() == '"':
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			t.Fatal(err)
		}
		f(plain.Text(text))
	default:
		f(string(value))
	}
}

// A masked value is revealed on one page alone, and the log has that first.
func TestPageReveals(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "call", "alice", hostile)
	if page := b.open(task); !strings.Contains(page.text, `name="path" value="/subject/properties/secret_token"`) {
		t.Fatalf("the page does not offer it: %s", page.words())
	}
	form := url.Values{"path": {"/subject/properties/secret_token"}}
	status, page, _ := b.post("/requests/"+task+"/reveal", form)
	if status != 200 || !strings.Contains(page, "sk-live-1") {
		t.Errorf("reveal: %d %s", status, page)
	}
	if again := b.open(task); strings.Contains(again.text, "sk-live-1") {
		t.Error("the page shows it afterwards")
	}
	if got := strings.Count(strings.Join(s.entries(), ""), `"action":"reveal","by":"user:carol"`); got != 1 {
		t.Errorf("the log has %d reveals", got)
	}
	alice := b.signInAs(s.service, "alice")
	if status, page, _ := alice.post("/requests/"+task+"/reveal", form); status != 403 || strings.Contains(page, "sk-live-1") {
		t.Errorf("reveal to the requester: %d %s", status, page)
	}
}

// Nobody who is signed out sees or decides anything, and comes back to the request afterwards.
func TestSignedOutDecidesNothing(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "call", "alice", "")
	form := b.open(task).form("approve")
	stranger := newBrowser(t, b.base)
	for _, path := range []string{"/decision", "/reveal"} {
		if _, page, at := stranger.post("/requests/"+task+path, form); at != "/sign-in" || strings.Contains(page, "alice") {
			t.Errorf("%s leads to %s", path, at)
		}
	}
	if _, _, at := stranger.get("/requests/" + task); at != "/sign-in" {
		t.Errorf("the page leads to %s", at)
	}
	if r := s.read(task); r.Status != authzen.TaskPending {
		t.Errorf("the request is %s", r.Status)
	}
}

// There is no page for a request that does not exist.
func TestNoPageForUnknownRequest(t *testing.T) {
	_, b := office(t)
	for _, id := range []string{"arq_X", "..", "%2e%2e", "a%2fb", strings.Repeat("a", 5000)} {
		if status, page, _ := b.get("/requests/" + id); status != http.StatusNotFound && status != http.StatusOK || strings.Contains(page, "Decide:") {
			t.Errorf("%.20s: %d", id, status)
		}
	}
}

// Each list has what it says: what the person may decide, what others may, what is decided, and the
// approvals in use.
func TestListsOfRequests(t *testing.T) {
	s, b := office(t)
	mine, own, decided := s.asked("", "call", "alice", ""), s.asked("", "call", "carol", ""), s.asked("", "call", "erin", "")
	page := b.open(decided)
	page.decide(page.form("approve"))
	for _, test := range []struct {
		view string
		want string // task
		says string
	}{
		{"", mine, "alice wants to call d"},
		{"?view=mine", mine, "alice wants to call d"},
		{"?view=others", own, "your own"},
		{"?view=decided", decided, "approved"},
		{"?view=standing", decided, "1 call left"},
		{"?view=no-such-view", mine, "alice wants to call d"},
	} {
		status, text, _ := b.get("/requests" + test.view)
		list := decisionPage{text: text}
		if status != 200 || !strings.Contains(list.words(), test.says) {
			t.Errorf("%s: %d does not say %q: %s", test.view, status, test.says, list.words())
		}
		for _, task := range []string{mine, own, decided} {
			if strings.Contains(text, `href="/requests/`+task+`"`) != (task == test.want) {
				t.Errorf("%s: wrong about %s", test.view, task)
			}
		}
	}
	if status, _, _ := b.get("/requests?token=x"); status != 400 {
		t.Errorf("a token that is none: %d", status)
	}
}

// A flaky is the way to a service: it loses requests or answers.
type flaky struct {
	next http.Handler

	mu   sync.Mutex
	lose string // request or answer; "" for nothing
}

func (f *flaky) set(lose string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = lose
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	lose := f.lose
	f.mu.Unlock()
	if r.Method == http.MethodGet || lose == "" {
		f.next.ServeHTTP(w, r)
		return
	}
	if lose == "answer" {
		f.next.ServeHTTP(httptest.NewRecorder(), r)
	}
	http.Error(w, "lost", http.StatusServiceUnavailable)
}

// If the service does not say that a decision is recorded, the page says that it does not count, unless it does:
// then the page shows it. The same form then succeeds, and never counts twice.
func TestLostDecisionCanBeSentAgain(t *testing.T) {
	s := hire(t, nil)
	b, way := lossy(t, s)
	for _, lose := range []string{"request", "answer"} {
		task := s.asked(key("gateway"), "call", "alice", "")
		page := b.open(task)
		way.set(lose)
		lost := page.decide(page.form("approve", "comment", "for the release"))
		way.set("")
		if lose == "answer" {
			if lost.status != 200 || !strings.Contains(lost.words(), "You approved this") {
				t.Errorf("lost %s: %d %s", lose, lost.status, lost.words())
			}
		} else if lost.status != 503 || !strings.Contains(lost.words(), "Your decision was not recorded") || !strings.Contains(lost.words(), "for the release") || lost.hidden("ticket") != page.hidden("ticket") {
			t.Errorf("lost %s: %d %s", lose, lost.status, lost.words())
		}
		after := page.decide(page.form("approve", "comment", "for the release"))
		if !strings.Contains(after.words(), "You approved this") {
			t.Errorf("again after a lost %s: %d %s", lose, after.status, after.words())
		}
		var r pdp.AccessRequest
		if askAs(t, key("carol"), "GET", s.admin+pdp.PathRequests+"/"+task, "", &r); len(r.Items[0].Votes) != 1 {
			t.Errorf("after a lost %s: %d votes", lose, len(r.Items[0].Votes))
		}
	}
}

// What was not done is named after what the person tried: nobody reads of a decision who made none.
func TestLostActsAreNamed(t *testing.T) {
	s := hire(t, nil)
	b, way := lossy(t, s)
	task := s.asked(key("gateway"), "call", "alice", "")
	page := b.open(task)
	way.set("request")
	delegated := page.decide(page.form("delegate", "to", "dave"))
	_, revealed, _ := b.post("/requests/"+task+"/reveal", url.Values{"path": {"/a"}})
	way.set("")
	_, revoked, _ := b.post("/approvals/nothing/revoke", url.Values{"task": {task}})
	for want, got := range map[string]string{"The delegation was not recorded": delegated.words(), "The value is not shown": revealed, "The approval was not revoked": revoked} {
		if !strings.Contains(got, want) || strings.Contains(got, "Your decision was") || strings.Contains(got, "Nothing was decided") {
			t.Errorf("the page does not say %q: %s", want, got)
		}
	}
}

// lossy returns a browser of carol, at a console that loses requests to the admin API or their answers.
func lossy(t *testing.T, s *staff) (*browser, *flaky) {
	t.Helper()
	admin, err := url.Parse(s.admin)
	if err != nil {
		t.Fatal(err)
	}
	way := &flaky{next: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(admin)
		r.Out.Host = ""
		r.Out.Header.Set("Authorization", "Bearer "+key("carol"))
	}}}
	listener := httptest.NewUnstartedServer(nil)
	base := "http://" + listener.Listener.Addr().String()
	pages, err := console.New(console.Config{
		BaseURL: base, Admin: way, ApproverType: "user", Local: true, Answers: func() int64 { return 0 }, Log: slog.New(slog.DiscardHandler),
		Record: func(context.Context, console.Identity, console.Act) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	unpublish, err := pages.Publish(state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unpublish)
	listener.Config.Handler = pages
	listener.Start()
	t.Cleanup(listener.Close)
	return newBrowser(t, base).signInAs(&service{state: state}, "carol"), way
}

// bulk submits a request about several resources, and returns its task.
func (s *staff) bulk(resources ...string) string {
	s.t.Helper()
	const subject = `"subject":{"type":"user","id":"alice"}`
	var items []string
	for _, id := range resources {
		call := fmt.Sprintf(`"action":{"name":"call"},"resource":{"type":"doc","id":%q}`, id)
		var denied authzen.Decision
		if got := askAs(s.t, "", "POST", s.main+authzen.PathEvaluation, "{"+subject+","+call+"}", &denied); got != 200 {
			s.t.Fatal(got)
		}
		offer := denied.Context.AccessRequest
		items = append(items, fmt.Sprintf(`{%s,"denial":{"expires_at":%q,"binding_token":%q}}`, call, offer.ExpiresAt.Format(time.RFC3339), offer.BindingToken))
	}
	var task authzen.TaskResponse
	if got := askAs(s.t, "", "POST", s.main+authzen.PathRequests, "{"+subject+`,"items":[`+strings.Join(items, ",")+"]}", &task); got != 202 {
		s.t.Fatal(got)
	}
	return task.Task.ID
}

// Of a request about several calls, those are decided that are ticked, and none is ticked at first.
func TestPageOfSeveralCalls(t *testing.T) {
	s, b := office(t)
	task := s.bulk("one", "two", "three")
	page := b.open(task)
	if boxes := regexp.MustCompile(`<input type="checkbox"[^>]*name="item"[^>]*>`).FindAllString(page.text, -1); len(boxes) != 3 || strings.Contains(strings.Join(boxes, ""), "checked") {
		t.Errorf("the page has the boxes %q", boxes)
	}
	if after := page.decide(page.form("approve", "bulk", "1")); after.status != 400 || !strings.Contains(after.words(), "Choose at least one call") {
		t.Errorf("nothing ticked: %d %s", after.status, after.words())
	}
	page.decide(page.form("approve", "bulk", "1", "item", "0", "item", "2"))
	var got []string
	for _, item := range s.read(task).Items {
		got = append(got, string(item.Status))
	}
	if strings.Join(got, " ") != "approved pending approved" {
		t.Errorf("the items are %v", got)
	}
	rest := b.open(task)
	if after := rest.decide(rest.form("deny", "bulk", "1", "item", "1")); s.read(task).Status != authzen.TaskPartial || !strings.Contains(after.words(), "decided differently") {
		t.Errorf("the rest: %s", after.words())
	}
}

// An approval is revoked on the page, by those whom policies let revoke.
func TestPageRevokes(t *testing.T) {
	policies := maps.Clone(anybodyApproves)
	policies["revoke.cedar"] = &fstest.MapFile{Data: []byte(`@id("revoke") permit (principal == user::"carol", action == Action::"approval.revoke", resource);`)}
	service, b := startConsole(t, pdp.Config{Policies: policies})
	s := &staff{service: service, t: t}
	carol, dave := b.signInAs(service, "carol"), b.signInAs(service, "dave")
	task := s.asked("", "call", "alice", "")
	page := dave.open(task)
	if after := page.decide(page.form("approve")); strings.Contains(after.text, "/revoke") {
		t.Errorf("dave may revoke: %s", after.words())
	}
	id := s.read(task).Items[0].Approval.ID
	if !strings.Contains(carol.open(task).text, `action="/approvals/`+id+`/revoke"`) {
		t.Errorf("carol may not revoke: %s", carol.open(task).words())
	}
	form := url.Values{"task": {task}, "reason": {"a mistake"}}
	if status, _, _ := dave.post("/approvals/"+id+"/revoke", form); status != 403 {
		t.Errorf("dave: %d", status)
	}
	status, after, at := carol.post("/approvals/"+id+"/revoke", form)
	if status != 200 || at != "/requests/"+task || !strings.Contains(after, "a mistake") || s.read(task).Items[0].Approval.Ended != "revoked" {
		t.Errorf("carol: %d at %s: %s", status, at, after)
	}
	if status, _, _ := carol.post("/approvals/"+id+"/revoke", form); status != 409 {
		t.Errorf("a second time: %d", status)
	}
}
