package pdp_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An adminRoute describes who may use a route of the admin listener. If its target belongs to a
// tenant, the tenant is acme.
type adminRoute struct {
	method, path string
	scopes       []pdp.Scope // any of them; none means no credential is needed
	all          bool        // requires a caller of every tenant
	owned        bool        // the target belongs to a tenant; for others it does not exist
	endless      bool        // the answer does not end
	ok           int         // status for an allowed caller; default 200

	// target returns the path and body of a new target; nil for a fixed path.
	target func(*desks) (path, body string)
	// check checks the answer to a caller of these tenants; nil means every tenant.
	check func(t *testing.T, tenants []string, body []byte)
}

var (
	approvers = []pdp.Scope{pdp.ScopeApprove, pdp.ScopeAdmin}
	operators = []pdp.Scope{pdp.ScopeAdmin}
	auditors  = []pdp.Scope{pdp.ScopeAudit}
)

// adminRoutes lists all routes. The test fails for a route that is missing here.
var adminRoutes = []adminRoute{
	{method: "GET", path: "/livez"},
	{method: "GET", path: "/readyz"},
	{method: "GET", path: "/metrics"},
	{method: "GET", path: pdp.PathLogExport, scopes: auditors, check: checkLines},
	{method: "GET", path: pdp.PathLogQuery, scopes: auditors, check: checkLines},
	{method: "GET", path: pdp.PathLogCheckpoint, scopes: auditors, all: true},
	{method: "GET", path: pdp.PathLogProof, scopes: auditors, owned: true, target: (*desks).proof},
	{method: "GET", path: pdp.PathLogEntries + "/:id", scopes: auditors, owned: true, target: (*desks).entry},
	{method: "GET", path: pdp.PathLogEntries + "/:id/explanation", scopes: auditors, owned: true, target: (*desks).explanation},
	{method: "GET", path: pdp.PathLogEntries + "/:id/test", scopes: auditors, owned: true, target: (*desks).testOfEntry, ok: 422}, // its request is masked
	{method: "GET", path: pdp.PathLogEntries + "/:id/evidence", scopes: auditors, owned: true, target: (*desks).evidence},
	{method: "GET", path: pdp.PathLogKeys, scopes: auditors},
	{method: "GET", path: pdp.PathLogStream, scopes: auditors, endless: true},
	{method: "POST", path: pdp.PathLogRotateKey, scopes: operators, all: true},
	{method: "POST", path: pdp.PathReload, scopes: operators, all: true, ok: 422}, // embedded policies cannot change
	{method: "GET", path: pdp.PathReload, scopes: operators, all: true, ok: 422},
	{method: "GET", path: pdp.PathStatus, scopes: operators, check: checkStatus},
	{method: "GET", path: pdp.PathPolicies + "/:revision", scopes: operators, target: (*desks).revision, check: checkPolicies},
	{method: "GET", path: pdp.PathPolicies + "/:revision/diff/:other", scopes: operators, target: (*desks).revisions},
	{method: "GET", path: pdp.PathRevisions, scopes: operators, all: true},
	{method: "GET", path: pdp.PathTests, scopes: operators},
	{method: "GET", path: pdp.PathTry, scopes: operators}, // an example: a logged request needs audit as well
	{method: "POST", path: pdp.PathTry, scopes: operators, owned: true, target: (*desks).try},
	{method: "GET", path: pdp.PathReplays, scopes: operators},
	{method: "POST", path: pdp.PathReplays, scopes: operators, ok: 415}, // needs a zip archive
	{method: "GET", path: pdp.PathReplays + "/:id", scopes: operators, owned: true, target: (*desks).replay},
	{method: "DELETE", path: pdp.PathReplays + "/:id", scopes: operators, owned: true, target: (*desks).replay},
	{method: "GET", path: pdp.PathRequests, scopes: approvers, check: checkRequests},
	{method: "GET", path: pdp.PathRequests + "/:id", scopes: approvers, owned: true, target: (*desks).pending},
	{method: "GET", path: pdp.PathRequests + "/:id/sheet", scopes: approvers, owned: true, target: (*desks).sheet},
	{method: "POST", path: pdp.PathRequests + "/:id/reveal", scopes: approvers, owned: true, target: (*desks).reveal},
	{method: "POST", path: pdp.PathRequests + "/:id/decision", scopes: approvers, owned: true, target: (*desks).decide},
	{method: "GET", path: pdp.PathApprovals, scopes: approvers, target: (*desks).standing, check: checkStanding},
	{method: "POST", path: pdp.PathApprovals + "/:id/revoke", scopes: approvers, owned: true, target: (*desks).revoke},
	{method: "GET", path: pdp.PathCapabilities, scopes: approvers, check: checkCapabilities},
	{method: "POST", path: pdp.PathCapabilities, scopes: approvers, owned: true, ok: 201, target: (*desks).issue},
	{method: "POST", path: pdp.PathCapabilities + "/revoke", scopes: approvers, owned: true, target: (*desks).revokeHolder},
	{method: "GET", path: pdp.PathCapabilities + "/:id", scopes: approvers, owned: true, target: (*desks).capability},
	{method: "POST", path: pdp.PathCapabilities + "/:id/revoke", scopes: approvers, owned: true, target: (*desks).revokeCapability},
}

// desks is a service with callers of every scope, each for acme, for globex, for both and for every
// tenant.
type desks struct {
	*service
	t     *testing.T
	index map[string]int64 // index of an entry of each tenant

	granted int // capabilities, each for a holder of its own
}

// tenantsOf maps the callers' names to their tenants; nil means every tenant.
var tenantsOf = map[string][]string{"acme": {"acme"}, "globex": {"globex"}, "both": {"acme", "globex"}, "all": nil}

func (d *desks) key(tenants string, s pdp.Scope) string { return fmt.Sprintf("k-%s-%s", tenants, s) }

func newDesks(t *testing.T) *desks {
	t.Helper()
	var keys []pdp.APIKey
	d := &desks{t: t, index: make(map[string]int64)}
	for name, tenants := range tenantsOf {
		for _, scope := range []pdp.Scope{pdp.ScopeEvaluate, pdp.ScopeSearch, pdp.ScopeRequest, pdp.ScopeApprove, pdp.ScopeAdmin, pdp.ScopeAudit} {
			keys = append(keys, pdp.APIKey{ID: "carol", SHA256: digest(d.key(name, scope)), Grant: pdp.Grant{Tenants: tenants, Scopes: []pdp.Scope{scope}}})
		}
	}
	keys = append(keys, pdp.APIKey{ID: "gateway", SHA256: digest("k-gateway")})
	d.service = start(t, pdp.Config{Policies: policySet(t, "agent-tools"), Auth: pdp.Auth{APIKeys: keys}, Telemetry: pdp.Telemetry{Page: page, PublicPage: page}})
	for _, tenant := range []string{"acme", "globex"} {
		d.submit(tenant)
		d.grant(tenant)
	}
	_, body := d.ask("GET", pdp.PathLogExport, d.key("all", pdp.ScopeAudit), "")
	for _, e := range readEntries(t, body) {
		d.index[e.Tenant] = e.Index
	}
	return d
}

func (d *desks) ask(method, path, key, body string) (int, []byte) {
	d.t.Helper()
	base := d.admin
	if !strings.HasPrefix(path, "/admin/") && path != "/livez" && path != "/readyz" && path != "/metrics" {
		base = d.main
	}
	request, err := http.NewRequestWithContext(d.t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return response.StatusCode, answer
}

// submit submits a request of a tenant and returns its task.
func (d *desks) submit(tenant string) string {
	d.t.Helper()
	call := fmt.Sprintf(`{"tenant_id":%q,"actor":{"actor_id":"agent-7","actor_type":"agent","roles":["tool_writer"]},"action":"tool.invoke","resource":{"type":"tool","id":"jira:create","labels":{"category":"sensitive","impact":"write"}},"context":{"param_summary":"https://u:pw@example.com"}}`, tenant)
	_, body := d.ask("POST", authzen.PathAuthorize, "k-gateway", call)
	var answer authzen.AuthorizeResponse
	if err := json.Unmarshal(body, &answer); err != nil {
		d.t.Fatalf("%s: %v", body, err)
	}
	terms, err := json.Marshal(answer.Approval)
	if err != nil {
		d.t.Fatal(err)
	}
	var task authzen.TaskResponse
	_, body = d.ask("POST", authzen.PathApprovals, "k-gateway", fmt.Sprintf(`{"request":%s,"approval":%s}`, call, terms))
	if err := json.Unmarshal(body, &task); err != nil || task.Task.ID == "" {
		d.t.Fatalf("%s: %v", body, err)
	}
	return task.Task.ID
}

func (d *desks) revision() (path, body string) { return pdp.PathPolicies + "/current", "" }

func (d *desks) revisions() (path, body string) {
	return pdp.PathPolicies + "/current/diff/current", ""
}

func (d *desks) try() (path, body string) {
	return pdp.PathTry, `{"tenant":"acme","request":{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"tool","id":"t"}}}`
}

// replay begins a replay of acme's decisions and waits for its end.
func (d *desks) replay() (path, body string) {
	d.t.Helper()
	status, answer := d.upload(pdp.PathReplays+"?tenant=acme", d.key("acme", pdp.ScopeAdmin), zipped(d.t, map[string]string{"a.cedar": allMayRead}))
	var job pdp.ReplayJob
	if err := json.Unmarshal(answer, &job); err != nil || status != 202 {
		d.t.Fatalf("%d %s: %v", status, answer, err)
	}
	path = pdp.PathReplays + "/" + job.ID
	for job.State == "running" {
		_, answer = d.ask("GET", path, d.key("acme", pdp.ScopeAdmin), "")
		if err := json.Unmarshal(answer, &job); err != nil {
			d.t.Fatalf("%s: %v", answer, err)
		}
	}
	return path, ""
}

func (d *desks) proof() (path, body string) {
	return fmt.Sprintf("%s?index=%d", pdp.PathLogProof, d.index["acme"]), ""
}

func (d *desks) entry() (path, body string) {
	return fmt.Sprintf("%s/%d", pdp.PathLogEntries, d.index["acme"]), ""
}

func (d *desks) evidence() (path, body string) {
	entry, _ := d.entry()
	return entry + "/evidence", ""
}

// explanation is that of a decision about acme, which the newest entries are not.
func (d *desks) explanation() (path, body string) {
	_, lines := d.ask("GET", pdp.PathLogQuery+"?kind=evaluation&tenant=acme&limit=1&action=tool.invoke", d.key("all", pdp.ScopeAudit), "")
	return pdp.PathLogEntries + "/" + readEntries(d.t, lines)[0].ID + "/explanation", ""
}

func (d *desks) testOfEntry() (path, body string) {
	path, _ = d.explanation()
	return strings.TrimSuffix(path, "/explanation") + "/test", ""
}

func (d *desks) pending() (path, body string) {
	return pdp.PathRequests + "/" + d.submit("acme"), ""
}

func (d *desks) sheet() (path, body string) {
	return pdp.PathRequests + "/" + d.submit("acme") + "/sheet", ""
}

func (d *desks) reveal() (path, body string) {
	return pdp.PathRequests + "/" + d.submit("acme") + "/reveal", `{"path":"/context/param_summary"}`
}

func (d *desks) decide() (path, body string) {
	return pdp.PathRequests + "/" + d.submit("acme") + "/decision", `{"decision":"approve"}`
}

func (d *desks) revoke() (path, body string) {
	decision, body := d.decide()
	_, answer := d.ask("POST", decision, d.key("all", pdp.ScopeApprove), body)
	var approved pdp.AccessRequest
	if err := json.Unmarshal(answer, &approved); err != nil || approved.Items[0].Approval == nil {
		d.t.Fatalf("%s: %v", answer, err)
	}
	return pdp.PathApprovals + "/" + approved.Items[0].Approval.ID + "/revoke", `{"reason":"a mistake"}`
}

// standing approves a request of each tenant.
func (d *desks) standing() (path, body string) {
	for _, tenant := range []string{"acme", "globex"} {
		path := pdp.PathRequests + "/" + d.submit(tenant) + "/decision"
		if status, answer := d.ask("POST", path, d.key("all", pdp.ScopeApprove), `{"decision":"approve"}`); status != 200 {
			d.t.Fatalf("%d %s", status, answer)
		}
	}
	return pdp.PathApprovals + "?standing=true", ""
}

// grant grants a capability in a tenant and returns its id.
func (d *desks) grant(tenant string) string {
	d.t.Helper()
	d.granted++
	status, body := d.ask("POST", pdp.PathCapabilities, d.key("all", pdp.ScopeApprove),
		fmt.Sprintf(`{"tenant":%q,"subject":{"type":"agent","id":"agent-%d"},"tools":["jira:create"],"duration":60}`, tenant, d.granted))
	var made authzen.CapabilityResponse
	if err := json.Unmarshal(body, &made); err != nil || status != 201 {
		d.t.Fatalf("%d %s: %v", status, body, err)
	}
	return made.Capability.ID
}

func (d *desks) issue() (path, body string) {
	d.granted++
	return pdp.PathCapabilities, fmt.Sprintf(`{"tenant":"acme","subject":{"type":"agent","id":"agent-%d"},"tools":["jira:create"],"duration":60}`, d.granted)
}

func (d *desks) revokeHolder() (path, body string) {
	d.grant("acme")
	return pdp.PathCapabilities + "/revoke", fmt.Sprintf(`{"tenant":"acme","holder":{"type":"agent","id":"agent-%d"}}`, d.granted)
}

func (d *desks) capability() (path, body string) {
	return pdp.PathCapabilities + "/" + d.grant("acme"), ""
}

func (d *desks) revokeCapability() (path, body string) {
	return pdp.PathCapabilities + "/" + d.grant("acme") + "/revoke", `{"reason":"a mistake"}`
}

func checkCapabilities(t *testing.T, tenants []string, body []byte) {
	t.Helper()
	var list authzen.CapabilityList
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var shown []string
	for _, c := range list.Capabilities {
		shown = append(shown, c.Tenant)
	}
	checkTenants(t, tenants, shown)
}

// checkTenants checks that a caller sees exactly the entries of its tenants.
func checkTenants(t *testing.T, tenants, shown []string) {
	t.Helper()
	for _, tenant := range []string{"", "acme", "globex"} {
		want := tenants == nil || slices.Contains(tenants, tenant)
		if got := slices.Contains(shown, tenant); got != want && (tenant != "" || !want) {
			t.Errorf("a caller of %v is shown what is of %q: %v", tenants, tenant, got)
		}
	}
}

// checkPolicies checks that a revision has files.
func checkPolicies(t *testing.T, _ []string, body []byte) {
	t.Helper()
	var revision pdp.PolicyRevision
	if err := json.Unmarshal(body, &revision); err != nil || revision.Revision == "" || len(revision.Files) == 0 || len(revision.Policies) == 0 {
		t.Errorf("%s: %v", body, err)
	}
}

// checkStatus checks that a caller of some tenants gets nothing that counts the others'.
func checkStatus(t *testing.T, tenants []string, body []byte) {
	t.Helper()
	var status pdp.ServiceStatus
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if all := tenants == nil; all != (status.Log != nil) || all != (status.Rates != nil) || all != (status.InFlight != nil) {
		t.Errorf("a caller of %v gets %s", tenants, body)
	}
}

func checkLines(t *testing.T, tenants []string, body []byte) {
	t.Helper()
	var shown []string
	for _, e := range readEntries(t, body) {
		shown = append(shown, e.Tenant)
	}
	checkTenants(t, tenants, shown)
}

func checkStanding(t *testing.T, tenants []string, body []byte) {
	t.Helper()
	var list pdp.StandingApprovals
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var shown []string
	for _, a := range list.Approvals {
		shown = append(shown, a.Tenant)
	}
	checkTenants(t, tenants, shown)
}

func checkRequests(t *testing.T, tenants []string, body []byte) {
	t.Helper()
	var list pdp.AccessRequests
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var shown []string
	for _, r := range list.Requests {
		shown = append(shown, r.Tenant)
	}
	checkTenants(t, tenants, shown)
}

// Each route of the admin listener keeps tenants apart: for callers of the target's tenant, of
// another, of both and of all, with each scope and with none.
func TestAdminRoutesKeepTenantsApart(t *testing.T) {
	d, document := newDesks(t), newOpenAPI(t)
	for _, route := range adminRoutes {
		t.Run(route.method+" "+route.path, func(t *testing.T) {
			path, body := route.path, ""
			if route.target != nil {
				path, body = route.target(d)
			}
			if want := map[bool]int{true: 200, false: 401}[route.scopes == nil]; want != 0 {
				got, answer := d.ask(route.method, path, "", body)
				if got != want {
					t.Errorf("a stranger: %d %s", got, answer)
				}
				document.check(t, route.method, route.path, got, answer)
			}
			for name, tenants := range tenantsOf {
				for _, scope := range []pdp.Scope{pdp.ScopeEvaluate, pdp.ScopeSearch, pdp.ScopeRequest, pdp.ScopeApprove, pdp.ScopeAdmin, pdp.ScopeAudit} {
					want := route.want(scope, tenants)
					if route.target != nil && want == max(route.ok, 200) {
						path, body = route.target(d) // the previous target is already decided
					}
					if route.endless && want == 200 {
						if l := listen(t, t.Context(), d.admin+path, d.key(name, scope), ""); l.response.StatusCode != want {
							t.Errorf("%s of %s: %s", scope, name, l.response.Status)
						}
						continue
					}
					got, answer := d.ask(route.method, path, d.key(name, scope), body)
					if got != want {
						t.Errorf("%s of %s: %d, want %d: %s", scope, name, got, want, answer)
					}
					document.check(t, route.method, route.path, got, answer)
					if got == 200 && route.check != nil {
						route.check(t, tenants, answer)
					}
				}
			}
		})
	}
}

// want returns the expected status for a caller.
func (r adminRoute) want(scope pdp.Scope, tenants []string) int {
	ok := max(r.ok, 200)
	switch {
	case r.scopes == nil:
		return ok
	case !slices.Contains(r.scopes, scope), r.all && tenants != nil:
		return 403
	case r.owned && tenants != nil && !slices.Contains(tenants, "acme"):
		if r.path == pdp.PathLogProof {
			return 400 // as for an index beyond the end
		}
		return 404
	}
	return ok
}

// The table has exactly the routes of the admin listener.
func TestAdminRoutesAreComplete(t *testing.T) {
	log, err := decisionlog.Open(t.TempDir(), decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_, admin, err := pdp.NewHandlers(t.Context(), t.TempDir(), nil, pdp.Limits{}, log, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	for _, r := range admin.(*echo.Echo).Routes() {
		have = append(have, r.Method+" "+r.Path)
	}
	for _, r := range adminRoutes {
		want = append(want, r.method+" "+r.path)
	}
	for _, r := range have {
		if !slices.Contains(want, r) {
			t.Errorf("%s is not in the table: say who may do that, and of whose", r)
		}
	}
	for _, r := range want {
		if !slices.Contains(have, r) {
			t.Errorf("there is no %s", r)
		}
	}
}

// For a caller of a tenant, entries of other tenants do not exist. A bundle has the entries of the
// caller's tenants and verifies.
func TestLogOfTenants(t *testing.T) {
	d := newDesks(t)
	key := d.key("acme", pdp.ScopeAudit)
	for _, query := range []string{"tenant=globex", "tenant=nowhere", "kind=reload"} {
		for _, path := range []string{pdp.PathLogExport, pdp.PathLogQuery} {
			if code, body := d.ask("GET", path+"?"+query, key, ""); code != 200 || len(body) > 0 {
				t.Errorf("%s?%s: %d %s", path, query, code, body)
			}
		}
	}
	_, checkpoint := d.ask("GET", pdp.PathLogCheckpoint, d.key("all", pdp.ScopeAudit), "")
	var signed decisionlog.Checkpoint
	if err := json.Unmarshal(checkpoint, &signed); err != nil {
		t.Fatal(err)
	}
	if code, body := d.ask("GET", pdp.PathLogProof+"?earlier="+url.QueryEscape(signed.Note), key, ""); code != 403 {
		t.Errorf("a proof about everybody's entries: %d %s", code, body)
	}
	_, beyond := d.ask("GET", pdp.PathLogProof+"?index=100000", key, "")
	for _, index := range []int64{d.index["globex"], d.index[""]} {
		if code, body := d.ask("GET", fmt.Sprintf("%s?index=%d", pdp.PathLogProof, index), key, ""); code != 400 || !bytes.Equal(body, beyond) {
			t.Errorf("the proof of entry %d: %d %s, beyond the end it is %s", index, code, body, beyond)
		}
	}
	_, bundle := d.ask("GET", pdp.PathLogExport+"?format=bundle", key, "")
	archive, err := zip.NewReader(bytes.NewReader(bundle), int64(len(bundle)))
	if err != nil {
		t.Fatal(err)
	}
	file, err := archive.Open("entries.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	checkLines(t, []string{"acme"}, entries)
	if bytes.Contains(bundle, []byte("globex")) {
		t.Error("the bundle names another tenant")
	}
}

// Callers without access to a tenant cannot find out whether it exists.
func TestTenantsAreNotRevealed(t *testing.T) {
	store := fstest.MapFS{
		"a.cedar":                     {Data: []byte(`@id("a") permit (principal, action, resource);`)},
		"tenants/acme/a.cedar":        {Data: []byte(`@id("b") forbid (principal, action, resource) when { context has x };`)},
		"tenants/globex/b.cedar":      {Data: []byte(`@id("c") forbid (principal, action, resource) when { context has y };`)},
		"tenants/acme/config.yaml":    {Data: []byte("approval_templates:\n  t: {request_schema: {type: object}}\n")},
		"tenants/globex/config.yaml":  {Data: []byte("approval_templates:\n  t: {request_schema: {type: object}}\n")},
		"tenants/initech/config.yaml": {Data: []byte("approval_templates:\n  t: {request_schema: {type: object}}\n")},
	}
	s := start(t, pdp.Config{Policies: store, PublicURL: "https://pdp.example.com", Telemetry: pdp.Telemetry{Page: page}, Auth: pdp.Auth{APIKeys: []pdp.APIKey{
		{ID: "gateway", SHA256: digest("k-globex"), Grant: pdp.Grant{Tenants: []string{"globex"}}},
		{ID: "auditor", SHA256: digest("k-globex-audit"), Grant: pdp.Grant{Tenants: []string{"globex"}, Scopes: []pdp.Scope{pdp.ScopeAudit, pdp.ScopeAdmin}}},
		{ID: "operator", SHA256: digest("k-audit"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeAudit}}},
	}}})
	get := func(key, url string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			request.Header.Set("Authorization", "Bearer "+key)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	for _, key := range []string{"", "k-globex", "k-wrong"} {
		for _, path := range []string{authzen.PathMetadata + "/tenants/%s", "/tenants/%s" + authzen.PathRequestSchemas + "/t",
			"/tenants/%s" + authzen.PathJWKS, "/tenants/%s" + authzen.PathRequests + "/arq_1"} {
			have, haveBody := get(key, s.main+fmt.Sprintf(path, "acme"))
			none, noneBody := get(key, s.main+fmt.Sprintf(path, "nope"))
			if have != none || strings.ReplaceAll(haveBody, "acme", "nope") != noneBody {
				t.Errorf("%s with key %q: of a tenant %d %s, of none %d %s", path, key, have, haveBody, none, noneBody)
			}
		}
	}
	if code, body := get("k-globex", s.main+"/tenants/globex"+authzen.PathRequestSchemas+"/t"); code != 200 || body != `{"type":"object"}` {
		t.Errorf("the schema to who asks by it: %d %s", code, body)
	}
	for key, want := range map[string]bool{"": false, "k-wrong": false, "k-globex": false, "k-globex-audit": false, "k-audit": true} {
		code, body := get(key, s.admin+"/readyz?verbose")
		if named := strings.Contains(body, "acme"); code != 200 || named != want || !strings.HasPrefix(body, "ok\n") || strings.Contains(body, "\nsince ") != want {
			t.Errorf("readiness to key %q: %d %s", key, code, body)
		}
		if code, body := get(key, s.admin+"/metrics"); (code == 200) != want || !want && code != 403 {
			t.Errorf("measurements to key %q: %d %s", key, code, body)
		}
	}
}
