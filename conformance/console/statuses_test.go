package console_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/pdp/console"
)

// tenantStore has the same policies for each of two tenants.
var tenantStore = func() fstest.MapFS {
	store := fstest.MapFS{}
	for _, tenant := range []string{"acme", "globex"} {
		store["tenants/"+tenant+"/policies.cedar"] = approvalStore["policies.cedar"]
		store["tenants/"+tenant+"/config.yaml"] = approvalStore["config.yaml"]
	}
	return store
}()

// A building is a campus of two tenants. Its people have one scope each in acme, and mallory all of them in globex.
type building struct {
	*campus
	acme     string   // URL at which PEPs of acme ask
	operator *browser // of acme, who replays; nil before the first replay
}

var staff = []string{"u-carol", "u-erin", "u-opal", "u-mallory"}

// newBuilding starts the program for two tenants.
func newBuilding(t testing.TB) *building {
	t.Helper()
	c := newCampusOn(t, tenantStore, "tenant_claim: org")
	c.provider.People = make(map[string]map[string]any)
	for _, sub := range staff {
		c.provider.People[sub] = maps.Clone(people[sub])
		if c.provider.People[sub]["org"] == nil {
			c.provider.People[sub]["org"] = "acme"
		}
	}
	return &building{campus: c, acme: c.URL + "/tenants/acme"}
}

// asked submits an access request of acme.
func (d *building) asked(subject string) (task string) {
	d.test.Helper()
	main := d.URL
	defer func() { d.URL = main }()
	d.URL = d.acme
	return d.office.asked("call", subject, `{"branch":"main","api_token":"sk-live-1"}`)
}

// entry returns the newest entry of acme.
func (d *building) entry() (entry struct {
	ID    string `json:"id"`
	Index int64  `json:"index"`
}) {
	d.test.Helper()
	d.get(d.Admin+"/admin/v1/log/query?tenant=acme&kind=evaluation&limit=1", &entry)
	return entry
}

// approval returns an approval of acme that is in force.
func (d *building) approval() string {
	d.test.Helper()
	task := d.asked("alice")
	d.decide(task, "approve", "dave")
	var r struct {
		Items []struct {
			Approval struct {
				ID string `json:"id"`
			} `json:"approval"`
		} `json:"items"`
	}
	d.get(d.Admin+"/admin/v1/requests/"+task, &r)
	return r.Items[0].Approval.ID
}

// replay returns a replay of acme that has ended.
func (d *building) replay() (id string) {
	d.test.Helper()
	if d.operator == nil {
		d.operator = open(d.test, d.console, look{})
		d.enter(d.operator, "u-opal", "/replays")
	}
	path := evalAwait[string](d.operator, fmt.Sprintf(`(async () => {
		const form = new FormData();
		form.append("archive", new Blob([Uint8Array.fromBase64(%q)]), "store.zip");
		return new URL((await fetch("/replays", {method: "POST", body: form})).url).pathname;
	})()`, base64.StdEncoding.EncodeToString(zippedStore(d.test))))
	d.operator.visit(path)
	process.Eventually(d.test, "the replay has ended", func() bool { return !strings.Contains(d.operator.text(), "Running") })
	return path[strings.LastIndex(path, "/")+1:]
}

// A row of the table of statuses asks for something of acme, new for each person.
type row struct {
	route string                        // as the console has it
	path  func(*building) (path string) // nil for that of the route
	form  string                        // of a POST
	poll  bool                          // an open page asks whether it is up to date
}

const unknownTask = "arq_AAAAAAAAAAAAAAAAAAAAAAAAAA"

func fixed(path string) func(*building) string { return func(*building) string { return path } }

// rows are all routes. The last one signs out.
var rows = []row{
	{route: "GET /assets/{name}", path: (*building).asset},
	{route: "GET /assets/{name}", path: fixed("/assets/console.css")},
	{route: "GET /sign-in"},
	{route: "GET /sign-in/local"},
	{route: "POST /sign-in/local", form: "ticket=x"},
	{route: "GET /sign-in/start"},
	{route: "GET /sign-in/callback", path: fixed("/sign-in/callback?state=x&code=x")},
	{route: "GET /sign-in/again", path: fixed("/sign-in/again?state=x")},
	{route: "GET /{$}", path: fixed("/")},
	{route: "GET /{$}", path: fixed("/"), poll: true},
	{route: "GET /requests"},
	{route: "GET /requests", poll: true},
	{route: "GET /requests/{task}", path: func(d *building) string { return "/requests/" + d.asked("alice") }},
	{route: "GET /requests/{task}", path: func(d *building) string { return "/requests/" + d.asked("alice") }, poll: true},
	{route: "GET /requests/{task}", path: fixed("/requests/" + unknownTask)},
	{route: "POST /requests/{task}/decision", path: func(d *building) string { return "/requests/" + d.asked("alice") + "/decision" }, form: "decision=deny&ticket=x&sheet=x"},
	{route: "POST /requests/{task}/reveal", path: func(d *building) string { return "/requests/" + d.asked("alice") + "/reveal" }, form: "path=/context/arguments/api_token"},
	{route: "POST /approvals/{approval}/revoke", path: func(d *building) string { return "/approvals/" + d.approval() + "/revoke" }, form: "reason=x"},
	{route: "GET /decisions"},
	{route: "POST /decisions/export", form: "format=csv"},
	{route: "GET /decisions/{id}", path: func(d *building) string { return "/decisions/" + d.entry().ID }},
	{route: "GET /decisions/{id}", path: func(d *building) string { return fmt.Sprintf("/decisions/%d", d.entry().Index) }},
	{route: "GET /decisions/{id}/evidence", path: func(d *building) string { return "/decisions/" + d.entry().ID + "/evidence" }},
	{route: "GET /decisions/{id}/test", path: func(d *building) string { return "/decisions/" + d.entry().ID + "/test" }},
	{route: "GET /decisions/{index}/proof", path: func(d *building) string { return fmt.Sprintf("/decisions/%d/proof", d.entry().Index) }},
	{route: "GET /log/keys"},
	{route: "GET /tasks/{id}", path: func(d *building) string { return "/tasks/" + d.asked("alice") }},
	{route: "GET /live"},
	{route: "GET /live/stream"},
	{route: "GET /policies"},
	{route: "GET /policies/{revision}", path: fixed("/policies/current")},
	{route: "GET /policies/compare", path: fixed("/policies/compare?from=current&to=current")},
	{route: "GET /tests"},
	{route: "GET /shadow"},
	{route: "GET /try"},
	{route: "GET /try", path: func(d *building) string { return "/try?from=" + d.entry().ID }},
	{route: "POST /try", form: `by=current&tenant=acme&request={"subject":{"type":"user","id":"alice"},"action":{"name":"call"},"resource":{"type":"tool","id":"t"}}`},
	{route: "GET /replays"},
	{route: "POST /replays", form: "by=shadow"},
	{route: "GET /replays/{id}", path: func(d *building) string { return "/replays/" + d.replay() }},
	{route: "POST /replays/{id}/cancel", path: func(d *building) string { return "/replays/" + d.replay() + "/cancel" }},
	{route: "/", path: fixed("/nothing")},
	{route: "/", path: fixed("/nothing"), form: "x=x"},
	{route: "POST /sign-out"},
}

// asset is a file of the pages as they load it.
func (d *building) asset() string {
	d.test.Helper()
	page, err := http.Get(d.console + "/sign-in")
	if err != nil {
		d.test.Fatal(err)
	}
	defer page.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(page.Body); err != nil {
		d.test.Fatal(err)
	}
	_, rest, _ := strings.Cut(text.String(), `href="/assets/`)
	name, _, _ := strings.Cut(rest, `"`)
	return "/assets/" + name
}

// A relay is a server between browsers and the console. Browsers have the cookies of the console there, because
// ports do not separate cookies.
type relay struct {
	url   string
	mu    sync.Mutex
	slow  func(path string) time.Duration // how long an answer takes on its way
	heard map[string]string               // what requests with the header X-Row got
}

func newRelay(t testing.TB, console string) *relay {
	t.Helper()
	to, err := url.Parse(console)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{slow: func(string) time.Duration { return 0 }, heard: make(map[string]string)}
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) },
		ModifyResponse: func(answer *http.Response) error {
			r.mu.Lock()
			r.heard[answer.Request.Header.Get("X-Row")] = status(answer)
			slow := r.slow(answer.Request.URL.Path)
			r.mu.Unlock()
			<-time.After(slow)
			return nil
		},
	})
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

// status returns the status of an answer, and the path or the host that it leads to.
func status(answer *http.Response) string {
	to, err := answer.Location()
	switch {
	case err != nil:
		return fmt.Sprint(answer.StatusCode)
	case to.Hostname() == "localhost":
		return fmt.Sprintf("%d provider", answer.StatusCode)
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, shape(to.Path))
}

// requestRow sends the request of a row from a page, and returns what it got.
func (r *relay) requestRow(b *browser, n int, method, path string, of row) string {
	b.Helper()
	id, body, poll := fmt.Sprint(n), "", ""
	if method == http.MethodPost {
		body = fmt.Sprintf("body: new URLSearchParams(%q),", of.form)
	}
	if of.poll {
		poll = `, "Console-Poll": "yes"`
	}
	evalAwait[bool](b, fmt.Sprintf(`(async () => {
		const cut = new AbortController();
		await fetch(%q, {method: %q, %s redirect: "manual", cache: "no-store", signal: cut.signal, headers: {"X-Row": %q%s}});
		cut.abort();
		return true;
	})()`, path, method, body, id, poll))
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard[id]
}

// Each route answers each person with the status in the table: nobody, one scope of acme each, and all scopes of
// another tenant.
func TestAcceptance20Statuses(t *testing.T) {
	d := newBuilding(t)
	between := newRelay(t, d.console)
	cells := make([][]string, len(rows))
	for n, person := range append([]string{"nobody"}, staff...) {
		b := open(t, d.console, look{})
		if n > 0 {
			b.visit("/")
			b.click(person)
			b.sees("Sign out")
		}
		b.visit(between.url + "/sign-in")
		for i, row := range rows {
			method, path, _ := strings.Cut(row.route, " ")
			if row.path != nil {
				path = row.path(d)
			}
			if method == "/" {
				method = map[bool]string{true: http.MethodGet, false: http.MethodPost}[row.form == ""]
			}
			cells[i] = append(cells[i], between.requestRow(b, i, method, path, row))
		}
	}
	line := func(route string, cells ...string) string {
		return strings.TrimRight(fmt.Sprintf("%-34s %-20s %-17s %-14s %-14s %s", append([]any{route}, anys(cells)...)...), " ") + "\n"
	}
	table := line("", "nobody", "approve", "audit", "admin", "all of globex")
	for i, row := range rows {
		route := row.route
		if row.poll {
			route += ", again"
		}
		table += line(route, cells[i]...)
	}
	golden(t, "statuses.txt", table)
}

func anys(texts []string) (all []any) {
	for _, text := range texts {
		all = append(all, text)
	}
	return all
}

// Each route of the console has a row in the table of statuses, and each row a route.
func TestRoutesHaveStatuses(t *testing.T) {
	c, err := console.New(console.Config{BaseURL: "http://127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, row := range rows {
		have = append(have, row.route)
	}
	for _, route := range c.Routes() {
		if !slices.Contains(have, route) {
			t.Errorf("the table has no row for %s", route)
		}
	}
	for _, route := range have {
		if !slices.Contains(c.Routes(), route) {
			t.Errorf("the console has no route %s", route)
		}
	}
}
