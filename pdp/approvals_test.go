package pdp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// askAs sends a JSON body with an API key and decodes the answer.
func askAs(t *testing.T, key, method, url, body string, answer any) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer != nil && response.StatusCode < 300 {
		if err := json.Unmarshal(text, answer); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return response.StatusCode
}

// With authentication, a request belongs to its caller, the approver is the caller, and nobody
// decides for other tenants (AR-55, AR-62, AR-85, AR-86, AR-88, AR-103 in
// conformance/testdata/rows.txt).
func TestCallersDecideForTheirTenants(t *testing.T) {
	key := func(id string, tenants []string, scopes ...pdp.Scope) pdp.APIKey {
		return pdp.APIKey{ID: id, SHA256: digest("k-" + id), Grant: pdp.Grant{Tenants: tenants, Scopes: scopes}}
	}
	acme := []string{"acme"}
	s := start(t, pdp.Config{Policies: policySet(t, "agent-tools"), Auth: pdp.Auth{APIKeys: []pdp.APIKey{
		key("gateway", acme), {ID: "gateway", SHA256: digest("k-gateway-renewed"), Grant: pdp.Grant{Tenants: acme}}, key("gateway-2", acme), key("asker", acme, pdp.ScopeEvaluate),
		key("carol", acme, pdp.ScopeAdmin), key("alice", acme, pdp.ScopeAdmin), key("globex", []string{"globex"}, pdp.ScopeAdmin),
	}}})
	const call = `{"tenant_id":"acme","actor":{"actor_id":"agent-7","actor_type":"agent","roles":["tool_writer"]},"action":"tool.invoke","resource":{"type":"tool","id":"jira:create","labels":{"category":"sensitive","impact":"write"}}%s}`
	plain := fmt.Sprintf(call, "")
	submission := func(by string) string {
		t.Helper()
		var answer authzen.AuthorizeResponse
		if status := askAs(t, by, "POST", s.main+authzen.PathAuthorize, plain, &answer); status != 200 {
			t.Fatalf("authorize: %d", status)
		}
		terms, err := json.Marshal(answer.Approval)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"request":%s,"approval":%s}`, plain, terms)
	}
	body := submission("k-gateway")
	for _, test := range []struct {
		name, key, body string
		want            int
	}{
		{"without the scope", "k-asker", body, 403},
		{"what another was denied", "k-gateway-2", body, 400},
		{"for another tenant", "k-gateway", strings.Replace(body, `"acme"`, `"globex"`, 1), 403},
	} {
		if got := askAs(t, test.key, "POST", s.main+authzen.PathApprovals, test.body, nil); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
	var task authzen.TaskResponse
	if status := askAs(t, "k-gateway", "POST", s.main+authzen.PathApprovals, body, &task); status != 202 {
		t.Fatalf("submit: %d", status)
	}
	id, path := task.Task.ID, s.main+authzen.PathRequests+"/"+task.Task.ID
	admin := s.admin + pdp.PathRequests + "/" + id
	for _, test := range []struct {
		name, key, method, url, body string
		want                         int
	}{
		{"its own task", "k-gateway", "GET", path, "", 200},
		{"its own task, by another key of its", "k-gateway-renewed", "GET", path, "", 200},
		{"another's task", "k-gateway-2", "GET", path, "", 404},
		{"another cancels", "k-gateway-2", "POST", path + "/cancel", "", 404},
		{"a gateway lists", "k-gateway", "GET", s.admin + pdp.PathRequests, "", 403},
		{"a gateway approves", "k-gateway", "POST", admin + "/decision", `{"decision":"approve"}`, 403},
		{"for another tenant", "k-globex", "POST", admin + "/decision", `{"decision":"approve"}`, 404},
		{"another tenant looks", "k-globex", "GET", admin, "", 404},
		{"who may not", "k-alice", "POST", admin + "/decision", `{"decision":"approve"}`, 403},
		{"in another's name", "k-alice", "POST", admin + "/decision", `{"decision":"approve","approver":{"type":"user","id":"carol"}}`, 403},
		{"as another type", "k-carol", "POST", admin + "/decision", `{"decision":"approve","approver":{"type":"agent","id":"carol"}}`, 403},
		{"a delegation to who is no approver", "k-carol", "POST", admin + "/decision", `{"decision":"delegate","to":{"type":"agent","id":"dave"}}`, 400},
		{"a delegation that no policy permits", "k-carol", "POST", admin + "/decision", `{"decision":"delegate","to":{"type":"user","id":"dave"}}`, 403},
		{"carol", "k-carol", "POST", admin + "/decision", `{"decision":"approve"}`, 200},
		{"the task then", "k-gateway", "GET", path, "", 200},
	} {
		var answer any
		if test.name == "the task then" {
			answer = &task
		}
		if got := askAs(t, test.key, test.method, test.url, test.body, answer); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
	if task.Result == nil {
		t.Fatalf("the task is %+v", task)
	}
	again := fmt.Sprintf(call, fmt.Sprintf(`,"context":{"approval":{"id":%q}}`, task.Result.Approval.ID))
	for key, want := range map[string]bool{"k-gateway-2": false, "k-gateway": true} {
		var answer authzen.AuthorizeResponse
		askAs(t, key, "POST", s.main+authzen.PathAuthorize, again, &answer)
		if got := answer.Allow && !answer.Obligations.ApprovalRequired; got != want {
			t.Errorf("%s with the approval: %+v", key, answer)
		}
	}
	revoke := s.admin + pdp.PathApprovals + "/" + task.Result.Approval.ID + "/revoke"
	for key, want := range map[string]int{"k-globex": 404, "k-alice": 403} {
		if got := askAs(t, key, "POST", revoke, `{"reason":"r"}`, nil); got != want {
			t.Errorf("%s revokes: %d, want %d", key, got, want)
		}
	}
	staff := &staff{service: s, t: t}
	_, foreign := staff.send("k-globex", "POST", strings.TrimPrefix(revoke, s.admin), `{"reason":"r"}`)
	_, none := staff.send("k-globex", "POST", pdp.PathApprovals+"/apr_none/revoke", `{"reason":"r"}`)
	if foreign != none || !strings.Contains(none, "unknown approval") {
		t.Errorf("the approval of another tenant: %s; no approval: %s", foreign, none)
	}
	var list pdp.AccessRequests
	if askAs(t, "k-globex", "GET", s.admin+pdp.PathRequests, "", &list); len(list.Requests) != 0 {
		t.Errorf("another tenant sees %+v", list)
	}
	if askAs(t, "k-carol", "GET", s.admin+pdp.PathRequests, "", &list); len(list.Requests) != 1 || list.Requests[0].Caller != "gateway" {
		t.Errorf("carol sees %+v", list)
	}
}

// The keys in the metadata verify binding tokens and approvals (AR-4, AR-5, AR-161 in
// conformance/testdata/rows.txt). The list has no other keys: a listed key is trusted for
// approvals.
func TestMetadataLeadToTheKeys(t *testing.T) {
	s := start(t, pdp.Config{Policies: policySet(t, "agent-tools")})
	var metadata authzen.Metadata
	_, body := get(t, s.main+authzen.PathMetadata)
	if err := json.Unmarshal([]byte(body), &metadata); err != nil {
		t.Fatal(err)
	}
	response, body := get(t, metadata.JWKSURI)
	if response.StatusCode != http.StatusOK || response.Header.Get("Cache-Control") != "max-age=300" {
		t.Errorf("%s: %s, Cache-Control %q", metadata.JWKSURI, response.Status, response.Header.Get("Cache-Control"))
	}
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(body), &keys); err != nil {
		t.Fatal(err)
	}
	if len(keys.Keys) != 1 {
		t.Errorf("AR-161: a service that has just begun has %d keys", len(keys.Keys))
	}
	verify := func(token string) {
		t.Helper()
		signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
		if err != nil {
			t.Fatal(err)
		}
		found := keys.Key(signed.Signatures[0].Protected.KeyID)
		if len(found) != 1 || !found[0].IsPublic() || found[0].Use != "sig" {
			t.Fatalf("the key is %+v", found)
		}
		if _, err := signed.Verify(found[0]); err != nil {
			t.Error(err)
		}
	}
	const call = `{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"github.push_code"}`
	_, denied := post(t, http.DefaultClient, metadata.AccessEvaluationEndpoint, call+`}`)
	answers := map[string]string{"denied": denied}
	verify(filled(t, []byte("${denied/context/access_request/binding_token}"), answers))
	_, answers["task"] = post(t, http.DefaultClient, metadata.AccessRequestEndpoint, filled(t, []byte(call+`,"denial":{
		"expires_at":"${denied/context/access_request/expires_at}","evaluation_id":"${denied/context/evaluation_id}"}}`), answers))
	post(t, http.DefaultClient, s.admin+pdp.PathRequests+filled(t, []byte("/${task/task/id}/decision"), answers), `{"decision":"approve","approver":{"type":"user","id":"carol"}}`)
	_, answers["task"] = get(t, filled(t, []byte("${task/task/status_endpoint}"), answers))
	verify(filled(t, []byte("${task/result/approval/state}"), answers))
}

// submitted returns the task of a pending call.
func submitted(t *testing.T, s *service) string {
	t.Helper()
	const call = `{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"github.push_code"}`
	_, denied := post(t, http.DefaultClient, s.main+authzen.PathEvaluation, call+`}`)
	answers := map[string]string{"denied": denied}
	response, task := post(t, http.DefaultClient, s.main+authzen.PathRequests, filled(t, []byte(call+`,"denial":{
		"expires_at":"${denied/context/access_request/expires_at}","evaluation_id":"${denied/context/evaluation_id}"}}`), answers))
	if response.StatusCode != http.StatusAccepted {
		t.Fatalf("submit: %s", task)
	}
	return filled(t, []byte("${task/task/id}"), map[string]string{"task": task})
}

// The admin API refuses unknown members of a body and reports their place.
func TestAdminAPIRefusesUnknownMembers(t *testing.T) {
	s := start(t, pdp.Config{Policies: policySet(t, "agent-tools")})
	path := s.admin + pdp.PathRequests + "/" + submitted(t, s)
	verdict, revoke := path+"/decision", s.admin+pdp.PathApprovals+"/apr_1/revoke"
	const carol = `"approver":{"type":"user","id":"carol"}`
	for _, test := range []struct{ url, body, at string }{
		{verdict, `{"decision":"approve",` + carol + `,"item":[0]}`, "/item"},
		{verdict, `{"decision":"approve",` + carol + `,"items":[]}`, "/items"},
		{verdict, `{"decision":"approve",` + carol + `,"approved_untill":"2100-01-01T00:00:00Z"}`, "/approved_untill"},
		{verdict, `{"decision":"approve",` + carol + `,"content":{"modifiedTarget":"staging"}}`, "/content"},
		{verdict, `{"decision":"approve",` + carol + `,"arguments":{"branch":"main"}}`, "/arguments"},
		{verdict, `{"decision":"approve",` + carol + `,"resource":{"type":"tool","id":"other"}}`, "/resource"},
		{verdict, `{"decision":"approve",` + carol + `,"Decision":"deny"}`, "/Decision"},
		{verdict, `{"decision":"deny",` + carol + `,"decision":"approve"}`, "/decision"},
		{verdict, `{"DECISION":"approve",` + carol + `}`, "/DECISION"},
		{verdict, `{"decision":"approve","approver":{"type":"user","id":"carol","properties":{"role":"admin"}}}`, "/approver/properties"},
		{verdict, `{"decision":"approve","approver":{"type":"user","Id":"carol"}}`, "/approver/Id"},
		{verdict, `{"decision":"approve","approver":{"id":"carol"}}`, "/approver"},
		{verdict, `{"decision":"approve","approver":"carol"}`, "/approver"},
		{verdict, `{"decision":"Approve",` + carol + `}`, "/decision"},
		{verdict, `{"decision":"approve",` + carol + `} {}`, ""},
		{verdict, ``, ""},
		{revoke, `{` + carol + `,"comment":"a mistake"}`, "/comment"},
		{revoke, `{` + carol + `,"Reason":"a mistake"}`, "/Reason"},
		{s.admin + pdp.PathReload, `{"dry_run":true}`, "/dry_run"},
		{s.admin + pdp.PathLogRotateKey, `{"after":"24h"}`, "/after"},
		{s.admin + pdp.PathLogRotateKey, `[]`, ""},
	} {
		response, body := post(t, http.DefaultClient, test.url, test.body)
		if response.StatusCode != 400 || !strings.Contains(body, "the request"+test.at+" ") && !strings.Contains(body, test.at+" ") {
			t.Errorf("%s: %s %s, want 400 at %q", test.body, response.Status, body, test.at)
		}
	}
	const members = "/item is not known: there are approved_until, approver, arguments, capability, comment, decision, items, policies, sheet, to"
	if _, body := post(t, http.DefaultClient, verdict, `{"decision":"approve","item":[0]}`); !strings.Contains(body, members) {
		t.Errorf("a member that is misspelt: %s", body)
	}
	if _, body := get(t, path); !strings.Contains(body, `"status":"pending"`) || strings.Contains(body, `"votes"`) {
		t.Errorf("the request is now %s", body)
	}
	response, body := post(t, http.DefaultClient, verdict, `{"decision":"approve",`+carol+`,"comment":null,"items":[0]}`)
	if response.StatusCode != 200 || !strings.Contains(body, `"status":"approved"`) {
		t.Errorf("what is right: %s", body)
	}
	if response, _ := post(t, http.DefaultClient, s.admin+pdp.PathLogRotateKey, `{}`); response.StatusCode != 200 {
		t.Errorf("an object that says nothing: %s", response.Status)
	}
}

// A denial can be submitted immediately, in both durability modes: its Decision-ID is already known
// (AR-50 in conformance/testdata/rows.txt).
func TestDenialCanBeSubmittedAtOnce(t *testing.T) {
	for _, durability := range []decisionlog.Durability{decisionlog.Strict, decisionlog.Batched} {
		submitted(t, start(t, pdp.Config{Policies: policySet(t, "agent-tools"), Durability: durability}))
	}
}
