package console_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// page returns the text of the page that a person gets.
func (b *browser) page(path string) string {
	b.Helper()
	b.visit(path)
	b.sees("Sign out")
	if strings.HasPrefix(path, "/live") {
		b.sees("Connected")
	}
	return eval[string](b, `document.querySelector("main").innerText`)
}

// tag returns the tag of what a page shows.
func (b *browser) tag(path string) string {
	b.Helper()
	b.visit(path)
	return eval[string](b, `document.querySelector("main").dataset.tag ?? ""`)
}

// answerTimes compares how long two answers take, in milliseconds at the median. Requests alternate, so that
// both have the same neighbours.
const answerTimes = `(async (first, second, n) => {
	const time = async path => { const from = performance.now(); await (await fetch(path)).arrayBuffer(); return performance.now() - from };
	const median = all => all.sort((a, b) => a - b)[all.length >> 1];
	const took = [[], []];
	for (let i = 0; i < n; i++)
		for (const which of i %% 2 ? [0, 1] : [1, 0]) took[which].push(await time([first, second][which]));
	return took.map(median);
})(%q, %q, %d)`

// An auditor of globex sees nothing of acme: no entry, no count, no file, no result of a search. What is acme's is
// answered as what does not exist, and as fast.
func TestAcceptance12OtherTenants(t *testing.T) {
	d := newBuilding(t)
	var denied authzen.Decision
	d.post(d.URL+"/tenants/globex"+authzen.PathEvaluation, "{"+push("gina", ordinary)+"}", &denied)
	b := open(t, d.console, look{desktop: true})
	d.enter(b, "u-mallory", "/decisions")

	lists := []string{
		"/tests", "/", "/requests?view=mine", "/requests?view=others", "/requests?view=decided", "/requests?view=standing",
		"/decisions", "/decisions?subject=alice", "/decisions?tenant=acme", "/decisions?kind=request", "/policies", "/policies/current", "/policies/current?q=acme", "/policies/current?file=tenants/acme/policies.cedar",
		"/replays", "/shadow", "/live?tenant=acme", "/try?tenant=acme",
	}
	before := make(map[string]string)
	for _, path := range lists {
		before[path] = b.page(path)
	}
	task, approval, replay := d.asked("alice"), d.approval(), d.replay()
	entry := d.entry()
	for _, path := range lists {
		after := b.page(path)
		if after != before[path] {
			t.Errorf("%s shows that acme was busy:\n%s\nbefore that it was\n%s", path, after, before[path])
		}
		if strings.Contains(strings.ReplaceAll(after, "tenants/acme/policies.cedar", ""), "alice") {
			t.Errorf("%s shows what is acme's:\n%s", path, after)
		}
	}
	for _, path := range []string{"/", "/requests"} {
		b.until("the tag of "+path+" stays when acme is busy", func() error { // it changes each half minute
			before := b.tag(path)
			if d.asked("alice"); before == "" || b.tag(path) != before {
				return errNotYet
			}
			return nil
		})
	}

	between := newRelay(t, d.console)
	b.visit(between.url + "/sign-in")
	const uuid, other = "01a20019-7b47-7aaf-874c-9734075811e8", "rep_AAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, pair := range []struct{ method, theirs, none string }{
		{"GET", "/requests/" + task, "/requests/" + unknownTask},
		{"POST", "/requests/" + task + "/decision", "/requests/" + unknownTask + "/decision"},
		{"POST", "/requests/" + task + "/reveal", "/requests/" + unknownTask + "/reveal"},
		{"POST", "/approvals/" + approval + "/revoke", "/approvals/apr_AAAAAAAAAAAAAAAAAAAAAAAAAA/revoke"},
		{"GET", "/decisions/" + entry.ID, "/decisions/" + uuid},
		{"GET", fmt.Sprintf("/decisions/%d", entry.Index), "/decisions/999999"},
		{"GET", "/decisions/" + entry.ID + "/evidence", "/decisions/" + uuid + "/evidence"},
		{"GET", fmt.Sprintf("/decisions/%d/proof", entry.Index), "/decisions/999999/proof"},
		{"GET", "/tasks/" + task, "/tasks/" + unknownTask},
		{"GET", "/replays/" + replay, "/replays/" + other},
		{"POST", "/replays/" + replay + "/cancel", "/replays/" + other + "/cancel"},
	} {
		theirs, none := b.answered(pair.method, pair.theirs), b.answered(pair.method, pair.none)
		if !slices.Equal(theirs, none) {
			t.Errorf("%s %s: %q, and %s: %q", pair.method, pair.theirs, theirs, pair.none, none)
		}
		if pair.method == "GET" {
			took, tells := b.tells(pair.theirs, pair.none)
			t.Logf("%s: %.1f ms, unknown: %.1f ms", pair.theirs, took[0], took[1])
			if tells {
				t.Errorf("%s takes %.1f ms, %s %.1f ms", pair.theirs, took[0], pair.none, took[1])
			}
		}
	}

	between.mu.Lock()
	between.slow = func(path string) time.Duration {
		if strings.Contains(path, task) {
			return 10 * time.Millisecond
		}
		return 0
	}
	between.mu.Unlock()
	if took, tells := b.tells("/requests/"+task, "/requests/"+unknownTask); !tells {
		t.Errorf("a difference of 10 ms is not seen: %.1f and %.1f ms", took[0], took[1])
	}
}

// tells reports whether the time of an answer tells whether something exists. A difference that comes
// from other work on this machine is not there each time.
func (b *browser) tells(theirs, none string) (took []float64, tells bool) {
	b.Helper()
	for range 3 {
		took = evalAwait[[]float64](b, fmt.Sprintf(answerTimes, theirs, none, 25))
		if math.Abs(took[0]-took[1]) < 5 {
			return took, false
		}
	}
	return took, true
}

// answered returns the status and the body of an answer, without the path.
func (b *browser) answered(method, path string) []string {
	b.Helper()
	body := map[string]string{"GET": "undefined", "POST": `new URLSearchParams("decision=deny&ticket=x&sheet=x&path=/items/0/context")`}[method]
	id := strings.Split(path, "/")[2]
	return evalAwait[[]string](b, fmt.Sprintf(`fetch(%q, {method: %q, body: %s}).then(async r => [String(r.status), (await r.text()).replaceAll("/%s", "/ID").replaceAll(">%s<", ">ID<")])`, path, method, body, id, id))
}
