package pdp_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// capabilityStore is a store whose tools need capabilities, which olga approves, except for reading.
func capabilityStore() fstest.MapFS {
	return fstest.MapFS{
		"policies.cedar": {Data: []byte(`
@id("all") permit (principal, action == Action::"tools/call", resource is tool);
@id("needs") @capability("owner")
forbid (principal, action == Action::"tools/call", resource is tool) unless { context has capability };
@id("ask") @approval("owner")
permit (principal is agent, action == Action::"capability.request", resource is tool) when { context.duration <= 7200 };
@id("read") permit (principal is user, action == Action::"capability.request", resource == tool::"files:read");
@id("owner") permit (principal == user::"olga", action in [Action::"approval.approve", Action::"approval.deny"], resource is access_request);
@id("revoke") permit (principal == user::"olga", action == Action::"capability.revoke", resource is capability);
@id("issue") permit (principal == user::"olga", action == Action::"capability.issue", resource is capability) when { resource.duration <= 3600 };
`)},
		"config.yaml": {Data: []byte("approval_templates: {owner: {max_duration: 1h, tell_comment: true}}\n")},
	}
}

// capabilityKeys are two gateways of acme, one of globex, and olga.
func capabilityKeys() pdp.Auth {
	key := func(id, tenant string, scopes ...pdp.Scope) pdp.APIKey {
		return pdp.APIKey{ID: id, SHA256: digest("k-" + id), Grant: pdp.Grant{Tenants: []string{tenant}, Scopes: scopes}}
	}
	return pdp.Auth{APIKeys: []pdp.APIKey{key("gateway", "acme"), key("gateway-2", "acme"), key("gateway-globex", "globex"), key("olga", "acme", pdp.ScopeApprove)}}
}

// A capabilityUser asks for capabilities and calls tools, through a gateway.
type capabilityUser struct {
	*service
	t   *testing.T
	key string
}

func (u capabilityUser) call(agent, tool, request, claim string) *authzen.Decision {
	u.t.Helper()
	var d authzen.Decision
	body := fmt.Sprintf(`{"subject":{"type":"agent","id":%q},"action":{"name":"tools/call"},"resource":{"type":"tool","id":%q},"context":{"gateway":{"server":"files"},"capability":%s}}`, agent, tool, claim)
	if status := askAs(u.t, u.key, "POST", u.main+authzen.PathEvaluation, body, &d); status != 200 {
		u.t.Fatalf("evaluation of %s: %d", request, status)
	}
	return &d
}

func (u capabilityUser) ask(body string) (status int, made authzen.CapabilityResponse) {
	u.t.Helper()
	status = askAs(u.t, u.key, "POST", u.main+authzen.PathCapabilities, body, &made)
	return status, made
}

// show returns the state of a capability that is no longer pending.
func (u capabilityUser) show(id string) (made authzen.CapabilityResponse) {
	u.t.Helper()
	for range 1000 {
		if status := askAs(u.t, u.key, "GET", u.main+authzen.PathCapabilities+"/"+id, "", &made); status != 200 {
			u.t.Fatalf("show: %d", status)
		}
		if made.Capability.Status != "pending" {
			return made
		}
		time.Sleep(10 * time.Millisecond)
	}
	u.t.Fatalf("%s is pending", id)
	return made
}

func (u capabilityUser) decide(task, decision string) int {
	u.t.Helper()
	return askAs(u.t, "k-olga", "POST", u.admin+pdp.PathRequests+"/"+task+"/decision", fmt.Sprintf(`{"decision":%q,"comment":"not now"}`, decision), nil)
}

const twoTools = `{"subject":{"type":"agent","id":"a"},"tools":["files:read","files:list"],"duration":3600,"reason":"maintenance","constraints":{"maxUses":2}}`

// A denial offers a capability; a person approves it; calls of its holder use it, also over a restart,
// until its uses are spent. For others it does not exist.
func TestCapabilityThatPeopleApprove(t *testing.T) {
	c := pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys(), State: t.TempDir()}
	s := start(t, c)
	u := capabilityUser{s, t, "k-gateway"}
	denied := u.call("a", "files:read", "first", `{"use":true}`)
	if r := denied.Context.CapabilityRequest; denied.Decision || r == nil || r.Tools[0] != "files:read" || r.Endpoint != s.main+"/tenants/acme"+authzen.PathCapabilities {
		t.Fatalf("without a capability: %+v", denied.Context)
	}
	status, asked := u.ask(twoTools)
	if status != 202 || asked.Task == nil || asked.Capability.Status != "pending" {
		t.Fatalf("%d %+v", status, asked)
	}
	if u.call("a", "files:read", "pending", `{"use":true}`).Decision {
		t.Error("a pending capability is used")
	}
	if got := u.decide(asked.Task.ID, "approve"); got != 200 {
		t.Fatalf("approve: %d", got)
	}
	issued := u.show(asked.Capability.ID).Capability
	if issued.Status != "active" || issued.Issuer == nil || issued.Issuer.ID != "olga" || *issued.UsesLeft != 2 {
		t.Fatalf("%+v", issued)
	}
	id := fmt.Sprintf(`{"id":%q,"use":true}`, issued.ID)
	for name, d := range map[string]*authzen.Decision{
		"another agent":            u.call("b", "files:read", "b", id),
		"another tenant":           capabilityUser{s, t, "k-gateway-globex"}.call("a", "files:read", "globex", id),
		"another tenant's subject": capabilityUser{s, t, "k-gateway-globex"}.call("a", "files:read", "globex", `{"use":true}`),
		"another tool":             u.call("a", "files:write", "write", id),
	} {
		if d.Decision {
			t.Errorf("%s uses it", name)
		}
		if why := d.Context.CapabilityDenied; name != "another tool" && why != "" && why != authzen.CapabilityUnknown {
			t.Errorf("%s learns of it: %s", name, why)
		}
	}
	if !u.call("a", "files:read", "one", `{"use":true}`).Decision {
		t.Error("the first use is denied")
	}
	for range 5 {
		if !u.call("a", "files:list", "list", `{"use":false}`).Decision {
			t.Error("a list is denied")
		}
	}
	s.stop(t)
	u.service = start(t, c)
	if !u.call("a", "files:list", "two", id).Decision {
		t.Error("the second use is denied")
	}
	if d := u.call("a", "files:list", "three", id); d.Decision || d.Context.CapabilityDenied != authzen.CapabilityExhausted {
		t.Errorf("the third use: %+v", d.Context)
	}
	if got := askAs(t, "k-gateway-2", "GET", u.main+authzen.PathCapabilities+"/"+issued.ID, "", nil); got != 404 {
		t.Errorf("another gateway reads it: %d", got)
	}
}

// Policies decide at once where no person needs to; whatever they deny is refused, and nobody is asked.
func TestCapabilityThatPoliciesDecide(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys()})
	u := capabilityUser{s, t, "k-gateway"}
	if status, made := u.ask(`{"subject":{"type":"user","id":"u"},"tools":["files:read"],"duration":60}`); status != 201 || made.Capability.Status != "active" || made.Task != nil {
		t.Errorf("%d %+v", status, made)
	}
	for body, want := range map[string]int{
		`{"subject":{"type":"user","id":"u"},"tools":["files:read","files:write"],"duration":60}`:                                           403,
		`{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"duration":7201}`:                                                      403,
		`{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"duration":3601}`:                                                      400, // max_duration
		`{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"duration":9223372036854775807}`:                                       400,
		`{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"duration":-1}`:                                                        400,
		`{"subject":{"type":"agent","id":"a"},"tools":["*"],"duration":60}`:                                                                 400,
		`{"subject":{"type":"agent","id":"a"},"tool":["files:read"],"duration":60}`:                                                         400,
		`{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"duration":60,"constraints":{"maxuses":1}}`:                            400,
		`{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"duration":60,"constraints":{"arguments":["x"]}}`:                      400,
		until(`{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"constraints":{"validUntil":%q}}`, 3*time.Hour):                  403,
		until(`{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"duration":1800,"constraints":{"validUntil":%q}}`, -time.Minute): 400,
		until(`{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"constraints":{"validUntil":%q}}`, 90*time.Minute):               400, // max_duration
		`{"subject":{"type":"agent"},"tools":["files:read"],"duration":60}`:                                                                 400,
		`{"subject":{"type":"agent","id":"a"},"tools":["files:read","files:read"],"duration":60}`:                                           400,
		`{"subject":{"type":"agent","id":"a"},"tools":[],"duration":60}`:                                                                    400,
	} {
		if status, made := u.ask(body); status != want {
			t.Errorf("%s: %d %+v, want %d", body, status, made, want)
		}
	}
	var pending pdp.AccessRequests
	if askAs(t, "k-olga", "GET", s.admin+pdp.PathRequests, "", &pending); len(pending.Requests) > 0 {
		t.Errorf("people were asked: %+v", pending.Requests)
	}
}

// A denial of the person, and the end of a capability, take effect with the next call.
func TestCapabilityEnds(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys()})
	u := capabilityUser{s, t, "k-gateway"}
	_, refused := u.ask(twoTools)
	u.decide(refused.Task.ID, "deny")
	if got := u.show(refused.Capability.ID).Capability; got.Status != "refused" || got.Reason != "its access request is denied: not now" {
		t.Errorf("%+v", got)
	}
	_, withdrawn := u.ask(twoTools)
	if got := askAs(t, u.key, "POST", s.main+authzen.PathCapabilities+"/"+withdrawn.Capability.ID+"/revoke", `{}`, nil); got != 200 {
		t.Errorf("withdraw: %d", got)
	}
	if got := u.decide(withdrawn.Task.ID, "approve"); got != 409 {
		t.Errorf("the withdrawn request is approved: %d", got)
	}
	_, asked := u.ask(twoTools)
	u.decide(asked.Task.ID, "approve")
	u.show(asked.Capability.ID)
	if got := askAs(t, "k-olga", "POST", s.admin+pdp.PathCapabilities+"/"+asked.Capability.ID+"/revoke", `{"reason":"enough"}`, nil); got != 200 {
		t.Errorf("revoke: %d", got)
	}
	d := u.call("a", "files:read", "after", fmt.Sprintf(`{"id":%q,"use":true}`, asked.Capability.ID))
	if d.Decision || d.Context.CapabilityDenied != authzen.CapabilityRevoked {
		t.Errorf("after the revocation: %+v", d.Context)
	}
}

// The answer to a decision comes when the capability is issued or refused.
func TestDecisionWaitsForTheCapability(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys()})
	u := capabilityUser{s, t, "k-gateway"}
	for n := range 10 {
		for decision, want := range map[string]string{"approve": "active", "deny": "refused"} {
			_, asked := u.ask(twoTools)
			if got := u.decide(asked.Task.ID, decision); got != 200 {
				t.Fatalf("%s: %d", decision, got)
			}
			var shown authzen.CapabilityResponse
			if askAs(t, u.key, "GET", s.main+authzen.PathCapabilities+"/"+asked.Capability.ID, "", &shown); shown.Capability.Status != want {
				t.Errorf("round %d: after %s it is %s, want %s", n, decision, shown.Capability.Status, want)
			}
		}
	}
}

// No uses are not the same as no limit of uses: a request for 0 uses gets no unlimited
// capability.
func TestCapabilityWithoutUsesIsRefused(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys()})
	asking := start(t, pdp.Config{Policies: askingStore()})
	task := asking.submitted(t, tool("tools/call", "a", "tool", "files:read")).Task.ID
	for _, uses := range []string{"0", "-0", "null", "0.0", "-1"} {
		terms := fmt.Sprintf(`{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"duration":60,"constraints":{"maxUses":%s}}`, uses)
		if got := askAs(t, "k-gateway", "POST", s.main+authzen.PathCapabilities, terms, nil); got != 400 {
			t.Errorf("a request with %s uses: %d", uses, got)
		}
		if got := askAs(t, "k-olga", "POST", s.admin+pdp.PathCapabilities, terms, nil); got != 400 {
			t.Errorf("an issue with %s uses: %d", uses, got)
		}
		if got, _ := asking.vote(t, task, fmt.Sprintf(grantAnHour, `,"maxUses":`+uses)); got != 400 {
			t.Errorf("a decision with %s uses: %d", uses, got)
		}
	}
}

// until puts a time from now into a body.
func until(body string, in time.Duration) string {
	return fmt.Sprintf(body, time.Now().Add(in).Format(time.RFC3339))
}

// Policies see how long a capability lasts however its end is written, and an approver may bring the
// end forward.
func TestCapabilityLasts(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys()})
	u := capabilityUser{s, t, "k-gateway"}
	for body, want := range map[string]int{
		until(`{"subject":{"type":"agent","id":"a"},"tools":["files:read"],"constraints":{"validUntil":%q}}`, 300*24*time.Hour): 403,
		until(`{"subject":{"type":"agent","id":"a"},"tools":["*"],"constraints":{"validUntil":%q}}`, 30*time.Minute):            201,
		`{"subject":{"type":"agent","id":"a"},"tools":["*"],"duration":3601}`:                                                   403,
		`{"subject":{"type":"user","id":"olga"},"tools":["*"],"duration":60}`:                                                   403, // her own
		`{"subject":{"type":"agent","id":"OLGA"},"tools":["*"],"duration":60}`:                                                  403,
	} {
		if got := askAs(t, "k-olga", "POST", s.admin+pdp.PathCapabilities, body, nil); got != want {
			t.Errorf("issue %s: %d, want %d", body, got, want)
		}
	}
	_, asked := u.ask(until(`{"subject":{"type":"agent","id":"b"},"tools":["files:read"],"constraints":{"validUntil":%q}}`, 30*time.Minute))
	soon := time.Now().Add(time.Minute).UTC().Truncate(time.Second)
	vote := fmt.Sprintf(`{"decision":"approve","approved_until":%q}`, soon.Format(time.RFC3339))
	if got := askAs(t, "k-olga", "POST", s.admin+pdp.PathRequests+"/"+asked.Task.ID+"/decision", vote, nil); got != 200 {
		t.Fatalf("approve: %d", got)
	}
	if got := u.show(asked.Capability.ID).Capability; got.Status != "active" || !got.Expires.Equal(soon) {
		t.Errorf("%+v, want the end %s", got, soon)
	}
}

// All capabilities of a holder end at once, and nobody decides on a pending one afterwards.
func TestCapabilitiesOfAHolderEnd(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys()})
	u := capabilityUser{s, t, "k-gateway"}
	_, active := u.ask(twoTools)
	u.decide(active.Task.ID, "approve")
	u.show(active.Capability.ID)
	_, pending := u.ask(twoTools)
	_, other := u.ask(`{"subject":{"type":"NS::agent","id":"a:b"},"tools":["files:read"],"duration":60}`)
	if other.Capability.ID != "" {
		t.Errorf("the policies permit agents: %+v", other)
	}
	if d := u.call("a", "files:read", "without use", `{}`); d.Decision || d.Context.CapabilityDenied != authzen.CapabilityUseMissing {
		t.Errorf("a counted capability without use: %+v", d.Context)
	}
	var ended authzen.CapabilityList
	body := `{"holder":{"type":"agent","id":"a"},"reason":"compromised"}`
	if got := askAs(t, "k-olga", "POST", s.admin+pdp.PathCapabilities+"/revoke", body, &ended); got != 200 || len(ended.Capabilities) != 2 {
		t.Fatalf("%d %+v", got, ended)
	}
	if got := u.decide(pending.Task.ID, "approve"); got != 409 {
		t.Errorf("the request of an ended capability is approved: %d", got)
	}
	if u.call("a", "files:read", "after", `{"use":true}`).Decision {
		t.Error("a call after the end is permitted")
	}
	for holder, want := range map[string]int{"agent:a": 200, "agent::a": 200, "NS::agent:a:b": 200, "agent": 400, ":a": 400, "agent:": 400, "": 400} {
		if got := askAs(t, u.key, "GET", s.main+authzen.PathCapabilities+"?holder="+holder, "", nil); got != want {
			t.Errorf("holder %q: %d, want %d", holder, got, want)
		}
	}
}

// A server looks a capability up by its id. It learns nothing about one that cannot be used, is unknown
// or is another tenant's, and it takes no use.
func TestCapabilityIsLookedUp(t *testing.T) {
	s := start(t, pdp.Config{Policies: capabilityStore(), Auth: capabilityKeys()})
	u := capabilityUser{s, t, "k-gateway"}
	look := func(key, body string) (status int, got authzen.Introspection) {
		t.Helper()
		status = askAs(t, key, "POST", s.main+authzen.PathIntrospect, body, &got)
		return status, got
	}
	_, asked := u.ask(twoTools)
	id := fmt.Sprintf(`{"id":%q}`, asked.Capability.ID)
	if status, got := look(u.key, id); status != 200 || !reflect.DeepEqual(got, authzen.Introspection{}) {
		t.Errorf("a pending one: %d %+v", status, got)
	}
	u.decide(asked.Task.ID, "approve")
	issued := u.show(asked.Capability.ID).Capability
	for range 3 {
		status, got := look("k-gateway-2", id)
		if status != 200 || !got.Active || got.Holder.ID != "a" || len(got.Tools) != 2 || got.Expires != issued.Expires.Unix() || *got.UsesLeft != 2 || got.Issuer.ID != "olga" {
			t.Errorf("an active one: %d %+v", status, got)
		}
	}
	for name, test := range map[string]struct {
		key, body string
		want      int
	}{
		"another tenant's":  {"k-gateway-globex", id, 200},
		"unknown":           {u.key, `{"id":"cap_1"}`, 200},
		"no id":             {u.key, `{}`, 400},
		"an unknown member": {u.key, `{"id":"cap_1","use":true}`, 400},
		"another case":      {u.key, `{"ID":"cap_1"}`, 400},
		"another scope":     {"k-olga", id, 403},
	} {
		if status, got := look(test.key, test.body); status != test.want || !reflect.DeepEqual(got, authzen.Introspection{}) {
			t.Errorf("%s: %d %+v, want %d", name, status, got, test.want)
		}
	}
	claim := fmt.Sprintf(`{"id":%q,"use":true}`, issued.ID)
	for _, tool := range []string{"files:read", "files:list"} {
		if !u.call("a", tool, tool, claim).Decision {
			t.Errorf("%s is denied", tool)
		}
	}
	if _, got := look(u.key, id); got.Active {
		t.Errorf("without a use left: %+v", got)
	}
	_, ahead := u.ask(until(`{"subject":{"type":"user","id":"u"},"tools":["files:read"],"duration":60,"constraints":{"validFrom":%q}}`, time.Minute))
	if _, got := look(u.key, fmt.Sprintf(`{"id":%q}`, ahead.Capability.ID)); ahead.Capability.Status != "active" || got.Active {
		t.Errorf("before it begins: %+v", got)
	}
}

// A denial names the evaluation that denied as a member, also where the schema does not allow the
// question.
func TestDenialOfACapabilityNamesItsEvaluation(t *testing.T) {
	store := capabilityStore()
	store["schema.cedarschema"] = &fstest.MapFile{Data: []byte(`
entity user, agent, tool, capability;
entity access_request;
action "tools/call" appliesTo { principal: [user, agent], resource: tool, context: { capability?: { id: String } } };
action "capability.request" appliesTo { principal: [user, agent], resource: tool, context: { duration: Long, bound: String, depth: Long, gateway?: { server: String } } };
action "approval.approve", "approval.deny" appliesTo { principal: user, resource: access_request };
action "capability.issue", "capability.revoke" appliesTo { principal: user, resource: capability };
`)}
	store["policies.cedar"].Data = []byte(`@id("read") permit (principal is user, action == Action::"capability.request", resource == tool::"files:read");
@id("issue") permit (principal, action == Action::"capability.issue", resource);`)
	s := start(t, pdp.Config{Policies: store})
	for body, want := range map[string]string{
		`{"subject":{"type":"user","id":"u"},"tools":["files:read","files:write"],"duration":60}`:                                      "files:write is denied by evaluation ",
		`{"subject":{"type":"user","id":"u"},"tools":["files:read","files:list"],"duration":60,"constraints":{"arguments":{"a":"b"}}}`: "files:read does not fit the schema: /context/arguments is not declared",
	} {
		response, text := post(t, http.DefaultClient, s.main+authzen.PathCapabilities, body)
		var p authzen.CapabilityProblem
		if err := json.Unmarshal([]byte(text), &p); err != nil || response.StatusCode != http.StatusForbidden || !strings.Contains(p.Detail, want) || p.EvaluationID == "" {
			t.Errorf("%s: %s %s", body, response.Status, text)
		}
	}
	// A capability of a holder who can ask nothing would be worthless.
	for holder, want := range map[string]int{"agent": http.StatusCreated, "agnet": http.StatusBadRequest, "tool": http.StatusBadRequest, "a b": http.StatusBadRequest} {
		body := fmt.Sprintf(`{"approver":{"type":"user","id":"olga"},"subject":{"type":%q,"id":"a"},"tools":["files:read"],"duration":60}`, holder)
		if response, text := post(t, http.DefaultClient, s.admin+pdp.PathCapabilities, body); response.StatusCode != want || want == http.StatusBadRequest && !strings.Contains(text, "/subject/type ") {
			t.Errorf("issued to type %q: %s %s", holder, response.Status, text)
		}
	}
}
