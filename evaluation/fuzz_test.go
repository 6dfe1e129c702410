package evaluation_test

import (
	"errors"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// FuzzDecide sends any bytes for properties and context. A request that cannot
// be read is a ValidationError about the place of what cannot be read; any
// other is decided, and again in the same way.
func FuzzDecide(f *testing.F) {
	const policies = `
@id("a") permit (principal, action == Action::"read", resource)
when { principal has team && resource has owner && resource.owner == principal && context has n && context.n > 3 };
@id("b") forbid (principal, action, resource) when { resource has size && resource.size.width == 0 };
`
	stores := []string{
		strings.Replace(typed, "resource: [doc] }", "resource: [doc, user], context: { n?: Long, action?: { safe?: Bool } } }", 1) +
			"-- p.cedar --\n" + strings.ReplaceAll(policies, "resource has", "resource is doc && resource has"),
		policies + `
-- config.yaml --
parents: {team: Team}
attributes: {doc.owner: user, doc.net: ipaddr, context.at: datetime, context.action.by: user}
clock: now
-- entities.json --
[{"uid": {"type": "user", "id": "a"}, "attrs": {"name": "x"}, "parents": [{"type": "Team", "id": "t"}]}]
`,
	}
	var snapshots []compiledStore
	for _, store := range stores {
		snapshots = append(snapshots, compile(f, store))
	}
	f.Add(`{"team":"t"}`, `{"safe":true}`, `{"owner":"a","size":{"width":1}}`, `{"n":4}`)
	f.Add(`{"team":{"type":"Team","id":"t"}}`, `{"by":{"type":"user","id":"a"}}`, `{"readers":["a",{"id":"b"}],"net":"10.0.0.1/8"}`, `{"at":"2026-11-20"}`)
	f.Add(`{"a":[1,[2.5,{"b":null}]]}`, `{"\u005f_extn":1}`, `{"price":-1.5e3,"wait":"1d","marks":[{"text":"","by":"a"}]}`, `{"supported_obligations":["custom"],"approval":{}}`)
	f.Add(`[]`, `{`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"} 1")
	f.Fuzz(func(t *testing.T, subject, action, resource, context string) {
		if len(subject)+len(action)+len(resource)+len(context) > 1<<14 {
			t.Skip("longer than what is new in it")
		}
		for _, s := range snapshots {
			for _, resourceType := range []string{"doc", "user"} {
				req := &authzen.EvaluationRequest{
					Subject:  authzen.Subject{Type: "user", ID: "a", Properties: []byte(subject)},
					Action:   authzen.Action{Name: "read", Properties: []byte(action)},
					Resource: authzen.Resource{Type: resourceType, ID: "a", Properties: []byte(resource)},
					Context:  []byte(context),
				}
				out, err := s.Decide(req, environment)
				var invalid *authzen.ValidationError
				if err != nil && !errors.As(err, &invalid) {
					t.Fatalf("the error is a %T: %v", err, err)
				}
				if invalid != nil && !hasAnyPrefix(invalid.Path, "/subject/properties", "/action/properties", "/resource/properties", "/context") {
					t.Errorf("the error is about %q: %v", invalid.Path, err)
				}
				again, errAgain := s.Decide(req, environment)
				if diff := cmp.Diff(out, again); diff != "" || (err == nil) != (errAgain == nil) {
					t.Errorf("decided %v and %v, outcome (-once +again):\n%s", err, errAgain, diff)
				}
			}
		}
	})
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

// compiles compiles a store of which one file may be anything. It compiles and
// answers, or it has faults in that file, in the order of their places.
func compiles(t *testing.T, file, text string, rest snapshot.Archive) {
	defer func() {
		if p := recover(); p != nil { // and the other tests go on
			t.Errorf("%s: %v\n%s", file, p, debug.Stack())
		}
	}()
	store := with(rest, file, text)
	found := faultsOf(t, store)
	if found == nil {
		s, err := snapshot.Compile(store)
		if err != nil {
			t.Fatalf("it compiles once, and then: %v", err)
		}
		_, err = s.Decide(request(t, question(`user a`, "read", `doc 1 {"a":1}`, `{"a":[1,"x"]}`)), environment)
		var invalid *authzen.ValidationError
		if err != nil && !errors.As(err, &invalid) {
			t.Errorf("the error is a %T: %v", err, err)
		}
		return
	}
	last := strings.Count(text, "\n") + 1
	for i, fault := range found {
		if fault.Line < 0 || fault.Line > last || fault.Line > 0 && fault.Column < 1 || fault.Message == "" || rest[fault.File] == nil && fault.File != file {
			t.Errorf("fault %+v of a text of %d lines", fault, last)
		}
		if i > 0 && fault.File == found[i-1].File && fault.Line < found[i-1].Line {
			t.Errorf("%v stands behind %v", fault, found[i-1])
		}
	}
}

const fuzzSchema = `
entity Colour enum ["red"];
entity Team;
entity user in [Team] { name?: String, boss?: user };
entity doc { a?: Long, at?: datetime, r?: { b: Bool, s?: Set<String> }, c?: Colour };
action any;
action read in [any] appliesTo { principal: [user], resource: [doc], context: { a?: Set<Long> } };
`

// FuzzCompile compiles any policy text, with a schema and without.
func FuzzCompile(f *testing.F) {
	for _, text := range []string{
		crowd, erring, unruly, recorded,
		"// ünï\n@id(\"a\")\npermit (principal in Team::\"t\", action in [Action::\"any\"], resource is doc)\nwhen { resource has r.b && !resource.r.b } unless { context has a };",
		`@id("a") forbid (principal is user in Team::"t", action, resource == doc::"1") when { [1, 2].containsAll([1]) && ip("::1").isLoopback() };`,
		`@id("a") permit (principal, action, resource) when { if 1 + 2 * -3 < 4 then "a" like "*\*" else {"k": [true]}["k"].isEmpty() };`,
		`@id("a") permit (principal, action, resource) when { decimal("1.0").lessThan(decimal("2.0")) || datetime("2026-11-20") < datetime("2026-11-21") };`,
		"/* */ permit (", `@id("` + "\x00" + `") permit ((((`, "!!!!!;;;;", "@@@", `"`, `@id("a") permit (principal, action, resource) when { "\u{1F600}\q" };`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		compiles(t, "p.cedar", text, snapshot.Archive{})
		compiles(t, "p.cedar", text, snapshot.Archive{"schema.cedarschema": []byte(fuzzSchema)})
	})
}

// FuzzEntities reads any entities, with a schema and without.
func FuzzEntities(f *testing.F) {
	for _, text := range []string{
		"", "[]", "{}", "[{}]", "[null, 1]", `[{"uid": {"type": "user", "id": "a"}, "attrs": {}, "parents": []}]`,
		`[{"uid": {"__entity": {"type": "user", "id": "a"}}, "attrs": {"name": "x", "boss": {"type": "user", "id": "b"}}, "parents": [{"type": "Team", "id": "t"}], "tags": {"t": 1}}]`,
		`[{"uid": {"type": "doc", "id": "1"}, "attrs": {"a": 1, "at": {"__extn": {"fn": "datetime", "arg": "2026-11-20"}}, "r": {"b": true, "s": ["x"]}}, "parents": []}]`,
		`[{"uid": {"type": "Colour", "id": "red"}, "attrs": {}, "parents": []}, {"uid": {"type": "Action", "id": "read"}, "attrs": {}, "parents": [{"type": "Action", "id": "any"}]}]`,
		`[{"uid": {"type": "Team", "id": "a"}, "attrs": {}, "parents": [{"type": "Team", "id": "b"}]}, {"uid": {"type": "Team", "id": "b"}, "attrs": {}, "parents": [{"type": "Team", "id": "a"}]}]`,
		"[{\"uid\": {\"type\": \"user\", \"id\": \"\xff\"}", `[{"uid":{"__expr":"user::\"a\""},"attrs":{},"parents":[]}]`,
	} {
		f.Add(text)
	}
	policy := []byte(`@id("a") permit (principal in Team::"t", action, resource);`)
	f.Fuzz(func(t *testing.T, text string) {
		compiles(t, "entities.json", text, snapshot.Archive{"p.cedar": policy})
		compiles(t, "entities.json", text, snapshot.Archive{"p.cedar": policy, "schema.cedarschema": []byte(fuzzSchema)})
	})
}

// FuzzConfig reads any configuration.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		"", "# nothing\n", "clock: now\n", "a: &a [*a]\n", "- a", "on_policy_error: deny_any\nlimits: {array_elements: 3}\n",
		"type_aliases:\n  a: b\nsubject_types: [user]\nparents: {roles: Role}\nattributes:\n  doc.a.b: user\n  doc.a: ipaddr\n  context.x: decimal\n",
		"pep_authoritative: [user, doc.a]\nundeclared_attributes: drop\n", "clock: |\n  x\n---\n", "? a\n: b\n", "<<: {clock: x}\n", "limits: null",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<10 {
			t.Skip("longer than what is new in it")
		}
		compiles(t, "config.yaml", text, snapshot.Archive{"p.cedar": []byte(`@id("a") permit (principal, action, resource);`)})
	})
}

// FuzzSchema reads any schema, in both forms.
func FuzzSchema(f *testing.F) {
	for _, text := range []string{
		"", fuzzSchema, "entity a in [a]; action b in [b];", "type t = { a: t };", "namespace n { entity a; action b appliesTo { principal: a, resource: n::a }; }",
		`{}`, `{"":{"entityTypes":{"user":{"memberOfTypes":["Team"]},"Team":{}},"actions":{"read":{"appliesTo":{"principalTypes":["user"],"resourceTypes":["Team"]}}}}}`,
		`{"":{"commonTypes":{"t":{"type":"Record","attributes":{"a":{"type":"t"}}}},"entityTypes":{},"actions":{}}}`, "entity e enum [];", "entity user tags Set<String>;",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rest := snapshot.Archive{"p.cedar": []byte(`@id("a") permit (principal, action == Action::"read", resource) when { resource has a };`)}
		compiles(t, "schema.cedarschema", text, rest)
		compiles(t, "schema.json", text, rest)
	})
}
