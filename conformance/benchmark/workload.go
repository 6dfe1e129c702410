//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	users       = 3000
	teams       = 50
	requests    = 512
	seed        = 26
	toolInvoke  = "tool.invoke"
	toolInspect = "tool.describe"

	// commonPolicies concern every tool; the rest are two for each tool.
	commonPolicies = 4
	mostPayload    = 1 << 20
)

var (
	departments  = []string{"engineering", "finance", "legal", "sales", "security", "support"}
	categories   = []string{"read", "search", "write"}
	purposes     = []string{"analytics", "billing", "support", "training"}
	internalNets = netip.MustParsePrefix("10.0.0.0/8")
)

// A user is a stored principal.
type user struct {
	Teams      []string `json:"teams"`
	Department string   `json:"department"`
	Clearance  int      `json:"clearance"`
	Suspended  bool     `json:"suspended"`
}

// A tool is a stored resource. Guard is which of the three forbids it has, and
// Most the bound in it.
type tool struct {
	Team        string `json:"-"`
	Owner       string `json:"owner"`
	Category    string `json:"category"`
	Sensitivity int    `json:"sensitivity"`
	Guard       int    `json:"-"`
	Most        int    `json:"-"`
}

// A workload is a policy store with a number of policies, and requests with the
// decisions that they must get. Equal sizes have equal workloads.
type workload struct {
	Policies int
	users    map[string]user
	tools    map[string]tool
	toolIDs  []string

	Requests []request
}

// A request is an AuthZEN evaluation request.
type request struct {
	Subject  subject  `json:"subject"`
	Action   action   `json:"action"`
	Resource resource `json:"resource"`
	Context  facts    `json:"context"`
}

type subject struct {
	Type       string            `json:"type"`
	ID         string            `json:"id"`
	Properties subjectProperties `json:"properties"`
}

type subjectProperties struct {
	MFA    bool   `json:"mfa"`
	Client string `json:"client"`
}

type action struct {
	Name       string           `json:"name"`
	Properties actionProperties `json:"properties"`
}

type actionProperties struct {
	DryRun bool `json:"dry_run"`
}

type resource struct {
	Type       string             `json:"type"`
	ID         string             `json:"id,omitempty"`
	Properties resourceProperties `json:"properties,omitzero"`
}

type resourceProperties struct {
	Server       string `json:"server"`
	PayloadBytes int    `json:"payload_bytes"`
}

type facts struct {
	Risk     int    `json:"risk"`
	SourceIP string `json:"source_ip"`
	Purpose  string `json:"purpose"`
}

// newWorkload makes the workload of an even number of policies.
func newWorkload(policies int) *workload {
	random := rand.New(rand.NewPCG(seed, uint64(policies)))
	w := &workload{Policies: policies, users: map[string]user{}, tools: map[string]tool{}}
	for i := range users {
		w.users[userID(i)] = newUser(random, i)
	}
	for i := range (policies - commonPolicies) / 2 {
		w.tools[toolID(i)] = newTool(random, i)
		w.toolIDs = append(w.toolIDs, toolID(i))
	}
	for range requests {
		w.Requests = append(w.Requests, w.newRequest(random))
	}
	return w
}

func userID(i int) string { return fmt.Sprintf("user-%04d", i) }
func toolID(i int) string { return fmt.Sprintf("tool-%04d", i) }
func teamID(i int) string { return fmt.Sprintf("team-%02d", i%teams) }

func newUser(random *rand.Rand, i int) user {
	u := user{
		Teams: []string{teamID(i)}, Department: pick(random, departments),
		Clearance: 2 + random.IntN(4), Suspended: random.IntN(50) == 0,
	}
	if random.IntN(100) == 0 {
		u.Teams = append(u.Teams, "admins")
	}
	return u
}

func newTool(random *rand.Rand, i int) tool {
	return tool{
		Team: teamID(i), Owner: userID(random.IntN(users)), Category: pick(random, categories),
		Sensitivity: 1 + random.IntN(4), Guard: i % 3, Most: 50 + random.IntN(50),
	}
}

// newRequest is, four times in five, of a member of the tool's team.
func (w *workload) newRequest(random *rand.Rand) request {
	i := random.IntN(len(w.toolIDs))
	who := random.IntN(users)
	if random.IntN(5) > 0 {
		who = who/teams*teams + i%teams
	}
	name, address := toolInvoke, fmt.Sprintf("10.%d.%d.%d", random.IntN(256), random.IntN(256), 1+random.IntN(254))
	if random.IntN(8) == 0 {
		name, who = toolInspect, w.ownerOr(random, i, who)
	}
	if random.IntN(10) == 0 {
		address = fmt.Sprintf("203.0.113.%d", random.IntN(256))
	}
	return request{
		Subject:  subject{"user", userID(who), subjectProperties{random.IntN(10) > 1, "gateway-" + fmt.Sprint(random.IntN(8))}},
		Action:   action{name, actionProperties{random.IntN(10) == 0}},
		Resource: resource{"tool", toolID(i), resourceProperties{"crm-" + fmt.Sprint(i%7), random.IntN(mostPayload * 11 / 10)}},
		Context:  facts{random.IntN(101), address, pick(random, purposes)},
	}
}

// ownerOr is, in half of all cases, the owner of the tool.
func (w *workload) ownerOr(random *rand.Rand, i, who int) int {
	if random.IntN(2) == 0 {
		_, _ = fmt.Sscanf(w.tools[toolID(i)].Owner, "user-%04d", &who) // userID made it
	}
	return who
}

func pick(random *rand.Rand, from []string) string { return from[random.IntN(len(from))] }

// Allows is the decision that a request must get. It is what the policies mean,
// written a third time, in Go.
func (w *workload) Allows(r request) bool {
	u, t := w.users[r.Subject.ID], w.tools[r.Resource.ID]
	return permitted(u, t, r) && !forbidden(u, t, r)
}

func permitted(u user, t tool, r request) bool {
	switch {
	case slices.Contains(u.Teams, "admins") && r.Subject.Properties.MFA:
		return true
	case r.Action.Name == toolInspect:
		return t.Owner == r.Subject.ID
	}
	return slices.Contains(u.Teams, t.Team) && u.Clearance >= t.Sensitivity && (t.Category != "write" || r.Subject.Properties.MFA)
}

func forbidden(u user, t tool, r request) bool {
	if u.Suspended || r.Resource.Properties.PayloadBytes > mostPayload {
		return true
	}
	if r.Action.Name != toolInvoke {
		return false
	}
	switch t.Guard {
	case 0:
		return r.Context.Risk > t.Most && u.Department != "security"
	case 1:
		return !internalNets.Contains(netip.MustParseAddr(r.Context.SourceIP)) && !r.Action.Properties.DryRun
	default:
		return r.Context.Purpose == "training" && t.Sensitivity >= 3
	}
}

// Answer is the body of the answer that a request must get.
func (w *workload) Answer(r request) string { return fmt.Sprintf(`{"decision":%t}`, w.Allows(r)) }

// Write writes the policy store, and the same policies and data for OPA, to
// directories of their own.
func (w *workload) Write(cedarDir, regoDir string) error {
	return writeFiles(map[string]string{
		filepath.Join(cedarDir, "schema.cedarschema"): cedarSchema,
		filepath.Join(cedarDir, "common.cedar"):       cedarCommon,
		filepath.Join(cedarDir, "tools.cedar"):        w.cedarTools(),
		filepath.Join(cedarDir, "entities.json"):      w.cedarEntities(),
		filepath.Join(regoDir, "policy.rego"):         regoCommon + w.regoTools(),
		filepath.Join(regoDir, "data.json"):           encode(map[string]any{"users": w.users, "tools": w.tools}),
	})
}

func writeFiles(files map[string]string) error {
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// encode is for values that always have a form in JSON.
func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

const cedarSchema = `entity team;

entity user in [team] {
  department: String,
  clearance: Long,
  suspended: Bool,
  mfa?: Bool,
  client?: String,
};

entity tool {
  owner: user,
  category: String,
  sensitivity: Long,
  server?: String,
  payload_bytes?: Long,
};

action "tool.invoke", "tool.describe" appliesTo {
  principal: [user],
  resource: [tool],
  context: {
    risk: Long,
    source_ip: ipaddr,
    purpose: String,
    action?: { dry_run?: Bool },
  },
};
`

const cedarCommon = `@id("admins")
permit (principal in team::"admins", action, resource)
when { principal has mfa && principal.mfa };

@id("owners-describe")
permit (principal, action == Action::"tool.describe", resource)
when { resource.owner == principal };

@id("suspended")
forbid (principal, action, resource)
when { principal.suspended };

@id("payload-size")
forbid (principal, action, resource)
when { resource has payload_bytes && resource.payload_bytes > 1048576 };
`

func (w *workload) cedarTools() string {
	var out strings.Builder
	for _, id := range w.toolIDs {
		t := w.tools[id]
		scope := fmt.Sprintf(`action == Action::"tool.invoke", resource == tool::"%s")`, id)
		fmt.Fprintf(&out, "@id(\"%s-team\")\npermit (principal in team::\"%s\", %s\n"+
			"when { principal.clearance >= resource.sensitivity && (resource.category != \"write\" || (principal has mfa && principal.mfa)) };\n\n", id, t.Team, scope)
		fmt.Fprintf(&out, "@id(\"%s-guard\")\nforbid (principal, %s\n%s;\n\n", id, scope, t.cedarGuard())
	}
	return out.String()
}

func (t tool) cedarGuard() string {
	switch t.Guard {
	case 0:
		return fmt.Sprintf(`when { context.risk > %d && principal.department != "security" }`, t.Most)
	case 1:
		return `when { !context.source_ip.isInRange(ip("10.0.0.0/8")) }` + "\n" +
			`unless { context has action && context.action has dry_run && context.action.dry_run }`
	default:
		return `when { context.purpose == "training" && resource.sensitivity >= 3 }`
	}
}

// A cedarEntity is an entity in Cedar's JSON format.
type cedarEntity struct {
	UID     cedarUID       `json:"uid"`
	Attrs   map[string]any `json:"attrs"`
	Parents []cedarUID     `json:"parents"`
}

type cedarUID struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

func (w *workload) cedarEntities() string {
	all := []cedarEntity{{cedarUID{"team", "admins"}, map[string]any{}, []cedarUID{}}}
	for i := range teams {
		all = append(all, cedarEntity{cedarUID{"team", teamID(i)}, map[string]any{}, []cedarUID{}})
	}
	for i := range users {
		u := w.users[userID(i)]
		attrs := map[string]any{"department": u.Department, "clearance": u.Clearance, "suspended": u.Suspended}
		parents := []cedarUID{}
		for _, team := range u.Teams {
			parents = append(parents, cedarUID{"team", team})
		}
		all = append(all, cedarEntity{cedarUID{"user", userID(i)}, attrs, parents})
	}
	for _, id := range w.toolIDs {
		t := w.tools[id]
		owner := map[string]any{"__entity": cedarUID{"user", t.Owner}}
		attrs := map[string]any{"owner": owner, "category": t.Category, "sensitivity": t.Sensitivity}
		all = append(all, cedarEntity{cedarUID{"tool", id}, attrs, []cedarUID{}})
	}
	return encode(all)
}

// regoCommon answers as AuthZEN does. Every rule begins with equalities on the
// input, by which OPA indexes rules.
const regoCommon = `package authzen

default answer := {"decision": false}

answer := {"decision": true} if {
	permit
	not forbid
}

user := data.users[input.subject.id]

tool := data.tools[input.resource.id]

team_permits(team) if {
	team in user.teams
	user.clearance >= tool.sensitivity
	attended
}

attended if tool.category != "write"

attended if input.subject.properties.mfa

permit if {
	"admins" in user.teams
	input.subject.properties.mfa
}

permit if {
	input.action.name == "tool.describe"
	tool.owner == input.subject.id
}

forbid if user.suspended

forbid if input.resource.properties.payload_bytes > 1048576
`

func (w *workload) regoTools() string {
	var out strings.Builder
	for _, id := range w.toolIDs {
		t := w.tools[id]
		scope := fmt.Sprintf("\tinput.action.name == \"tool.invoke\"\n\tinput.resource.id == %q\n", id)
		fmt.Fprintf(&out, "\npermit if {\n%s\tteam_permits(%q)\n}\n", scope, t.Team)
		fmt.Fprintf(&out, "\nforbid if {\n%s%s}\n", scope, t.regoGuard())
	}
	return out.String()
}

func (t tool) regoGuard() string {
	switch t.Guard {
	case 0:
		return fmt.Sprintf("\tinput.context.risk > %d\n\tuser.department != \"security\"\n", t.Most)
	case 1:
		return "\tnot net.cidr_contains(\"10.0.0.0/8\", input.context.source_ip)\n\tnot input.action.properties.dry_run\n"
	default:
		return "\tinput.context.purpose == \"training\"\n\ttool.sensitivity >= 3\n"
	}
}
