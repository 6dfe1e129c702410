package evaluation_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// guarded is a root that forbids, and a tenant that permits everything.
const guarded = `
@id("destructive") forbid (principal, action == Action::"tool.invoke", resource is tool) when { resource.impact == "destructive" };
@id("hours") forbid (principal, action == Action::"deploy", resource) unless { context has now && context.now > datetime("2000-01-01") };
@id("admins") forbid (principal, action == Action::"admin", resource) unless { principal in Role::"platform-admin" };
@id("labels") forbid (principal, action == Action::"label", resource) when { resource.env == "prod" };
-- config.yaml --
type_aliases: {util: tool}
attributes: {context.now: datetime}
-- entities.json --
[{"uid": {"type": "tool", "id": "wipe"}, "attrs": {"impact": "destructive"}, "parents": []},
{"uid": {"type": "user", "id": "boss"}, "attrs": {}, "parents": [{"type": "Role", "id": "platform-admin"}]}]
-- tenants/evil/all.cedar --
@id("all") permit (principal, action, resource);
`

// lastCentury is when the tests of tenancy decide.
var lastCentury = snapshot.Environment{Time: time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)}

// asks makes a request of an action by alice for a resource.
func asks(subject, action, resource, context string) *authzen.EvaluationRequest {
	var out authzen.EvaluationRequest
	text := fmt.Sprintf(`{"subject":%s,"action":{"name":%q},"resource":%s,"context":%s}`, subject, action, resource, context)
	if err := authzen.Unmarshal([]byte(text), &out); err != nil {
		panic(text + ": " + err.Error())
	}
	return &out
}

// permitsFor returns what a tenant's policies decide, false for a request that
// cannot be read.
func permitsFor(t testing.TB, all *snapshot.Snapshots, tenant string, r *authzen.EvaluationRequest) bool {
	t.Helper()
	s, err := all.For(tenant)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Decide(r, lastCentury)
	return err == nil && out.Decision
}

// Each way in which a tenant's folder would lift what the root forbids is
// refused where it is written. Without the check each of them lifts it.
func TestTenantsLiftNothing(t *testing.T) {
	const (
		alice = `{"type":"user","id":"alice"}`
		wipe  = `{"type":"tool","id":"wipe"}`
	)
	for name, tt := range map[string]struct {
		files   string
		request *authzen.EvaluationRequest
		want    string
	}{
		"a type by another name": {
			"-- tenants/evil/config.yaml --\ntype_aliases: {tool: note}\n", asks(alice, "tool.invoke", wipe, `{}`),
			`tenants/evil/config.yaml:1:16: type_aliases.tool: the root uses the type tool: policy destructive (policies.cedar:2)`,
		},
		"the root's alias": {
			"-- tenants/evil/config.yaml --\ntype_aliases: {util: note}\n", asks(alice, "tool.invoke", `{"type":"util","id":"wipe"}`, `{}`),
			`tenants/evil/config.yaml:1:16: type_aliases.util: the root uses the type util: type_aliases (config.yaml)`,
		},
		"authority of PEPs": {
			"-- tenants/evil/config.yaml --\npep_authoritative: [tool.impact]\n", asks(alice, "tool.invoke", `{"type":"tool","id":"wipe","properties":{"impact":"read"}}`, `{}`),
			`tenants/evil/config.yaml:1:21: pep_authoritative.0: the root uses the type tool: policy destructive (policies.cedar:2)`,
		},
		"the type of an attribute": {
			"-- tenants/evil/config.yaml --\nattributes:\n  tool.impact: word\npep_authoritative: [tool]\n", asks(alice, "tool.invoke", `{"type":"tool","id":"wipe","properties":{"impact":"destructive"}}`, `{}`),
			`tenants/evil/config.yaml:2:3: attributes.tool.impact: the root uses the type tool: policy destructive (policies.cedar:2)`,
		},
		"the clock": {
			"-- tenants/evil/config.yaml --\nclock: other\n", asks(alice, "deploy", wipe, `{"now":"2001-01-01T00:00:00Z"}`),
			`tenants/evil/config.yaml:1:1: clock: the root uses another clock, now: clock (config.yaml)`,
		},
		"claimed parents": {
			"-- tenants/evil/config.yaml --\nparents: {groups: Role}\n", asks(`{"type":"user","id":"alice","properties":{"groups":["platform-admin"]}}`, "admin", wipe, `{}`),
			`tenants/evil/config.yaml:1:11: parents.groups: the root uses the type Role: policy admins (policies.cedar:4)`,
		},
		"types of subjects": {
			"-- tenants/evil/config.yaml --\nsubject_types: [Role, user]\n", asks(`{"type":"Role","id":"platform-admin"}`, "admin", wipe, `{}`),
			`tenants/evil/config.yaml:1:17: subject_types.0: the root uses the type Role: policy admins (policies.cedar:4)`,
		},
		"stored parents": {
			"-- tenants/evil/entities.json --\n[{\"uid\": {\"type\": \"user\", \"id\": \"mallory\"}, \"attrs\": {}, \"parents\": [{\"type\": \"Role\", \"id\": \"platform-admin\"}]}]\n",
			asks(`{"type":"user","id":"mallory"}`, "admin", wipe, `{}`),
			`tenants/evil/entities.json:1:2: user::"mallory" may not have the parent Role::"platform-admin", which the root uses: policy admins (policies.cedar:4)`,
		},
		"a stored attribute": {
			"-- tenants/evil/entities.json --\n[{\"uid\": {\"type\": \"tool\", \"id\": \"mine\"}, \"attrs\": {\"env\": \"dev\"}, \"parents\": []}]\n",
			asks(alice, "label", `{"type":"tool","id":"mine","properties":{"env":"prod"}}`, `{}`),
			`tenants/evil/entities.json:1:2: tool::"mine" may not have the attribute "env", which the root uses to forbid: policy labels (policies.cedar:5)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := guarded
			if strings.Contains(tt.files, "clock") { // with the time by the root's clock, and not the caller's
				root = strings.Replace(root, "type_aliases: {util", "clock: now\ntype_aliases: {util", 1)
			}
			before, err := snapshot.CompileStore(archive(root))
			if err != nil {
				t.Fatal(err)
			}
			if permitsFor(t, before, "evil", tt.request) {
				t.Fatal("the root does not forbid it")
			}
			_, err = snapshot.CompileStore(archive(root + tt.files))
			var found faults.List
			if !errors.As(err, &found) || !strings.HasPrefix(found[0].Error(), tt.want) {
				t.Errorf("the faults are\n%v\nand not\n%s", err, tt.want)
			}
			unchecked, err := evaluation.CompileUnchecked(archive(root + tt.files))
			if err != nil {
				t.Fatal(err)
			}
			if !permitsFor(t, unchecked, "evil", tt.request) {
				t.Error("this lifts nothing, and so shows nothing")
			}
		})
	}
}

// What else a tenant may not change, and what it may.
func TestTenancy(t *testing.T) {
	for files, want := range map[string]string{
		"-- tenants/evil/config.yaml --\ntype_aliases: {device: tool}\n":                                                                       `tenants/evil/config.yaml:1:16: type_aliases.device: the root uses the type tool`,
		"-- tenants/evil/config.yaml --\nattributes: {gadget.impact: word}\n":                                                                  `tenants/evil/config.yaml:1:14: attributes.gadget.impact: the root uses the name impact`,
		"-- tenants/evil/config.yaml --\nattributes: {context.now: Time}\n":                                                                    `tenants/evil/config.yaml:1:14: attributes.context.now: the root uses the name now`,
		"-- tenants/evil/config.yaml --\nclock: now\n":                                                                                         `tenants/evil/config.yaml:1:1: clock: the root uses the name now`,
		"-- tenants/evil/config.yaml --\nundeclared_attributes: drop\n":                                                                        `tenants/evil/config.yaml:1:1: undeclared_attributes: drop is laxer than the root's refuse`,
		"-- tenants/evil/config.yaml --\nlimits: {nested_array_elements: 65}\n":                                                                `tenants/evil/config.yaml:1:10: limits.nested_array_elements: 65 is laxer than the root's 64`,
		"-- tenants/evil/config.yaml --\ntenant_entities: {parents: [Role]}\n":                                                                 `tenants/evil/config.yaml:1:1: tenant_entities: it is the root that says`,
		"-- b.cedar --\n@id(\"b\") forbid (principal, action, resource) unless { context == {} };\n-- tenants/evil/config.yaml --\nclock: t\n": `tenants/evil/config.yaml:1:1: clock: the root uses the whole context: policy b (b.cedar:1)`,
		"-- b.cedar --\n@id(\"b\") forbid (principal, action, resource) unless { principal in resource.team };\n-- tenants/evil/entities.json --\n[{\"uid\": {\"type\": \"user\", \"id\": \"m\"}, \"attrs\": {}, \"parents\": [{\"type\": \"Team\", \"id\": \"t\"}]}]\n":             `tenants/evil/entities.json:1:2: user::"m" may not have the parent Team::"t", which the root uses: policy b (b.cedar:1)`,
		"-- b.cedar --\n@id(\"b\") forbid (principal, action, resource) unless { principal in resource.team };\n-- tenants/evil/config.yaml --\nparents: {teams: Team}\n":                                                                                                            `tenants/evil/config.yaml:1:11: parents.teams: the root uses membership in any Team`,
		"-- b.cedar --\n@id(\"b\") forbid (principal, action, resource) when { resource.hasTag(\"x\") && resource.getTag(\"x\") == 1 };\n-- tenants/evil/entities.json --\n[{\"uid\": {\"type\": \"tool\", \"id\": \"m\"}, \"attrs\": {}, \"parents\": [], \"tags\": {\"x\": 2}}]\n": `tenants/evil/entities.json:1:2: tool::"m" may not have the attribute "x"`,
		"-- b.cedar --\n@id(\"b\") @approval(\"sre\") permit (principal, action, resource);\n-- tenants/evil/config.yaml --\napproval_templates: {sre: {uses: 0}}\n":                                                                                                                 `tenants/evil/config.yaml:1:22: approval_templates.sre: the root uses the template sre: policy b (b.cedar:1)`,
	} {
		_, err := snapshot.CompileStore(archive(guarded + files))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nthe faults are\n%v\nand not\n%s", files, err, want)
		}
	}
	for _, files := range []string{
		"-- tenants/good/config.yaml --\ntype_aliases: {gizmo: gadget}\nparents: {teams: Team}\nattributes: {gadget.owner: person}\nclock: time\nsubject_types: [person]\npep_authoritative: [gadget]\nlimits: {string_bytes: 10}\nundeclared_attributes: refuse\n",
		"-- tenants/good/entities.json --\n[{\"uid\": {\"type\": \"user\", \"id\": \"m\"}, \"attrs\": {\"team\": 1}, \"parents\": [{\"type\": \"Team\", \"id\": \"t\"}]}]\n",
	} {
		if _, err := snapshot.CompileStore(archive(guarded + files)); err != nil {
			t.Errorf("%s\n%v", files, err)
		}
	}
}

// The root may let a tenant's entities be what its policies read.
func TestTenantEntities(t *testing.T) {
	const own = "-- tenants/evil/entities.json --\n" + `[{"uid": {"type": "user", "id": "m"}, "attrs": {}, "parents": [{"type": "Role", "id": "platform-admin"}]},
{"uid": {"type": "tool", "id": "mine"}, "attrs": {"env": "dev"}, "parents": []}]` + "\n"
	for entities, want := range map[string]int{
		"":                                             2,
		`{parents: ['Role::"platform-admin"']}`:        1,
		`{parents: ['Role::"other"']}`:                 2,
		`{attributes: [tool.env]}`:                     1,
		`{attributes: [user.env]}`:                     2,
		`{parents: [Role], attributes: [env]}`:         0,
		`{parents: [Role], attributes: [tool.env, x]}`: 0,
	} {
		root := strings.Replace(guarded, "type_aliases: {util", "tenant_entities: "+entities+"\ntype_aliases: {util", 1)
		if entities == "" {
			root = guarded
		}
		_, err := snapshot.CompileStore(archive(root + own))
		var found faults.List
		errors.As(err, &found)
		if len(found) != want {
			t.Errorf("%s: %v", entities, err)
		}
	}
	_, err := snapshot.CompileStore(archive(strings.Replace(guarded, "type_aliases: {util", "tenant_entities: {parents: ['a role'], atributes: [x]}\ntype_aliases: {util", 1)))
	var found faults.List
	errors.As(err, &found)
	const want = `config.yaml:1:29: tenant_entities.parents: a role is neither an entity nor an entity type (write Role::"staff" or Role)
config.yaml:1:40: unknown field "atributes" (did you mean "attributes"?)
`
	if diff := cmp.Diff(want, lines(found)); diff != "" {
		t.Error(diff)
	}
}

// A tenant's schema declares what is the tenant's, and changes nothing of what
// the root's policies read.
func TestTenantSchemas(t *testing.T) {
	const schema = `
@id("cross") forbid (principal, action, resource) when { principal.org != resource.org };
@id("safe") forbid (principal, action, resource) unless { action in Action::"safe" };
-- schema.cedarschema --
entity user {org: String};
entity doc {org: String};
action safe;
action read in [safe] appliesTo {principal: user, resource: doc};
-- tenants/acme/all.cedar --
@id("all") permit (principal, action, resource);
-- tenants/acme/schema.cedarschema --
`
	const bare = `
@id("cross") forbid (principal, action, resource) when { principal.org != resource.org };
-- tenants/acme/all.cedar --
@id("all") permit (principal, action, resource);
-- tenants/acme/schema.cedarschema --
entity user {org: ORG};
entity doc {org: ORG};
action read appliesTo {principal: user, resource: doc};
`
	for text, want := range map[string]string{
		schema + "entity note {org: String, title: decimal};\n":                                                     "",
		schema + "entity note {org: decimal};\n":                                                                    `tenants/acme/schema.cedarschema:1:1: entity note: the root uses the name org of another type: policy cross (policies.cedar:2)`,
		schema + "entity note {org: String};\naction burn in [safe] appliesTo {principal: user, resource: note};\n": `tenants/acme/schema.cedarschema:2:1: Action::"burn" may not be in Action::"safe", which the root uses: policy safe (policies.cedar:3)`,
		schema + "entity doc {org: decimal};\n":                                                                     "tenants/acme/schema.cedarschema",
		schema + "action read in [safe] appliesTo {principal: user, resource: user};\n":                             "tenants/acme/schema.cedarschema",
		strings.ReplaceAll(bare, "ORG", "String"):                                                                   "",
		strings.ReplaceAll(bare, "ORG", "decimal"):                                                                  `tenants/acme/schema.cedarschema:2:1: entity doc: the root uses the name org of another type: policy cross (policies.cedar:2)`,
		strings.ReplaceAll(bare, "ORG", "{a: decimal}"):                                                             `the root uses the name org of another type`,
	} {
		_, err := snapshot.CompileStore(archive(text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s\n%v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s\nthe faults are\n%v\nand not\n%s", text, err, want)
		}
	}
}

// An intruder makes stores of a root that forbids and a tenant that would rather
// not have it, of few names, so that they meet.
type intruder struct{ *rand.Rand }

func (g intruder) one(of ...string) string { return of[g.IntN(len(of))] }

func (g intruder) typ() string  { return g.one("user", "tool", "note", "Role", "gadget") }
func (g intruder) id() string   { return g.one("a", "b", "admin") }
func (g intruder) name() string { return g.one("impact", "env", "owner", "groups", "x") }

func (g intruder) condition() string {
	who := g.one("principal", "resource")
	name := g.name()
	return g.one(
		fmt.Sprintf(`%s is %s`, who, g.typ()),
		fmt.Sprintf(`%s in %s::%q`, who, g.typ(), g.id()),
		fmt.Sprintf(`%s.%s == %q`, who, name, g.id()),
		fmt.Sprintf(`%s has %s && %s.%s == %q`, who, name, who, name, g.id()),
		fmt.Sprintf(`principal has %s && resource has %s && principal.%s == resource.%s`, name, name, name, name),
		fmt.Sprintf(`context has %s && context.%s == %q`, name, name, g.id()),
		fmt.Sprintf(`resource has %s && principal in resource.%s`, name, name),
		`context has now && context.now < datetime("2000-01-01")`,
		`context has now && context.now > datetime("2000-01-01")`,
		fmt.Sprintf(`%s == %s::%q`, who, g.typ(), g.id()),
	)
}

func (g intruder) root() string {
	var b strings.Builder
	for i := range 1 + g.IntN(2) {
		fmt.Fprintf(&b, "@id(\"f%d\") forbid (principal, action, resource) %s { %s };\n", i, g.one("when", "unless"), g.condition())
	}
	if g.IntN(2) == 0 {
		b.WriteString("-- entities.json --\n" + g.entities("r"))
	}
	if g.IntN(3) == 0 {
		b.WriteString("-- config.yaml --\n" + g.settings())
	}
	return b.String()
}

// entities makes entities whose ids no other file has.
func (g intruder) entities(prefix string) string {
	var all []string
	for i := range 1 + g.IntN(3) {
		parents, attributes := "", ""
		if g.IntN(2) == 0 {
			parents = fmt.Sprintf(`{"type":%q,"id":%q}`, g.typ(), g.id())
		}
		if g.IntN(2) == 0 {
			attributes = fmt.Sprintf(`%q:%q`, g.name(), g.id())
		}
		all = append(all, fmt.Sprintf(`{"uid":{"type":%q,"id":"%s%d"},"attrs":{%s},"parents":[%s]}`, g.typ(), prefix, i, attributes, parents))
	}
	return "[" + strings.Join(all, ",\n") + "]\n"
}

func (g intruder) settings() string {
	var b strings.Builder
	for key, value := range map[string]string{
		"type_aliases":      fmt.Sprintf("{%s: %s}", g.typ(), g.typ()),
		"attributes":        fmt.Sprintf("{%s.%s: %s}", g.one(g.typ(), "context"), g.name(), g.one(g.typ(), "decimal", "datetime")),
		"parents":           fmt.Sprintf("{%s: %s}", g.name(), g.typ()),
		"clock":             g.one("now", "x", "other"),
		"subject_types":     fmt.Sprintf("[%s, %s]", g.typ(), g.typ()),
		"pep_authoritative": fmt.Sprintf("[%s, %s.%s]", g.typ(), g.typ(), g.name()),
	} {
		if g.IntN(6) == 0 {
			fmt.Fprintf(&b, "%s: %s\n", key, value)
		}
	}
	return b.String()
}

const tenantPermits = "-- tenants/t/all.cedar --\n@id(\"all\") permit (principal, action, resource);\n"

func (g intruder) tenant() string {
	var b strings.Builder
	b.WriteString(tenantPermits)
	if g.IntN(2) == 0 {
		b.WriteString("-- tenants/t/entities.json --\n" + g.entities("t"))
	}
	if g.IntN(2) == 0 {
		b.WriteString("-- tenants/t/config.yaml --\n" + g.settings())
	}
	return b.String()
}

func (g intruder) request() *authzen.EvaluationRequest {
	entity := func() string {
		return fmt.Sprintf(`{"type":%q,"id":%q,"properties":{%q:%q}}`, g.typ(), g.one("a", "b", "admin", "r0", "r1", "t0", "t1"), g.name(), g.id())
	}
	return asks(entity(), "read", entity(), g.one(`{}`, `{"now":"2001-01-01T00:00:00Z"}`, fmt.Sprintf(`{%q:%q}`, g.name(), g.id())))
}

// violations counts requests that a forbid of the root denies, with a tenant
// that only permits, and that are allowed with what a random tenant adds; and
// the stores that compiled.
func violations(t *testing.T, seed uint64, stores int, compile func(snapshot.Archive) (*snapshot.Snapshots, error)) (violated, compiled int) {
	g := intruder{rand.New(rand.NewPCG(seed, 1))}
	for range stores {
		root, own := g.root(), g.tenant()
		before, err := compile(archive(root + tenantPermits))
		after, errAfter := compile(archive(root + own))
		if err != nil || errAfter != nil {
			continue
		}
		compiled++
		for range 20 {
			r := g.request()
			if forbidden(before, r) && permitsFor(t, after, "t", r) {
				violated++
				if violated <= 3 {
					t.Logf("allowed although the root forbids it:\n%s%s\n%s", root, own, show(r))
				}
			}
		}
	}
	return violated, compiled
}

func show(r *authzen.EvaluationRequest) string {
	text, err := r.AppendTo(nil)
	return fmt.Sprint(string(text), err)
}

// forbidden reports whether a forbid of the root denies a request.
func forbidden(all *snapshot.Snapshots, r *authzen.EvaluationRequest) bool {
	s, err := all.For("t")
	if err != nil {
		return false
	}
	out, err := s.Decide(r, lastCentury)
	return err == nil && !out.Decision && slices.ContainsFunc(out.Policies, func(id string) bool { return strings.HasPrefix(id, "f") })
}

// Whatever a tenant adds, what a forbid of the root denies stays denied. That
// the same stores have violations without the check shows that they would be
// found.
func TestRootForbidsStayDenials(t *testing.T) {
	stores := max(2_000, *isolationCases)
	if n, compiled := violations(t, 1, stores, snapshot.CompileStore); n > 0 || compiled < stores/20 {
		t.Errorf("%d violations in %d stores", n, compiled)
	}
}

func TestRootForbidsAreLiftedUnchecked(t *testing.T) {
	if n, compiled := violations(t, 1, 600, evaluation.CompileUnchecked); n == 0 {
		t.Errorf("no violation in %d stores", compiled)
	}
}

// Where undeclared names are dropped, a schema of a tenant that leaves out what a
// forbid of the root reads does not lift the forbid: such a request is refused.
func TestTenantSchemasDropNothingForbidden(t *testing.T) {
	const (
		context = `
@id("prod") forbid (principal, action, resource) when { context has env && context.env == "prod" };
@id("suspended") forbid (principal, action, resource) when { principal has account && principal.account has suspended && principal.account.suspended };
-- config.yaml --
undeclared_attributes: drop
`
		schema = `-- schema.cedarschema --
entity user {account?: {suspended?: Bool}};
entity tool;
action read appliesTo {principal: user, resource: tool, context: {env?: String}};
`
		evil = `-- tenants/evil/all.cedar --
@id("all") permit (principal, action, resource);
-- tenants/evil/schema.cedarschema --
`
		user, agent = `{"type":"user","id":"mallory"}`, `{"type":"agent","id":"m","properties":{"account":{"suspended":true}}}`
		tool        = `{"type":"tool","id":"wipe"}`
	)
	for name, test := range map[string]struct {
		store   string
		request *authzen.EvaluationRequest
	}{
		"an action without the member": {
			context + schema + evil + "action burn appliesTo {principal: user, resource: tool};\n", asks(user, "burn", tool, `{"env":"prod"}`),
		},
		"a type without the attribute": {
			context + schema + evil + "entity agent;\naction burn appliesTo {principal: agent, resource: tool};\n", asks(agent, "burn", tool, `{}`),
		},
		"a record that is compared whole": {
			`
@id("unsafe") forbid (principal, action, resource) unless { context has cfg && context.cfg == {safe: true} };
-- config.yaml --
undeclared_attributes: drop
` + evil + "entity user;\nentity tool;\naction read appliesTo {principal: user, resource: tool, context: {cfg?: {safe: Bool}}};\n",
			asks(user, "read", tool, `{"cfg":{"safe":true,"extra":1}}`),
		},
		"a context that is compared whole": {
			`
@id("more") forbid (principal, action, resource) unless { context == {} };
-- config.yaml --
undeclared_attributes: drop
` + evil + "entity user;\nentity tool;\naction read appliesTo {principal: user, resource: tool};\n",
			asks(user, "read", tool, `{"extra":1}`),
		},
		"the only schema": {
			context + evil + "entity user;\nentity tool;\naction read appliesTo {principal: user, resource: tool};\n", asks(user, "read", tool, `{"env":"prod"}`),
		},
	} {
		unchecked, err := evaluation.CompileUnchecked(archive(test.store))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !permitsFor(t, unchecked, "evil", test.request) {
			t.Errorf("%s lifts nothing, and so shows nothing", name)
		}
		all, err := snapshot.CompileStore(archive(test.store))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if permitsFor(t, all, "evil", test.request) {
			t.Errorf("%s lifts the forbid", name)
		}
		other := *test.request
		other.Context = jsontext.Value(`{"vendor":1}`)
		other.Subject.Properties = nil
		if !strings.Contains(name, "whole") && !permitsFor(t, all, "evil", &other) {
			t.Errorf("%s: what no forbid reads is not dropped", name)
		}
	}
}
