package pdp_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/revisions"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/policies"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// operators are keys of the scopes admin and audit: of acme, and of every tenant.
func operatorKeys() pdp.Auth {
	key := func(id string, tenants []string, scopes ...pdp.Scope) pdp.APIKey {
		return pdp.APIKey{ID: id, SHA256: digest("k-" + id), Grant: pdp.Grant{Tenants: tenants, Scopes: scopes}}
	}
	return pdp.Auth{APIKeys: []pdp.APIKey{
		key("acme", []string{"acme"}, pdp.ScopeAdmin, pdp.ScopeAudit), key("all", nil, pdp.ScopeAdmin, pdp.ScopeAudit),
		key("op", nil, pdp.ScopeAdmin), key("pep", nil, pdp.ScopeEvaluate),
	}}
}

// The texts of former revisions come from the archive of the log, and the list says what was in force
// when, also before this process.
func TestRevisions(t *testing.T) {
	dir, state := storeDir(t, map[string]string{"a.cedar": aliceMayRead}), t.TempDir()
	s := start(t, pdp.Config{PolicyDir: dir, State: state})
	first := s.status(t, "").Policies.Revision
	writeFile(t, filepath.Join(dir, "a.cedar"), allMayRead)
	s.reload(t)
	s.stop(t)
	s = start(t, pdp.Config{PolicyDir: dir, State: state})
	writeFile(t, filepath.Join(dir, "a.cedar"), "permit(")
	s.reload(t)

	var was, now pdp.PolicyRevision
	askAs(t, "", "GET", s.admin+pdp.PathPolicies+"/"+first, "", &was)
	askAs(t, "", "GET", s.admin+pdp.PathPolicies+"/current", "", &now)
	if was.Revision != first || was.Files[0].Text != aliceMayRead || was.Policies[0].ID != "read" || now.Files[0].Text != allMayRead {
		t.Errorf("was %+v, now %+v", was, now)
	}
	var diff pdp.PolicyDifference
	askAs(t, "", "GET", s.admin+pdp.PathPolicies+"/"+first+"/diff/current", "", &diff)
	if len(diff.Policies) != 2 || diff.Policies[0].Change != revisions.Removed || diff.Policies[1].After.Text != allMayRead || diff.From != first || diff.To != now.Revision {
		t.Errorf("%+v", diff)
	}
	if code := askAs(t, "", "GET", s.admin+pdp.PathPolicies+"/sha256:"+strings.Repeat("0", 64), "", nil); code != 404 {
		t.Errorf("an unknown revision is %d", code)
	}
	if code := askAs(t, "", "GET", s.admin+pdp.PathPolicies+"/..%2f..%2fadmin-url", "", nil); code != 404 {
		t.Errorf("a path is %d", code)
	}

	var history pdp.PolicyHistory
	askAs(t, "", "GET", s.admin+pdp.PathRevisions, "", &history)
	var earlier pdp.PolicyHistory
	askAs(t, "", "GET", fmt.Sprintf("%s%s?until=%d", s.admin, pdp.PathRevisions, history.Next), "", &earlier)
	if len(history.Reloads) != 2 || earlier.Next != 0 {
		t.Errorf("%+v\n%+v", history, earlier)
	}
	history.Reloads = append(history.Reloads, earlier.Reloads...)
	var rows []string
	for _, r := range history.Reloads {
		row := r.Cause + " refused"
		if r.Loaded {
			row = r.Cause + " " + r.Revision
		}
		rows = append(rows, row)
	}
	want := []string{"request refused", "start " + now.Revision, "request " + now.Revision, "start " + first}
	if !slices.Equal(rows, want) {
		t.Errorf("%q, want %q", rows, want)
	}
	var page pdp.PolicyHistory
	askAs(t, "", "GET", s.admin+pdp.PathRevisions+"?until=1", "", &page)
	if len(page.Reloads) != 1 || page.Reloads[0].Revision != first || page.Next != 0 {
		t.Errorf("%+v", page)
	}
}

// A caller of some tenants sees the root and its tenants' folders, of any revision, and nothing that
// tells of the others.
func TestRevisionsAreCutByTenant(t *testing.T) {
	dir := storeDir(t, map[string]string{"a.cedar": aliceMayRead, "tenants/acme/a.cedar": allMayRead, "tenants/globex/secret.cedar": `@id("globex-secret") permit(principal, action, resource);`})
	s := start(t, pdp.Config{PolicyDir: dir, Auth: operatorKeys()})
	whole := s.status(t, "k-all").Policies.Revision
	for _, name := range []string{"current", whole, whole + "/diff/current", "current/diff/current"} {
		_, body, err := send(t.Context(), &http.Client{Transport: bearer("k-acme")}, "GET", s.admin+pdp.PathPolicies+"/"+name, "")
		if err != nil || strings.Contains(body, "globex") || !strings.Contains(body, `"revision"`) && !strings.Contains(body, `"from"`) {
			t.Errorf("%s: %s %v", name, body, err)
		}
	}
	var all, own pdp.PolicyRevision
	askAs(t, "k-all", "GET", s.admin+pdp.PathPolicies+"/current", "", &all)
	askAs(t, "k-acme", "GET", s.admin+pdp.PathPolicies+"/current", "", &own)
	if len(all.Files) != 3 || len(own.Files) != 2 || len(own.Policies) != 2 || own.Revision == all.Revision {
		t.Errorf("all %+v\nown %+v", all, own)
	}
	for _, path := range []string{pdp.PathRevisions} {
		if code := askAs(t, "k-acme", "GET", s.admin+path, "", nil); code != 403 {
			t.Errorf("%s is %d", path, code)
		}
	}
	// The revision that globex's decisions name is not acme's.
	post := func(tenant string) string {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", s.main+"/tenants/"+tenant+authzen.PathEvaluation, strings.NewReader(aliceReads))
		req.Header.Set("Content-Type", "application/json")
		answer, err := (&http.Client{Transport: bearer("k-pep")}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var e struct {
			Revision string `json:"revision"`
		}
		askAs(t, "k-all", "GET", s.admin+pdp.PathLogEntries+"/"+answer.Header.Get("Decision-Id"), "", &e)
		return e.Revision
	}
	if code := askAs(t, "k-acme", "GET", s.admin+pdp.PathPolicies+"/"+post("globex"), "", nil); code != 404 {
		t.Errorf("globex's revision is %d for acme", code)
	}
	if code := askAs(t, "k-acme", "GET", s.admin+pdp.PathPolicies+"/"+post("acme"), "", nil); code != 200 {
		t.Errorf("acme's revision is %d for acme", code)
	}
}

// bearer is a transport that sends an API key.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

const oneTest = `tests:
  - name: alice reads
    request: {subject: {type: user, id: alice}, action: {name: read}, resource: {type: record, id: r}}
    decision: true
`

// The tests beside the policies run once for the same content, and say what they never tried.
func TestTestsOfTheStore(t *testing.T) {
	dir := storeDir(t, map[string]string{"a.cedar": aliceMayRead + `@id("never") forbid(principal == user::"eve", action, resource) when { context.x };`, "tests/a.yaml": oneTest})
	s := start(t, pdp.Config{PolicyDir: dir})
	ask := func() (report struct {
		InForce bool    `json:"in_force"`
		Seconds float64 `json:"seconds"`
		Faults  []any   `json:"faults"`
		Report  struct {
			Passed   int `json:"passed"`
			Failed   int `json:"failed"`
			Coverage struct {
				Gaps []struct {
					What string `json:"what"`
				} `json:"gaps"`
			} `json:"coverage"`
		} `json:"report"`
	}) {
		t.Helper()
		if code := askAs(t, "", "GET", s.admin+pdp.PathTests, "", &report); code != 200 {
			t.Fatalf("%d", code)
		}
		return report
	}
	got := ask()
	if !got.InForce || got.Report.Passed != 1 || got.Report.Failed != 0 || len(got.Report.Coverage.Gaps) != 1 || got.Report.Coverage.Gaps[0].What != "forbid never is never reached" {
		t.Errorf("%+v", got)
	}
	if again := ask(); again.Seconds != got.Seconds {
		t.Errorf("the tests ran again: %v and %v seconds", got.Seconds, again.Seconds)
	}
	writeFile(t, filepath.Join(dir, "tests", "a.yaml"), strings.Replace(oneTest, "true", "false", 1))
	if got := ask(); got.Report.Failed != 1 {
		t.Errorf("after a change of a test: %+v", got)
	}
	writeFile(t, filepath.Join(dir, "a.cedar"), "permit(")
	if got := ask(); len(got.Faults) == 0 || got.InForce {
		t.Errorf("with a fault: %+v", got)
	}
}

// A caller of some tenants gets the tests of the root and its own.
func TestTestsAreCutByTenant(t *testing.T) {
	dir := storeDir(t, map[string]string{"a.cedar": aliceMayRead, "tests/root.yaml": oneTest,
		"tenants/acme/a.cedar": allMayRead, "tenants/acme/tests/a.yaml": oneTest, "tenants/globex/secret.cedar": `@id("globex-secret") permit(principal, action, resource);`, "tenants/globex/tests/g.yaml": oneTest})
	s := start(t, pdp.Config{PolicyDir: dir, Auth: operatorKeys()})
	_, all, _ := send(t.Context(), &http.Client{Transport: bearer("k-all")}, "GET", s.admin+pdp.PathTests, "")
	_, own, _ := send(t.Context(), &http.Client{Transport: bearer("k-acme")}, "GET", s.admin+pdp.PathTests, "")
	if !strings.Contains(all, `"passed":3`) || !strings.Contains(own, `"passed":2`) || strings.Contains(own, "globex") {
		t.Errorf("all: %s\nown: %s", all, own)
	}
}

// The tests of a tenant run while another tenant's folder has a fault: in its policies, in its tests, or
// in its names. Who sees all tenants gets the fault beside the results of the others.
func TestFaultsOfATenantStopNoOtherTests(t *testing.T) {
	for name, fault := range map[string]struct{ file, text string }{
		"policies":  {"tenants/globex/g.cedar", "permit("},
		"tests":     {"tenants/globex/tests/g.yaml", "tests: 7"},
		"names":     {"tenants/globex/tests/more.yml", oneTest},
		"misplaced": {"tenants/globex/h.cedar.txt", allMayRead},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"a.cedar": aliceMayRead, "tests/root.yaml": oneTest, "tenants/acme/a.cedar": allMayRead, "tenants/acme/tests/a.yaml": oneTest, "tenants/globex/g.cedar": allMayRead}
			files[fault.file] = fault.text
			s := start(t, pdp.Config{PolicyDir: storeDir(t, files), Auth: operatorKeys()})
			ask := func(key string) (body string) {
				t.Helper()
				_, body, err := send(t.Context(), &http.Client{Transport: bearer(key)}, "GET", s.admin+pdp.PathTests, "")
				if err != nil {
					t.Fatal(err)
				}
				return body
			}
			if own := ask("k-acme"); !strings.Contains(own, `"passed":2`) || !strings.Contains(own, `"in_force":true`) || strings.Contains(own, "globex") || strings.Contains(own, "faults") || strings.Contains(own, "problem") {
				t.Errorf("acme gets %s", own)
			}
			if all := ask("k-all"); !strings.Contains(all, `"passed":2`) || !strings.Contains(all, fault.file) || !strings.Contains(all, `"in_force":false`) {
				t.Errorf("who sees all gets %s", all)
			}
		})
	}
}

// A fault in the root stops the tests of everybody.
func TestFaultsOfTheRootStopTests(t *testing.T) {
	for _, file := range []string{"b.cedar", "tests/b.yaml", "b.cedar.txt"} {
		dir := storeDir(t, map[string]string{"a.cedar": aliceMayRead, "tenants/acme/a.cedar": allMayRead, "tenants/acme/tests/a.yaml": oneTest, file: "tests: permit("})
		s := start(t, pdp.Config{PolicyDir: dir, Auth: operatorKeys()})
		for _, key := range []string{"k-acme", "k-all"} {
			_, body, _ := send(t.Context(), &http.Client{Transport: bearer(key)}, "GET", s.admin+pdp.PathTests, "")
			if !strings.Contains(body, `"file":"`+file) || strings.Contains(body, `"passed"`) {
				t.Errorf("%s, %s: %s", file, key, body)
			}
		}
	}
}

// A try is explained and recorded, also by the shadow policies, and no member of its answer is a
// decision for a PEP.
func TestTry(t *testing.T) {
	s := start(t, pdp.Config{PolicyDir: storeDir(t, map[string]string{"a.cedar": aliceMayRead}), ShadowDir: storeDir(t, map[string]string{"a.cedar": allMayRead}), Auth: operatorKeys()})
	bobReads := strings.Replace(aliceReads, "alice", "bob", 1)
	body := `{"request":` + strings.Replace(bobReads, `"resource"`, `"context":{"token":"s3cr3t-value"},"resource"`, 1) + `}`
	_, text, err := send(t.Context(), &http.Client{Transport: bearer("k-op")}, "POST", s.admin+pdp.PathTry, body)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	var got pdp.Tried
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"decision", "allow", "context"} {
		if _, is := members[name]; is {
			t.Errorf("the answer to a try has the member %q: %s", name, text)
		}
	}
	if !got.Try || got.Explanation.Decision || len(got.Explanation.Nearest) != 1 || got.Shadow == nil || got.Shadow.Effect != replay.EffectAllows || !got.Shadow.Explanation.Decision {
		t.Errorf("%s", text)
	}
	var line struct {
		Kind    string `json:"kind"`
		Caller  string `json:"caller"`
		Request struct {
			Action  string         `json:"action"`
			By      string         `json:"by"`
			Answer  string         `json:"answer"`
			Request map[string]any `json:"request"`
		} `json:"request"`
	}
	askAs(t, "k-all", "GET", s.admin+pdp.PathLogEntries+"/"+got.By.ID, "", &line)
	if line.Kind != string(decisionlog.KindAdmin) || line.Request.Action != "try" || line.Request.By != "op" || line.Request.Answer != "deny" || line.Caller != "op" {
		t.Errorf("%+v", line)
	}
	if token := line.Request.Request["context"].(map[string]any)["token"]; token == "s3cr3t-value" {
		t.Errorf("the token of a try is in the log: %v", token)
	}
	for body, want := range map[string]int{
		`{"request":` + aliceReads + `,"by":"shadow"}`: 200, `{"request":` + aliceReads + `,"by":"other"}`: 400, `{}`: 400, `{"request":{}}`: 400, `{"request":` + aliceReads + `,"decision":true}`: 400,
	} {
		if code := askAs(t, "k-all", "POST", s.admin+pdp.PathTry, body, nil); code != want {
			t.Errorf("%s is %d, want %d", body, code, want)
		}
	}
}

// Where the log has no request, or the caller may not read it, a try begins with names that the policies
// know, of the caller's tenant.
func TestTryBeginsWithKnownNames(t *testing.T) {
	tools, err := policies.Set("agent-tools")
	if err != nil {
		t.Fatal(err)
	}
	schemaless := fstest.MapFS{"a.cedar": {Data: []byte(aliceMayRead)}, "entities.json": {Data: []byte(`[{"uid":{"type":"record","id":"r"},"attrs":{},"parents":[]}]`)}}
	tenants := fstest.MapFS{"tenants/acme/a.cedar": {Data: []byte(strings.Replace(aliceMayRead, "resource)", "resource == record::\"acme\")", 1))}, "tenants/globex/g.cedar": {Data: []byte(`@id("g") permit(principal == user::"eve", action == Action::"spy", resource == record::"secret");`)}}
	for name, c := range map[string]struct {
		store fs.FS
		key   string
		want  string
	}{
		"schema": {tools, "k-op", `"type":"tool"`}, "no schema": {schemaless, "k-all", `"id":"alice"`}, "tenant": {tenants, "k-acme", `"id":"acme"`},
		"nothing known": {fstest.MapFS{"a.cedar": {Data: []byte(`@id("a") permit(principal, action, resource);`)}}, "k-all", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, c.store); err != nil {
				t.Fatal(err)
			}
			s := start(t, pdp.Config{PolicyDir: dir, Auth: operatorKeys()})
			var got pdp.TryStart
			if code := askAs(t, c.key, "GET", s.admin+pdp.PathTry, "", &got); code != 200 || got.Example != (c.want != "") || !strings.Contains(string(got.Request), c.want) || strings.Contains(string(got.Request), "secret") {
				t.Fatalf("%d %+v", code, got)
			}
			if c.want == "" {
				return
			}
			var tried pdp.Tried
			body := fmt.Sprintf(`{"tenant":%q,"request":%s}`, got.Tenant, got.Request)
			if code := askAs(t, c.key, "POST", s.admin+pdp.PathTry, body, &tried); code != 200 || len(tried.Explanation.Unknown) != 0 {
				t.Errorf("%s: %d %+v", got.Request, code, tried.Explanation)
			}
		})
	}
}

// The test that is made of a decision or of a try passes in the policy store, and fails when the policies
// answer otherwise.
func TestMadeTests(t *testing.T) {
	dir := storeDir(t, map[string]string{"a.cedar": aliceMayRead})
	s := start(t, pdp.Config{PolicyDir: dir})
	decision := func(body string) string {
		answer, err := http.Post(s.main+authzen.PathEvaluation, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return s.admin + pdp.PathLogEntries + "/" + answer.Header.Get("Decision-Id") + "/test"
	}
	status, logged := get(t, decision(aliceReads))
	if status.StatusCode != 200 {
		t.Fatalf("%s %s", status.Status, logged)
	}
	var tried pdp.Tried
	askAs(t, "", "POST", s.admin+pdp.PathTry, `{"request":`+strings.Replace(aliceReads, "alice", "bob \\u202e: #", 1)+`}`, &tried)
	writeFile(t, filepath.Join(dir, "tests/logged.yaml"), logged)
	writeFile(t, filepath.Join(dir, "tests/tried.yaml"), tried.Test)
	_, report := get(t, s.admin+pdp.PathTests)
	if !strings.Contains(report, `"passed":2,"failed":0`) {
		t.Fatalf("%s\n%s\n%s", report, logged, tried.Test)
	}
	writeFile(t, filepath.Join(dir, "a.cedar"), `@id("read") permit(principal, action == Action::"read", resource) unless {principal == user::"alice"};`)
	if _, report := get(t, s.admin+pdp.PathTests); !strings.Contains(report, `"passed":0,"failed":2`) {
		t.Errorf("after a change: %s", report)
	}
	if status, body := get(t, decision(strings.Replace(aliceReads, `"resource"`, `"context":{"token":"s3cr3t-value"},"resource"`, 1))); status.StatusCode != 422 || !strings.Contains(body, "/context/token") {
		t.Errorf("a masked request: %s %s", status.Status, body)
	}
	if status, body := get(t, s.admin+pdp.PathLogEntries+"/0/test"); status.StatusCode != 422 {
		t.Errorf("a reload: %s %s", status.Status, body)
	}
}

// Each caller tries five times a second.
func TestTriesAreLimited(t *testing.T) {
	s := start(t, pdp.Config{Auth: operatorKeys()})
	limited := 0
	for range 20 {
		switch code := askAs(t, "k-op", "POST", s.admin+pdp.PathTry, `{"request":`+aliceReads+`}`, nil); code {
		case 429:
			limited++
		case 200:
		default:
			t.Fatal(code)
		}
	}
	if limited == 0 {
		t.Error("20 tries at once are all decided")
	}
	if code := askAs(t, "k-all", "POST", s.admin+pdp.PathTry, `{"request":`+aliceReads+`}`, nil); code != 200 {
		t.Errorf("another caller's try is %d", code)
	}
}

// A try begins with the request of a decision, for those who may read the log of its tenant.
func TestTryStartsFromADecision(t *testing.T) {
	s := start(t, pdp.Config{Auth: operatorKeys()})
	req, _ := http.NewRequestWithContext(t.Context(), "POST", s.main+authzen.PathEvaluation, strings.NewReader(strings.Replace(aliceReads, `"resource"`, `"context":{"token":"s3cr3t-value"},"resource"`, 1)))
	req.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: bearer("k-pep")}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	id := answer.Header.Get("Decision-Id")
	for _, query := range []string{"", "?from=" + id} {
		var got pdp.TryStart
		if code := askAs(t, "k-all", "GET", s.admin+pdp.PathTry+query, "", &got); code != 200 || got.From != id || !slices.Equal(got.Masked, []string{"/context/token"}) || strings.Contains(string(got.Request), "s3cr3t") {
			t.Errorf("%q: %d %+v", query, code, got)
		}
	}
	for key, want := range map[string]int{"k-op": 403, "k-acme": 404} {
		if code := askAs(t, key, "GET", s.admin+pdp.PathTry+"?from="+id, "", nil); code != want {
			t.Errorf("%s gets %d, want %d", key, code, want)
		}
	}
}
