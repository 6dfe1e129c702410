package evaluation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// byOwner is a capability that covers a request.
func byOwner() *authzen.VerifiedCapability {
	return &authzen.VerifiedCapability{
		ID: "cap_1", Issuer: &authzen.Subject{Type: "user", ID: "carol"}, Template: "owner",
		Approvers: []authzen.Subject{{Type: "user", ID: "carol"}}, Until: now.Add(time.Hour), UsesLeft: 2, Bound: "identity", Depth: 1,
	}
}

func (s compiledStore) capable(t testing.TB, body string, env snapshot.Environment) *snapshot.Outcome {
	t.Helper()
	env.Time = now
	out, err := s.Decide(request(t, body), env)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Policies find at context.capability the capability that covers the request, each member of its type.
func TestCapabilityAsFact(t *testing.T) {
	conditions := []string{
		`context.capability.id == "cap_1"`,
		`context.capability.issuer == user::"carol"`,
		`context.capability.template == "owner"`,
		`context.capability.approvers.contains(user::"carol")`,
		fmt.Sprintf(`context.capability.until == datetime("%s")`, now.Add(time.Hour).Format("2006-01-02T15:04:05Z")),
		`context.capability.uses_left == 2`,
		`context.capability.bound == "identity"`,
		`context.capability.depth == 1`,
	}
	const schema = `
-- schema.cedarschema --
entity user; entity doc;
action read appliesTo { principal: user, resource: doc, context: {
	capability?: {id: String, issuer?: user, template?: String, approvers: Set<user>, until: datetime, uses_left?: Long, bound: String, depth: Long},
} };
`
	for _, condition := range conditions {
		policy := `@id("p") permit (principal, action, resource) when { context has capability && context.capability has uses_left && context.capability has issuer && context.capability has template && ` + condition + ` };`
		for name, store := range map[string]string{"without a schema": policy, "with a schema": policy + schema} {
			s := compile(t, store)
			claim := question("user alice", "read", "doc 1", `{"capability":{"use":true}}`)
			if !s.capable(t, claim, snapshot.Environment{Capability: byOwner()}).Decision {
				t.Errorf("%s: not %s", name, condition)
			}
			if s.capable(t, claim, snapshot.Environment{}).Decision {
				t.Errorf("%s: the claim is believed: %s", name, condition)
			}
		}
	}
}

// A request that sends a fact as its claim is invalid, in every spelling of the name.
func TestCapabilityIsNoFactOfTheRequest(t *testing.T) {
	s := compile(t, `@id("p") permit (principal, action, resource) when { context has capability };`)
	for _, context := range []string{
		`{"capability":{"id":"cap_1","issuer":{"type":"user","id":"carol"}}}`,
		`{"capability":{"uses_left":3}}`,
		`{"capability":"cap_1"}`,
		`{"capability":[]}`,
		`{"capability":{"use":"true"}}`,
		`{"cap\u0061bility":{"bound":"identity"}}`,
	} {
		_, err := s.Decide(request(t, question("user alice", "read", "doc 1", context)), snapshot.Environment{Time: now})
		var invalid *authzen.ValidationError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "/context/capability") {
			t.Errorf("%s: %v", context, err)
		}
		if _, err := snapshot.CapabilityClaim([]byte(context)); !errors.As(err, &invalid) {
			t.Errorf("%s: the engine reads %v", context, err)
		}
	}
}

// A schema declares the members that it wants, with the types that the service supplies.
func TestCapabilityShapeFaults(t *testing.T) {
	for members, want := range map[string]string{
		`capability: {id: String}`:               "must be an optional record",
		`capability?: String`:                    "must be an optional record",
		`capability?: {ids: String}`:             "has no ids",
		`capability?: {until: String}`:           "capability.until is a datetime",
		`capability?: {issuer: user}`:            "make it optional",
		`capability?: {template: String}`:        "make it optional",
		`capability?: {uses_left: Long}`:         "make it optional",
		`capability?: {approvers: Set<String>}`:  "capability.approvers is an array",
		`capability?: {id: String, depth: Long}`: "",
	} {
		_, err := snapshot.Compile(archive(`@id("p") permit (principal, action, resource);
-- schema.cedarschema --
entity user; entity doc;
action read appliesTo { principal: user, resource: doc, context: {` + members + `} };
`))
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", members, got, want)
		}
	}
}

// registry answers with the same status for each question, and counts.
type registry struct {
	status authzen.CapabilityStatus
	asked  []authzen.CapabilityQuestion
	taken  int
	ended  bool // the last use was taken meanwhile
}

func (r *registry) Find(_ context.Context, q *authzen.CapabilityQuestion) (authzen.CapabilityStatus, error) {
	r.asked = append(r.asked, *q)
	status := r.status
	if status.Capability != nil {
		held := *status.Capability
		status.Capability = &held
	}
	if status.Capability != nil && q.Claim != nil && q.Claim.Use != nil && *q.Claim.Use {
		status.Consume = func() (bool, error) {
			if r.ended {
				return false, authzen.ErrCapabilityEnded
			}
			r.taken++
			return true, nil
		}
	}
	return status, nil
}

const needsCapability = `
@id("all") permit (principal, action, resource);
@id("needs") @capability("owner") forbid (principal, action, resource is tool) unless { context has capability };
-- config.yaml --
approval_templates: {owner: {}}
`

// The engine finds a capability only where a decision may depend on one, denies a presented one that
// does not stand, takes a use with a permit alone, and records all of it.
func TestCapabilities(t *testing.T) {
	const plain = `@id("all") permit (principal, action, resource);`
	const forbidding = needsCapability + `
-- more.cedar --
@id("never") forbid (principal, action, resource);
`
	rows := map[string]struct {
		store, context string
		registry       registry
		want           string // decision, denied, offered, reason
		asked, taken   int
	}{
		"a store that reads none": {store: plain, context: `{}`, want: "true"},
		"a claim of nothing":      {store: plain, context: `{"capability":{}}`, want: "true"},
		"presented, in a store that reads none": {
			store: plain, context: `{"capability":{"id":"cap_1"}}`, registry: registry{status: authzen.CapabilityStatus{Denied: authzen.CapabilityExpired}},
			want: "false expired", asked: 1,
		},
		"none":  {store: needsCapability, context: `{}`, want: "false files:read owner capability_required", asked: 1},
		"found": {store: needsCapability, context: `{}`, registry: registry{status: authzen.CapabilityStatus{Capability: byOwner()}}, want: "true", asked: 1},
		"used": {
			store: needsCapability, context: `{"capability":{"use":true}}`, registry: registry{status: authzen.CapabilityStatus{Capability: byOwner()}},
			want: "true", asked: 1, taken: 1,
		},
		"a forbid that asks for none stays": {
			store: forbidding, context: `{"capability":{"use":true}}`, registry: registry{status: authzen.CapabilityStatus{Capability: byOwner()}},
			want: "false", asked: 1,
		},
		"the last use was taken meanwhile": {
			store: needsCapability, context: `{"capability":{"use":true}}`, registry: registry{status: authzen.CapabilityStatus{Capability: byOwner()}, ended: true},
			want: "false exhausted files:read owner capability_required", asked: 1,
		},
		"the last use of the presented one was taken meanwhile": {
			store: needsCapability, context: `{"capability":{"id":"cap_1","use":true}}`, registry: registry{status: authzen.CapabilityStatus{Capability: byOwner()}, ended: true},
			want: "false exhausted", asked: 1,
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			held := row.registry
			e, l := engine(t, row.store, evaluation.Config{Capabilities: &held, CapabilityEndpoint: func(tenant string) string { return "/t" + tenant }})
			answer, err := e.Evaluate(t.Context(), evaluation.Call{}, request(t, question("agent a", "call", "tool files:read", row.context)))
			if err != nil {
				t.Fatal(err)
			}
			if got := capabilityAnswer(answer); got != row.want || len(held.asked) != row.asked || held.taken != row.taken {
				t.Errorf("%s, asked %d, taken %d; want %s, %d, %d", got, len(held.asked), held.taken, row.want, row.asked, row.taken)
			}
			replaysAlike(t, e, l)
		})
	}
}

// capabilityAnswer puts what an answer says of capabilities on a line.
func capabilityAnswer(d *authzen.Decision) string {
	parts := []string{fmt.Sprint(d.Decision)}
	if c := d.Context; c != nil {
		parts = append(parts, string(c.CapabilityDenied))
		if r := c.CapabilityRequest; r != nil {
			parts = append(parts, r.Tools[0], r.Template)
		}
		parts = append(parts, c.Reason)
	}
	return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
}

// replaysAlike replays the only entry of a log, and its result must be the same.
func replaysAlike(t *testing.T, e *evaluation.Engine, l *decisionlog.Log) {
	t.Helper()
	for _, entry := range entries(t, l) {
		if entry.Kind != decisionlog.KindEvaluation {
			continue
		}
		all, err := replay.Decisions(&entry)
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.Snapshots().For("")
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Decide(all[0].Request, all[0].Environment())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]any{all[0].Decision, all[0].Policies, all[0].Errors}, []any{out.Decision, out.Policies, out.Errors}); diff != "" {
			t.Error("the replay differs:", diff)
		}
	}
}

// A denial that two forbids determine says what each of them needs; one that needs something else
// offers nothing.
func TestCapabilityAndApproval(t *testing.T) {
	const store = `
@id("all") permit (principal, action, resource);
@id("needs") @capability("owner") forbid (principal, action, resource) unless { context has capability };
@id("level") @requestable("fulfil") forbid (principal is agent, action, resource);
-- config.yaml --
approval_templates: {owner: {}, fulfil: {}}
`
	for subject, want := range map[string]string{"agent a": "fulfil owner", "user alice": " owner"} {
		out := compile(t, store).capable(t, question(subject, "call", "tool files:read", `{}`), snapshot.Environment{})
		if got := out.Template + " " + out.Capability; out.Decision || got != want {
			t.Errorf("%s: %s, want %s", subject, got, want)
		}
	}
	out := compile(t, store+"-- more.cedar --\n@id(\"never\") forbid (principal, action, resource);\n").capable(t, question("agent a", "call", "tool files:read", `{}`), snapshot.Environment{})
	if out.Template != "" || out.Capability != "" {
		t.Errorf("a final denial offers %q, %q", out.Template, out.Capability)
	}
}

// On a store that does not read context.capability a capability changes nothing.
func TestCapabilityNeverLifts(t *testing.T) {
	s := compile(t, `
@id("all") permit (principal, action, resource) when { !(context has dry) };
@id("never") forbid (principal is agent, action, resource);
`)
	if s.ReadsCapability {
		t.Error("the store reads no capability")
	}
	for _, body := range []string{
		question("agent a", "call", "tool files:read", `{}`), question("user alice", "call", "tool files:read", `{}`),
		question("user alice", "call", "tool files:read", `{"dry":true}`),
	} {
		with, without := s.capable(t, body, snapshot.Environment{Capability: byOwner()}), s.capable(t, body, snapshot.Environment{})
		if diff := cmp.Diff(with, without); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
}

// A tool is named by the gateway's members of the context, else by the resource.
func TestToolOfRequest(t *testing.T) {
	for body, want := range map[string]string{
		question("agent a", "call", "tool files:read", `{}`):                                           "files:read",
		question("agent a", "call", "tool read", `{}`):                                                 "",
		question("agent a", "call", "doc files:read", `{}`):                                            "",
		question("agent a", "call", "doc 1", `{"gateway":{"server":"crm","tool":"create"}}`):           "crm:create",
		question("agent a", "call", "tool files:read", `{"gateway":{"server":"crm","tool":"create"}}`): "crm:create",
		question("agent a", "call", "tool files:read", `{"gateway":{"server":"crm"}}`):                 "files:read",
		question("agent a", "call", "tool files:read", `{"gateway":"crm:create"}`):                     "files:read",
		question("agent a", "call", "doc 1", `{"gateway":{"server":"a:b","tool":"create"}}`):           "",
		question("agent a", "call", "doc 1", `{"gateway":{"server":"crm","tool":7}}`):                  "",
	} {
		if got, ok := request(t, body).Tool(); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

// Before policies are loaded there is no revision.
func TestRevisionOfTenant(t *testing.T) {
	e := evaluation.NewEngine(openLog(t, t.TempDir(), decisionlog.Config{}), evaluation.Config{})
	if got := e.Revision(""); got != "" {
		t.Errorf("without policies: %q", got)
	}
	load(t, e, needsCapability)
	s, err := e.Snapshots().For("")
	if got := e.Revision(""); err != nil || got != s.Revision() {
		t.Errorf("%q, %v", got, err)
	}
}
