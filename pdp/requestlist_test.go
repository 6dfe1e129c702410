package pdp_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Lists have only requests of the caller's tenants, in pages.
func TestRequestsArePaged(t *testing.T) {
	d := newDesks(t)
	acme, globex := d.tasksOf("acme"), d.tasksOf("globex")
	for range 6 {
		acme = append(acme, d.submit("acme"))
	}
	globex = append(globex, d.submit("globex"))
	for _, test := range []struct {
		tenants, query string
		want           []string
	}{
		{"globex", "status=pending&limit=1", globex},
		{"globex", "limit=1000", globex},
		{"globex", "tenant=acme", nil},
		{"globex", "tenant=nowhere", nil},
		{"globex", "status=denied", nil},
		{"acme", "status=pending&limit=3", acme},
		{"both", "tenant=acme&limit=2", acme},
		{"all", "limit=4", slices.Concat(acme, globex)},
		{"all", "tenant=globex", globex},
	} {
		var got []string
		for query, pages := test.query, 0; ; pages++ {
			code, body := d.ask("GET", pdp.PathRequests+"?"+query, d.key(test.tenants, pdp.ScopeApprove), "")
			var page pdp.AccessRequests
			if err := json.Unmarshal(body, &page); err != nil || code != 200 || pages > 20 {
				t.Fatalf("%s: %d %s %v", query, code, body, err)
			}
			for _, r := range page.Requests {
				got = append(got, r.ID)
			}
			if page.Page == nil {
				break
			}
			if page.Page.Count != len(page.Requests) || page.Page.NextToken == "" {
				t.Errorf("%s: the page is %+v of %d", query, page.Page, len(page.Requests))
			}
			query = test.query + "&token=" + url.QueryEscape(page.Page.NextToken)
		}
		slices.Sort(got) // requests of the same second have no defined order
		want := slices.Sorted(slices.Values(test.want))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s of a caller of %s (-want +got):\n%s", test.query, test.tenants, diff)
		}
	}
	for _, query := range []string{"status=pendng", "state=pending", "limit=0", "limit=1001", "limit=x", "token=x", "token=%21", "tenants=acme", "tenant=acme&tenant=globex"} {
		if code, body := d.ask("GET", pdp.PathRequests+"?"+query, d.key("all", pdp.ScopeApprove), ""); code != 400 {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	for path, scope := range map[string]pdp.Scope{
		pdp.PathLogExport + "?limit=1": pdp.ScopeAudit, pdp.PathLogQuery + "?format=bundle": pdp.ScopeAudit, pdp.PathReload + "?ID=1": pdp.ScopeAdmin,
	} {
		if code, body := d.ask("GET", path, d.key("all", scope), ""); code != 400 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, path := range []string{pdp.PathLogExport, pdp.PathLogQuery} {
		for _, query := range []string{"tenent=acme", "Tenant=acme", "tenant=acme&tenant=globex", "decison=deny"} {
			if code, body := d.ask("GET", path+"?"+query, d.key("all", pdp.ScopeAudit), ""); code != 400 {
				t.Errorf("%s?%s: %d %s", path, query, code, body)
			}
		}
	}
}

// tasksOf returns the tasks of a tenant.
func (d *desks) tasksOf(tenant string) (ids []string) {
	d.t.Helper()
	_, body := d.ask("GET", pdp.PathRequests, d.key(tenant, pdp.ScopeApprove), "")
	var list pdp.AccessRequests
	if err := json.Unmarshal(body, &list); err != nil {
		d.t.Fatalf("%s: %v", body, err)
	}
	for _, r := range list.Requests {
		ids = append(ids, r.ID)
	}
	return ids
}

// Approvers see masks in place of secrets in every view. A list has no contexts.
func TestApproversSeeNoSecrets(t *testing.T) {
	s := start(t, pdp.Config{Policies: docs("{ttl: 15m}")})
	const call = `{"subject":{"type":"user","id":"alice","properties":{"api_key":"sk-live-1"}},"action":{"name":"read"},
		"resource":{"type":"doc","id":"plan","properties":{"arguments":{"branch":"main","options":{"password":"hunter2"},"password":"hunter2"}}},"context":{"session_token":"t-3","note":"a note"}`
	_, denied := post(t, http.DefaultClient, s.main+authzen.PathEvaluation, call+`}`)
	answers := map[string]string{"denied": denied}
	_, answers["task"] = post(t, http.DefaultClient, s.main+authzen.PathRequests, filled(t, []byte(call+`,"client":{"refresh_token":"r-4"},"denial":{
		"expires_at":"${denied/context/access_request/expires_at}","binding_token":"${denied/context/access_request/binding_token}"}}`), answers))
	path := s.admin + pdp.PathRequests + filled(t, []byte("/${task/task/id}"), answers)
	_, export := get(t, s.admin+pdp.PathLogExport)
	masked := regexp.MustCompile(`"password":"(masked:[^"]+)"`).FindStringSubmatch(export)
	if masked == nil {
		t.Fatalf("the log masks nothing:\n%s", export)
	}
	for _, view := range []struct {
		name     string
		see      func() (*http.Response, string)
		contexts bool
	}{
		{"list", func() (*http.Response, string) { return get(t, s.admin+pdp.PathRequests) }, false},
		{"show", func() (*http.Response, string) { return get(t, path) }, true},
		{"decide", func() (*http.Response, string) {
			return post(t, http.DefaultClient, path+"/decision", `{"decision":"approve","approver":{"type":"approver","id":"carol"}}`)
		}, true},
	} {
		response, body := view.see()
		if response.StatusCode != 200 || !strings.Contains(body, fmt.Sprintf(`"password":%q`, masked[1])) || !strings.Contains(body, `"branch":"main"`) {
			t.Errorf("%s: %s %s", view.name, response.Status, body)
		}
		summary := `"summary":"read doc::\"plan\" (branch: \"main\", options: {\"password\":\"` + masked[1] + `\"}, password: \"` + masked[1] + `\")"`
		if !strings.Contains(body, summary) {
			t.Errorf("%s has no %s:\n%s", view.name, summary, body)
		}
		for _, secret := range []string{"sk-live-1", "hunter2", "t-3", "r-4"} {
			if strings.Contains(body, secret) {
				t.Errorf("%s shows %s", view.name, secret)
			}
		}
		if got := strings.Contains(body, "a note"); got != view.contexts {
			t.Errorf("%s shows the context: %v", view.name, got)
		}
	}
}

// A list for a person has what the person may decide, says what, and leaves no entry.
func TestRequestsForAPerson(t *testing.T) {
	s := hire(t, nil)
	other, own := s.asked(key("gateway"), "call", "alice", ""), s.asked(key("gateway"), "call", "carol", "")
	decided := s.asked(key("gateway"), "call", "alice", "")
	if got := s.approves(key("dave"), decided); got != 200 {
		t.Fatal(got)
	}
	before := len(s.entries())
	for _, test := range []struct{ credential, query, want string }{
		{key("carol"), "for=me", other + ":approve,deny:"},
		{key("carol"), "for=me&status=pending", other + ":approve,deny:"},
		{key("carol"), "for=others", own + "::own_request"},
		{s.token("alice"), "for=me", own + ":approve,deny:"},
		{key("carol"), "status=decided", decided + "::"},
	} {
		var page pdp.AccessRequests
		if got := askAs(t, test.credential, "GET", s.admin+pdp.PathRequests+"?"+test.query, "", &page); got != 200 {
			t.Errorf("%s: %d", test.query, got)
		}
		var got []string
		for _, r := range page.Requests {
			got = append(got, r.ID+":"+strings.Join(r.May, ",")+":"+r.WhyNot)
		}
		if strings.Join(got, " ") != test.want || page.Page != nil {
			t.Errorf("%s: %q, page %+v, want %s", test.query, got, page.Page, test.want)
		}
	}
	if after := len(s.entries()); after != before {
		t.Errorf("the log grew from %d to %d entries", before, after)
	}
	for _, query := range []string{"for=you", "for=me&status=approved", "for=me&status=decided", "for=me&for=others", "for=me&as=x", "status=decide"} {
		if status, answer := s.send(key("carol"), "GET", pdp.PathRequests+"?"+query, ""); status != 400 {
			t.Errorf("%s: %d %s", query, status, answer)
		}
	}
}

// The approvals that can still be used are listed with what they are for, in pages.
func TestStandingApprovalsAreListed(t *testing.T) {
	s := hire(t, nil)
	var tasks []string
	for range 3 {
		task := s.asked(key("gateway"), "call", "alice", `"api_key":"sk-live-1"`)
		if got := s.approves(key("carol"), task); got != 200 {
			t.Fatal(got)
		}
		tasks = append(tasks, task)
	}
	var got []string
	for query := "standing=true&limit=2"; query != ""; {
		var page pdp.StandingApprovals
		if status := askAs(t, key("carol"), "GET", s.admin+pdp.PathApprovals+"?"+query, "", &page); status != 200 {
			t.Fatalf("%s: %d", query, status)
		}
		for _, a := range page.Approvals {
			got = append(got, a.Task)
			if a.UsesLeft != 1 || a.Subject.ID != "alice" || a.Summary != `call doc::"d"` || a.Template != "one" || a.Approvers[0].ID != "carol" || !strings.HasPrefix(a.ID, "apr_") {
				t.Errorf("%+v", a)
			}
		}
		if query = ""; page.Page != nil {
			query = "standing=true&limit=2&token=" + url.QueryEscape(page.Page.NextToken)
		}
	}
	slices.Sort(got)
	slices.Sort(tasks)
	if diff := cmp.Diff(tasks, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, query := range []string{"", "standing=false", "standing=true&token=x", "standing=true&limit=0", "standing=true&status=pending"} {
		if status, answer := s.send(key("carol"), "GET", pdp.PathApprovals+"?"+query, ""); status != 400 {
			t.Errorf("%q: %d %s", query, status, answer)
		}
	}
}
