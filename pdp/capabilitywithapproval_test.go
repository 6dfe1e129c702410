package pdp_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// askingStore is a store in which somebody approves each call, unless the caller has a capability.
// olga grants capabilities for an hour; paul only approves.
func askingStore() fstest.MapFS {
	return fstest.MapFS{
		"policies.cedar": {Data: []byte(`
@id("ask") @approval("owner")
permit (principal, action == Action::"tools/call", resource) unless { context has capability };
@id("granted")
permit (principal, action == Action::"tools/call", resource) when { context has capability };
@id("four-eyes") @approval("pair")
permit (principal, action == Action::"tools/deploy", resource);
@id("decide")
permit (principal is user, action in [Action::"approval.approve", Action::"approval.deny", Action::"approval.revoke"], resource is access_request);
@id("revoke")
permit (principal == user::"olga", action == Action::"capability.revoke", resource is capability);
@id("issue")
permit (principal == user::"olga", action == Action::"capability.issue", resource is capability) when { resource.template == "owner" };
`)},
		"config.yaml": {Data: []byte("approval_templates: {owner: {max_duration: 1h, uses: 1}, pair: {quorum: 2}}\n")},
	}
}

// tool returns a call of a tool by an agent.
func tool(action, agent, kind, id string) string {
	return fmt.Sprintf(`{"subject":{"type":"agent","id":%q},"action":{"name":%q},"resource":{"type":%q,"id":%q},"context":{}}`, agent, action, kind, id)
}

// vote sends a decision on a task.
func (s *service) vote(t *testing.T, task, body string) (status int, r pdp.AccessRequest) {
	t.Helper()
	status = askAs(t, "", "POST", s.admin+pdp.PathRequests+"/"+task+"/decision", body, &r)
	return status, r
}

func (s *service) permits(t *testing.T, call string) bool {
	t.Helper()
	var d authzen.Decision
	if status := askAs(t, "", "POST", s.main+authzen.PathEvaluation, call, &d); status != http.StatusOK {
		t.Fatalf("evaluation: %d", status)
	}
	return d.Decision
}

const grantAnHour = `{"decision":"approve","approver":{"type":"user","id":"olga"},"comment":"the release","capability":{"duration":3600%s}}`

// Beside the approval of a call, its requester gets a capability for the same tool, until the approval
// is revoked.
func TestApproveAndGrant(t *testing.T) {
	s := start(t, pdp.Config{Policies: askingStore(), State: t.TempDir()})
	call := tool("tools/call", "a", "tool", "files:read")
	task := s.submitted(t, call)
	status, r := s.vote(t, task.Task.ID, fmt.Sprintf(grantAnHour, ""))
	if status != http.StatusOK || r.Status != authzen.TaskApproved || r.Capability == nil {
		t.Fatalf("%d %+v", status, r)
	}
	given, approved := r.Capability, r.Items[0].Approval.ID
	if given.Status != "active" || given.Holder.ID != "a" || given.Tools[0] != "files:read" || given.Issuer.ID != "olga" ||
		given.Task != task.Task.ID || given.Template != "owner" || given.ApprovalIDs[0] != approved || given.Expires.Sub(given.Created) != time.Hour {
		t.Fatalf("%+v", given)
	}
	for range 3 {
		if !s.permits(t, call) {
			t.Error("a later call of the tool is denied")
		}
	}
	for _, other := range []string{tool("tools/call", "a", "tool", "files:write"), tool("tools/call", "b", "tool", "files:read")} {
		if s.permits(t, other) {
			t.Errorf("%s is permitted", other)
		}
	}
	var own authzen.CapabilityList
	if askAs(t, "", "GET", s.main+authzen.PathCapabilities+"?holder=agent:a", "", &own); len(own.Capabilities) != 1 || own.Capabilities[0].ID != given.ID {
		t.Errorf("the PEP that asked sees %+v", own)
	}
	if status := askAs(t, "", "POST", s.admin+pdp.PathApprovals+"/"+approved+"/revoke", `{"approver":{"type":"user","id":"paul"},"reason":"enough"}`, nil); status != http.StatusOK {
		t.Fatalf("revoke: %d", status)
	}
	if s.permits(t, call) {
		t.Error("a call after the revocation is permitted")
	}
	_, text := get(t, s.admin+pdp.PathLogExport+"?kind=capability")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], fmt.Sprintf(`"approval_ids":[%q]`, approved)) || !strings.Contains(lines[0], task.Task.ID) || !strings.Contains(lines[1], `"event":"revoke"`) {
		t.Errorf("the log has %s", lines)
	}
}

// Whoever ends a capability that was granted beside an approval ends the approval as well, unless it has
// been used: the approved call does not run again.
func TestRevocationEndsTheApprovalBeside(t *testing.T) {
	const olga = `{"approver":{"type":"user","id":"olga"},"reason":"enough"%s}`
	for _, test := range []struct {
		name, path, body string
		used             bool
	}{
		{name: "by its id", path: pdp.PathCapabilities + "/%s/revoke", body: fmt.Sprintf(olga, "")},
		{name: "by its holder", path: pdp.PathCapabilities + "/revoke", body: fmt.Sprintf(olga, `,"holder":{"type":"agent","id":"a"}`)},
		{name: "by its PEP", path: authzen.PathCapabilities + "/%s/revoke", body: `{"comment":"done"}`},
		{name: "after the use", path: pdp.PathCapabilities + "/%s/revoke", body: fmt.Sprintf(olga, ""), used: true},
	} {
		s := start(t, pdp.Config{Policies: askingStore()})
		call := tool("tools/call", "a", "tool", "files:read")
		task := s.submitted(t, call).Task.ID
		_, r := s.vote(t, task, fmt.Sprintf(grantAnHour, ""))
		approved := r.Items[0].Approval.ID
		again := strings.Replace(call, `"context":{}`, fmt.Sprintf(`"context":{"approval":{"id":%q}}`, approved), 1)
		first := call // runs on the capability
		if test.used {
			first = again
		}
		if !s.permits(t, first) {
			t.Fatalf("%s: the call is denied", test.name)
		}
		url := s.admin
		if strings.HasPrefix(test.path, authzen.PathCapabilities) {
			url = s.main
		}
		if strings.Contains(test.path, "%s") {
			test.path = fmt.Sprintf(test.path, r.Capability.ID)
		}
		var answer authzen.CapabilityResponse
		if status := askAs(t, "", "POST", url+test.path, test.body, &answer); status != http.StatusOK {
			t.Fatalf("%s: revoke: %d", test.name, status)
		}
		if s.permits(t, again) {
			t.Errorf("%s: the approved call runs again", test.name)
		}
		if want := !test.used && test.name == "by its id"; (len(answer.RevokedApprovals) == 1 && answer.RevokedApprovals[0] == approved) != want {
			t.Errorf("%s: the answer has the approvals %v", test.name, answer.RevokedApprovals)
		}
		if _, text := get(t, s.admin+pdp.PathLogExport+"?kind=approval"); strings.Contains(text, `"event":"revoke"`) == test.used {
			t.Errorf("%s: the log has %s", test.name, text)
		}
	}
}

// A capability that the approver may not grant, or that does not fit the request, refuses the whole
// decision: nothing is decided.
func TestApproveAndGrantIsRefused(t *testing.T) {
	s := start(t, pdp.Config{Policies: askingStore()})
	task := s.submitted(t, tool("tools/call", "a", "tool", "files:read")).Task.ID
	document := s.submitted(t, tool("tools/call", "a", "document", "files:read")).Task.ID
	pair := s.submitted(t, tool("tools/deploy", "a", "tool", "files:read")).Task.ID
	for _, test := range []struct {
		name, task, body string
		want             int
	}{
		{"a denial", task, `{"decision":"deny","approver":{"type":"user","id":"olga"},"capability":{"duration":60}}`, 400},
		{"no duration", task, `{"decision":"approve","approver":{"type":"user","id":"olga"},"capability":{}}`, 400},
		{"a negative duration", task, `{"decision":"approve","approver":{"type":"user","id":"olga"},"capability":{"duration":-1}}`, 400},
		{"an overflow", task, `{"decision":"approve","approver":{"type":"user","id":"olga"},"capability":{"duration":9223372036854775807}}`, 400},
		{"longer than the template", task, `{"decision":"approve","approver":{"type":"user","id":"olga"},"capability":{"duration":3601}}`, 400},
		{"negative uses", task, fmt.Sprintf(grantAnHour, `,"maxUses":-1`), 400},
		{"an unknown member", task, fmt.Sprintf(grantAnHour, `,"max_uses":1`), 400},
		{"an unknown member in another case", task, fmt.Sprintf(grantAnHour, `,"maxuses":1`), 400},
		{"an approver who may not grant", task, `{"decision":"approve","approver":{"type":"user","id":"paul"},"capability":{"duration":60}}`, 403},
		{"the requester", task, `{"decision":"approve","approver":{"type":"user","id":"A"},"capability":{"duration":60}}`, 403},
		{"no tool", document, fmt.Sprintf(grantAnHour, ""), 400},
		{"a vote that does not suffice", pair, fmt.Sprintf(grantAnHour, ""), 400},
	} {
		if got, _ := s.vote(t, test.task, test.body); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
		var r pdp.AccessRequest
		if askAs(t, "", "GET", s.admin+pdp.PathRequests+"/"+test.task, "", &r); r.Status != authzen.TaskPending || len(r.Items[0].Votes) > 0 {
			t.Errorf("%s: it is %s, with %d votes", test.name, r.Status, len(r.Items[0].Votes))
		}
	}
	var list authzen.CapabilityList
	if askAs(t, "", "GET", s.admin+pdp.PathCapabilities, "", &list); len(list.Capabilities) > 0 {
		t.Errorf("there are capabilities: %+v", list)
	}
	if got, r := s.vote(t, task, fmt.Sprintf(grantAnHour, `,"maxUses":2`)); got != 200 || r.Capability == nil || *r.Capability.UsesLeft != 2 {
		t.Errorf("in the end: %d %+v", got, r.Capability)
	}
}

// Whenever the service ends, no capability is without its approval.
func TestNoCapabilityWithoutItsApproval(t *testing.T) {
	var images []string
	var h *harmed
	armed := false
	h = harm(t, askingStore(), decisionlog.Config{OnCommit: func(int, time.Duration) {
		if armed {
			images = append(images, leftBy(t, h.state))
		}
	}})
	s := &service{main: h.main.URL, admin: h.admin.URL}
	task := s.submitted(t, tool("tools/call", "a", "tool", "files:read")).Task.ID
	armed = true
	if status, _ := s.vote(t, task, fmt.Sprintf(grantAnHour, "")); status != http.StatusOK {
		t.Fatalf("approve: %d", status)
	}
	armed = false
	var got []string
	for _, image := range images {
		got = append(got, decidedIn(t, image, task))
	}
	// The questions about the capability and the vote, then the two records.
	if want := "pending 0, pending 0, approved 0, approved 1"; strings.Join(got, ", ") != want {
		t.Errorf("ended after each entry of the log: %s, want %s", strings.Join(got, ", "), want)
	}
}

// leftBy returns a copy of what a process leaves in its state directory if it ends now.
func leftBy(t *testing.T, state string) string {
	t.Helper()
	image := t.TempDir()
	for _, name := range []string{approval.FileName, capability.FileName} {
		text, err := os.ReadFile(filepath.Join(state, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(image, name), text, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
	return image
}

// decidedIn returns the status of a task after a restart, and the number of active capabilities.
func decidedIn(t *testing.T, state, task string) string {
	t.Helper()
	approvals, err := approval.Open(state, approval.Config{Record: func(context.Context, approval.Record) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer approvals.Close()
	capabilities, err := capability.Open(state, capability.Config{Record: func(context.Context, capability.Record) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer capabilities.Close()
	r, err := approvals.Request(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range capabilities.List(t.Context(), capability.Query{State: capability.Active}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return fmt.Sprintf("%s %d", r.Status(), n)
}

// A request that asks for a capability gets that one and no other.
func TestNoGrantBesideARequestForACapability(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore()})
	var asked authzen.CapabilityResponse
	if status := askAs(t, "", "POST", s.main+authzen.PathCapabilities, twoTools, &asked); status != http.StatusAccepted {
		t.Fatalf("%d", status)
	}
	if status, _ := s.vote(t, asked.Task.ID, `{"decision":"approve","approver":{"type":"user","id":"olga"},"capability":{"duration":60}}`); status != http.StatusBadRequest {
		t.Errorf("%d", status)
	}
	status, r := s.vote(t, asked.Task.ID, `{"decision":"approve","approver":{"type":"user","id":"olga"}}`)
	if status != http.StatusOK {
		t.Fatalf("approve: %d", status)
	}
	issued := capabilityUser{s, t, ""}.show(asked.Capability.ID)
	if issued.Capability.Status != "active" {
		t.Fatalf("%+v", issued)
	}
	text, err := json.Marshal(r)
	if err != nil || strings.Contains(string(text), `"capability":{`) {
		t.Errorf("%s %v", text, err)
	}
}

// An approver changes an argument that the template names. The approval is for the call with the new
// arguments only, and policies decide on it anew.
func TestApproveWithOtherArguments(t *testing.T) {
	store := askingStore()
	store["config.yaml"].Data = []byte("approval_templates: {owner: {edit: [target]}}\n")
	store["policies.cedar"].Data = append(store["policies.cedar"].Data, []byte(`
@id("never") forbid (principal, action == Action::"tools/call", resource) when { context has arguments && context.arguments has target && context.arguments.target == "moon" };
`)...)
	s := start(t, pdp.Config{Policies: store})
	const call = `{"subject":{"type":"agent","id":"a"},"action":{"name":"tools/call"},"resource":{"type":"tool","id":"ci:deploy"},"context":{"gateway":{"server":"ci","tool":"deploy","call_digest":"sha256:%d"},"arguments":{"target":%q}%s}}`
	ask := func(target string) string { return s.submitted(t, fmt.Sprintf(call, 1, target, "")).Task.ID }
	body := func(values string) string {
		return `{"decision":"approve","approver":{"type":"user","id":"olga"},"arguments":` + values + `}`
	}
	task := ask("production")
	for _, refused := range []string{`{"force":true}`, `{"Target":"staging"}`, `["staging"]`, `null`} {
		if got, _ := s.vote(t, task, body(refused)); got != http.StatusBadRequest {
			t.Errorf("%s: %d", refused, got)
		}
	}
	got, r := s.vote(t, task, body(`{"target":"staging"}`))
	if got != http.StatusOK || r.Items[0].Edit == nil || !strings.Contains(r.Summary, "staging") {
		t.Fatalf("%d %+v", got, r)
	}
	var answer authzen.TaskResponse
	if askAs(t, "", "GET", s.main+authzen.PathRequests+"/"+task, "", &answer); string(answer.Result.Arguments) != `{"target":"staging"}` {
		t.Fatalf("the PEP gets %s", answer.Result.Arguments)
	}
	claim := func(a *authzen.Approval, arguments string) string {
		said, err := client.WithArguments(a, jsontext.Value(arguments))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		return `,"approval":` + string(text)
	}
	if s.permits(t, fmt.Sprintf(call, 1, "production", claim(&answer.Result.Approval, `{"target":"production"}`))) {
		t.Error("the requested call is permitted")
	}
	if !s.permits(t, fmt.Sprintf(call, 2, "staging", claim(&answer.Result.Approval, `{"target":"staging"}`))) {
		t.Error("the edited call is denied")
	}
	moon := ask("production")
	if got, _ := s.vote(t, moon, body(`{"target":"moon"}`)); got != http.StatusOK {
		t.Fatalf("%d", got)
	}
	askAs(t, "", "GET", s.main+authzen.PathRequests+"/"+moon, "", &answer)
	if s.permits(t, fmt.Sprintf(call, 3, "moon", claim(&answer.Result.Approval, `{"target":"moon"}`))) {
		t.Error("policies do not decide on the new arguments")
	}
}
