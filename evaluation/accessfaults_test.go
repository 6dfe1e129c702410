package evaluation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// TestAccessFaults lists mistakes in access documents. None loads, and each is told where it is.
func TestAccessFaults(t *testing.T) {
	const rule = `{"agent": "agent-a", "tools": ["read"]}`
	rules := func(mode, rules string) string { return `{"mode": "` + mode + `", "rules": [` + rules + `]}` }
	for _, test := range []struct{ document, fault string }{
		// JSON.
		{``, `1:1: is empty`},
		{`[]`, `1:1: the document must be an object`},
		{`null`, `1:1: the document must be an object`},
		{`{"mode": "open"`, `1:16: is not valid JSON: unexpected EOF`},
		{`{"mode": "open"} x`, `1:18: there is something behind the document`},
		{`{"mode": "open"}{}`, `1:17: there is something behind the document`},
		{`{"mode": "open", "mode": "open"}`, `1:18: /mode is named twice`},
		{"{\"mode\": \"open\"} // all\n", `1:18: there is something behind the document (JSON has no comments)`},
		{"{\"mode\": // all\n\"open\"}", `1:10: is not valid JSON: invalid character '/' at start of value (JSON has no comments)`},
		{"{\"mode\": \"o\xffpen\"}", `1:12: is not valid JSON: invalid UTF-8`},
		{strings.Repeat(`{"policy":`, 20), `1:81: is nested deeper than 8`},
		{`{"policy": ` + strings.Repeat("[", 1<<19), `1:19: is nested deeper than 8`},
		{strings.Repeat(" ", 1<<20+1), `1:1: is larger than 1048576 bytes`},
		{"\ufeff{\"mode\": \"open\"}", `1:1: begins with a byte order mark, which Cedar's own tools do not read (save it as UTF-8 without BOM)`},

		// The document.
		{`{}`, `1:1: the document has no policy (write {"policy": {"mode": …, "rules": […]}})`},
		{`{"polcy": {"mode": "open"}}`, `1:2: the document has no member "polcy"; known are server, type, policy (did you mean "policy"?)`},
		{`{"Policy": {"mode": "open"}}`, `1:2: the document has no member "Policy"; known are server, type, policy (did you mean "policy"?)`},
		{`{"policy": {"mode": "open"}, "mode": "open"}`, `1:30: the document has no member "mode"; known are server, type, policy`},
		{`{"policy": []}`, `1:12: the policy must be an object`},
		{`{"type": "tool_acess_policy", "policy": {"mode": "open"}}`, `1:10: type must be "tool_access_policy"`},
		{`{"kind": "system", "policy": {"mode": "open"}}`, `1:2: the document has no member "kind"; known are server, type, policy`},
		{`{"$schema": 1, "policy": {"mode": "open"}}`, `1:13: $schema must be a string`},
		{`{"schema": "x", "policy": {"mode": "open"}}`, `1:2: the document has no member "schema"; known are server, type, policy (did you mean "$schema"?)`},
		{`{"server": 1, "policy": {"mode": "open"}}`, `1:12: server must be a string`},
		{`{"server": "", "policy": {"mode": "open"}}`, `1:12: "" cannot be the name of a server: it must have 1 to 256 bytes`},
		{`{"server": "a:b", "policy": {"mode": "open"}}`, `1:12: "a:b" cannot be the name of a server`},
		{`{"server": "*", "policy": {"mode": "open"}}`, `1:12: "*" cannot be the name of a server`},
		{"{\"server\": \"f\u0456les\", \"policy\": {\"mode\": \"open\"}}", "1:12: \"f\u0456les\" cannot be the name of a server: it mixes letters that look alike"},

		// The policy.
		{`{"rules": []}`, `1:1: the policy has no mode (write one of allowlist, denylist, open, hybrid)`},
		{`{"mode": null}`, `1:10: mode must be one of allowlist, denylist, open, hybrid`},
		{`{"mode": "alowlist", "rules": []}`, `1:10: mode: "alowlist" is not one of allowlist, denylist, open, hybrid (did you mean "allowlist"?)`},
		{`{"mode": "Open"}`, `1:10: mode: "Open" is not one of allowlist, denylist, open, hybrid (did you mean "open"?)`},
		{`{"mode": "open ", "rules": []}`, `1:10: mode: "open " is not one of allowlist, denylist, open, hybrid (did you mean "open"?)`},
		{`{"mode": "open", "rule": []}`, `1:18: the document has no member "rule"; known are server, mode, default, rules (did you mean "rules"?)`},
		{`{"mode": "open", "default": "permit"}`, `1:29: default: "permit" is not one of allow, deny`},
		{`{"mode": "allowlist", "default": "allow", "rules": []}`, `1:34: mode allowlist: the default is deny, not allow (mode hybrid has either default)`},
		{`{"mode": "denylist", "default": "deny", "rules": []}`, `1:33: mode denylist: the default is allow, not deny (mode hybrid has either default)`},
		{`{"mode": "open", "default": "deny"}`, `1:29: mode open: the default is allow, not deny (mode hybrid has either default)`},
		{`{"mode": "hybrid", "rules": []}`, `1:2: mode hybrid: the policy has no default (write allow or deny)`},
		{`{"mode": "allowlist"}`, `1:1: mode allowlist: the policy has no rules (without any, write "rules": [])`},
		{`{"mode": "denylist"}`, `1:1: mode denylist: the policy has no rules (without any, write "rules": [])`},
		{`{"mode": "denylist", "rules": null}`, `1:31: rules must be an array`},
		{`{"mode": "denylist", "rules": {}}`, `1:31: rules must be an array`},
		{rules("open", rule), `1:28: mode open has no rules (mode denylist forbids some calls, mode hybrid has exceptions)`},
		{rules("allowlist", strings.Repeat(rule+", ", 1000)+rule), `1:32: there are more than 1000 rules (give groups of participants a rule, or divide the tools)`},

		// Rules.
		{rules("denylist", `"agent-a"`), `1:32: a rule must be an object`},
		{rules("denylist", "\n\t"+`{"agent": "agent-a", "tool": "*"}`),
			`2:2: the rule has no tools (write "tools": ["NAME"], or "*" for every tool of the server)` + "\n" +
				`access/files.json:2:23: a rule has no member "tool"; known are agent, tools, expires, requires_approval, requires_capability, effect (did you mean "tools"?)`},
		{rules("allowlist", `{"tools": "*"}`), `1:33: the rule has no agent (write "agent": "TYPE:ID", or "*" for everybody)`},
		{rules("allowlist", `{"agent": ["a"], "tools": "*"}`), `1:43: agent must be a string (write a rule for each agent, or for a group of them)`},
		{rules("denylist", `{"agent": "agent-*", "tools": "*"}`), `1:42: agent: "agent-*" is a pattern, and rules have none ("*" is everybody, and "TYPE:*" everybody of a type)`},
		{rules("denylist", `{"agent": "**", "tools": "*"}`), `1:42: agent: "**" is a pattern, and rules have none ("*" is everybody, and "TYPE:*" everybody of a type)`},
		{rules("denylist", `{"agent": "", "tools": "*"}`), `1:42: "" cannot be an agent: it must have 1 to 256 bytes`},
		{rules("denylist", `{"agent": "agent-a ", "tools": "*"}`), `1:42: "agent-a " cannot be an agent: it begins or ends with a blank`},
		{rules("denylist", "{\"agent\": \"\u0430gent-a\", \"tools\": \"*\"}"), "1:42: \"\u0430gent-a\" cannot be an agent: it mixes letters that look alike"},
		{rules("denylist", `{"agent": "agent\u200b-a", "tools": "*"}`), `1:42: "agent\u200b-a" cannot be an agent: it has invisible characters`},
		{rules("denylist", `{"agent": "agent\u0000", "tools": "*"}`), `1:42: "agent\x00" cannot be an agent: it has invisible characters`},
		{rules("denylist", `{"agent": "role:x", "tools": "*"}`), `1:42: agent: no participant has the type role (did you mean "Role"?)`},
		{rules("denylist", `{"agent": "1:x", "tools": "*"}`), `1:42: agent: "1" is not the name of an entity type`},
		{rules("denylist", `{"agent": "Role:*", "tools": "*"}`), `1:42: agent: Role is a type of groups, which call nothing themselves (a group is TYPE:ID)`},
		{rules("denylist", `{"agent": "a", "tools": "read"}`), `1:56: tools must be an array of names, or "*"`},
		{rules("denylist", `{"agent": "a", "tools": []}`), `1:56: tools has no names (write "*" for every tool of the server)`},
		{rules("denylist", `{"agent": "a", "tools": [1]}`), `1:57: the name of a tool must be a string`},
		{rules("denylist", `{"agent": "a", "tools": ["*"]}`), `1:57: "*" is a pattern, and rules have none ("tools": "*" is every tool of the server)`},
		{rules("denylist", `{"agent": "a", "tools": ["read_*"]}`), `1:57: "read_*" is a pattern, and rules have none ("tools": "*" is every tool of the server)`},
		{rules("denylist", `{"agent": "a", "tools": ["crm:read"]}`), `1:57: "crm:read" is a tool of another server than files (write a document for each server)`},
		{rules("denylist", `{"agent": "a", "tools": ["files:read", "read"]}`), `1:71: the tool "read" is named twice`},
		{rules("denylist", `{"agent": "a", "tools": ["rea\u202ed"]}`), `1:57: "rea\u202ed" cannot be the name of a tool: it has invisible characters`},
		{rules("denylist", `{"agent": "a", "tools": [`+strings.Repeat(`"a", `, 256)+`"b"]}`), `1:56: a rule has more than 256 tools (divide it)`},
		{rules("allowlist", `{"agent": "a", "tools": "*", "expires": "tomorrow"}`), `1:73: expires must be a time as in 2026-01-31T12:00:00Z`},
		{rules("allowlist", `{"agent": "a", "tools": "*", "expires": 1}`), `1:73: expires must be a time as in 2026-01-31T12:00:00Z`},
		{rules("allowlist", `{"agent": "a", "tools": "*", "expires": "2026-02-30T00:00:00Z"}`), `1:73: expires must be a time as in 2026-01-31T12:00:00Z`},
		{rules("allowlist", `{"agent": "a", "tools": "*", "expires": "2026-01-01T00:00:00.0001Z"}`), `1:73: expires is more exact than a millisecond`},
		{rules("allowlist", `{"agent": "a", "tools": "*", "expires": "9999-12-31T23:59:59-01:00"}`), `1:73: expires is out of range`},
		{rules("allowlist", `{"agent": "a", "tools": "*", "requires_approval": "yes"}`), `1:83: requires_approval must be true or false`},
		{rules("allowlist", `{"agent": "a", "tools": "*", "requires_approval": null}`), `1:83: requires_approval must be true or false`},
		{rules("allowlist", `{"agent": "a", "tools": "*", "Requires_Approval": true}`),
			`1:62: a rule has no member "Requires_Approval"; known are agent, tools, expires, requires_approval, requires_capability, effect (did you mean "requires_approval"?)`},
		{rules("allowlist", `{"agent": "a", "tools": "*", "effect": "permit"}`), `1:72: effect: "permit" is not one of allow, deny`},
		{rules("allowlist", `{"agent": "a", "tools": "*", "effect": "deny"}`), `1:72: mode allowlist: the effect of a rule is allow (mode hybrid has rules of both effects)`},
		{rules("denylist", `{"agent": "a", "tools": "*", "effect": "allow"}`), `1:71: mode denylist: the effect of a rule is deny (mode hybrid has rules of both effects)`},
		{rules("denylist", `{"agent": "a", "tools": "*", "requires_approval": true}`), `1:32: a rule that denies requires nothing (remove requires_approval and requires_capability)`},
		{rules("allowlist", `{"agent": "a", "tools": "*"}, {"agent": "a", "tools": ["wipe"], "requires_approval": true}`),
			`1:33: the rule permits without an approval what rule 1 requires one for, for the same agent (give the two rules different tools)`},
		{rules("allowlist", `{"agent": "a", "tools": ["wipe"], "requires_approval": true}, {"agent": "agent:*", "tools": ["wipe"]}`),
			`1:95: the rule permits without an approval what rule 0 requires one for, for the same agent (give the two rules different tools)`},
		{rules("allowlist", `{"agent": "agent:*", "tools": ["wipe"], "requires_approval": true}, {"agent": "*", "tools": "*"}`),
			`1:101: the rule permits without an approval what rule 0 requires one for, for the same agent (give the two rules different tools)`},
		{`{"mode": "hybrid", "default": "allow", "rules": [` + rule + `]}`, `1:50: the rule has no effect: the default is allow (a rule with "effect": "deny" is an exception)`},
		{`{"mode": "hybrid", "default": "allow", "rules": [{"agent": "a", "tools": "*", "requires_approval": true, "expires": "2030-01-01T00:00:00Z"}]}`,
			`1:50: after its end the rule would require nothing: the default is allow (remove expires)`},
	} {
		const rest = `-- config.yaml --
clock: now
access: {default: agent}
-- entities.json --
[{"uid": {"type": "agent", "id": "agent-a"}, "attrs": {}, "parents": [{"type": "Role", "id": "x"}]}]
`
		store := with(archive(rest), "access/files.json", test.document)
		if got, want := strings.TrimSpace(lines(faultsOf(t, store))), "access/files.json:"+test.fault; got != want {
			shown := test.document
			t.Errorf("%s\nhas the faults\n%s\nwant\n%s", shown[:min(len(shown), 200)], got, want)
		}
	}
}

// A document that is cut off anywhere does not load. So a document that is read while it is being
// written never decides.
func TestAccessTruncated(t *testing.T) {
	const document = `{"server": "files", "policy": {"mode": "denylist", "rules": [{"agent": "agent:a", "tools": ["read"]}, {"agent": "agent:b", "tools": "*"}]}}`
	for i := range len(document) {
		if faultsOf(t, archive("-- access/files.json --\n"+document[:i])) == nil {
			t.Errorf("loads: %s", document[:i])
		}
	}
	compile(t, "-- access/files.json --\n"+document)
}

// Mistakes that other files of the store reveal.
func TestAccessFaultsOfStores(t *testing.T) {
	const document = "\n-- access/files.json --\n"
	const schema = `-- schema.cedarschema --
entity Role;
entity agent in [Role];
entity doc;
entity tool;
action "call";
action "tools/call" in ["call"] appliesTo { principal: [agent], resource: [tool], context: { %s } };
action "read" appliesTo { principal: [agent], resource: [doc] };
`
	allow := func(more string) string {
		return document + `{"mode": "allowlist", "rules": [{"agent": "agent:a", "tools": ["read"]` + more + `}]}` + "\n"
	}
	for name, test := range map[string]struct{ store, fault string }{
		"an end without a clock": {
			allow(`, "expires": "2030-01-01T00:00:00Z"`),
			`access/files.json:1:84: expires: policies do not see the time (name the member of the context that holds it: clock: now in config.yaml)`,
		},
		"an id without a type": {
			document + `{"mode": "open"}` + "\n-- access/crm.json --\n" + `{"mode": "denylist", "rules": [{"agent": "a", "tools": "*"}]}`,
			`access/crm.json:1:42: agent: "a" has no type (write TYPE:ID, or set access: {default: agent} in config.yaml)`,
		},
		"two documents for a server": {
			document + `{"mode": "allowlist", "rules": []}` + "\n-- access/z.json --\n" + `{"server": "files", "policy": {"mode": "open"}}`,
			`access/z.json:1:1: access/files.json is about the server files already (a server has one document, and names of servers differ in more than case)`,
		},
		"two documents for servers that differ in case": {
			document + `{"mode": "allowlist", "rules": []}` + "\n-- access/FILES.json --\n" + `{"mode": "open"}`,
			`access/files.json:1:1: access/FILES.json is about the server files already (a server has one document, and names of servers differ in more than case)`,
		},
		"the id of another policy": {
			`@id("access/files#0") permit (principal, action, resource);` + allow(""),
			`access/files.json:1:33: @id("access/files#0") is taken by policies.cedar:1`,
		},
		"a schema without the tool": {
			allow("") + fmt.Sprintf(schema, ""),
			`schema.cedarschema:6:1: the context of Action::"tools/call" does not declare called_tool as access documents read it (declare called_tool?: String)`,
		},
		"a schema with another type": {
			allow("") + fmt.Sprintf(schema, "called_tool: String"),
			`schema.cedarschema:6:1: the context of Action::"tools/call" does not declare called_tool as access documents read it (declare called_tool?: String)`,
		},
		"a schema without the time": {
			"-- config.yaml --\nclock: now\n" + allow(`, "expires": "2030-01-01T00:00:00Z"`) + fmt.Sprintf(schema, "called_tool?: String"),
			`schema.cedarschema:6:1: the context of Action::"tools/call" does not declare now as access documents read it (declare now: datetime)`,
		},
		"a schema without capabilities": {
			allow(`, "requires_capability": true`) + fmt.Sprintf(schema, "called_tool?: String"),
			`schema.cedarschema:6:1: the context of Action::"tools/call" does not declare capability as access documents read it (declare capability?: { id: String })`,
		},
		"a schema without the type of an agent": {
			strings.Replace(allow(""), "agent:a", "agnet:a", 1) + fmt.Sprintf(schema, "called_tool?: String"),
			`access/files.json:1:43: agent: no participant has the type agnet; known are Role, agent (did you mean "agent"?)`,
		},
		"a schema in which the type is not a participant's": {
			strings.Replace(allow(""), "agent:a", "doc:a", 1) + fmt.Sprintf(schema, "called_tool?: String"),
			`access/files.json:1:43: agent: no participant has the type doc; known are Role, agent`,
		},
		"a schema without calls": {
			allow("") + "-- schema.cedarschema --\nentity agent;\naction read appliesTo { principal: [agent], resource: [agent] };\n",
			`access/files.json:1:1: the schema declares neither Action::"tools/call" nor Action::"tool.invoke", which access documents are about`,
		},
		"a setting that is misspelled": {
			"-- config.yaml --\naccess: {agent: {a: agent}}\n",
			`config.yaml:1:10: unknown field "agent" (did you mean "agents"?)`,
		},
		"a pattern in a setting": {
			"-- config.yaml --\naccess: {agents: {\"a*b\": agent}}\n",
			`config.yaml:1:19: access.agents: a*b has a * that is not at its end`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.TrimSpace(lines(faultsOf(t, archive(test.store)))); got != test.fault {
				t.Errorf("the faults are\n%s\nwant\n%s", got, test.fault)
			}
		})
	}
}

// With a schema, the documents use its group of calls, and a denial is of requests as well.
func TestAccessWithSchema(t *testing.T) {
	s := compile(t, `-- access/files.json --
{"mode": "hybrid", "default": "deny", "rules": [
  {"agent": "agent:a", "tools": "*"}, {"agent": "Role:guest", "tools": ["write"], "effect": "deny"}]}
-- schema.cedarschema --
entity Role;
entity agent in [Role];
entity tool;
type Call = { called_tool?: String, gateway?: { server: String, tool?: String } };
action "call";
action "tools/call", "mine" in ["call"] appliesTo { principal: [agent], resource: [tool], context: Call };
action "tools/request" appliesTo { principal: [agent], resource: [tool], context: Call };
-- requests.cedar --
@id("request") permit (principal, action == Action::"tools/request", resource);
-- entities.json --
[{"uid": {"type": "agent", "id": "g"}, "attrs": {}, "parents": [{"type": "Role", "id": "guest"}]}]
`)
	s.allows("agent a", "tools/call", "tool files:read")
	s.allows("agent a", "mine", "tool files:read")
	s.denies("agent g", "tools/call", "tool files:write")
	s.denies("agent g", "tools/request", "tool files:write")
	s.allows("agent g", "tools/request", "tool files:read")
	s.refuses("/context/called_tool is set by the service", "agent a", "tools/call", "tool files:read", `{"called_tool":"files:read"}`)
	if !snapshot.IsAccess("tenants/acme/access/files.json") || snapshot.IsAccess("access/entities.json") || snapshot.IsAccess("x/access/files.json") {
		t.Error("the names of documents")
	}
}

// FuzzAccessDocument holds any text against the invariant: what compiles permits a call only by its
// mode or by a rule that names the tool, and nothing crashes.
func FuzzAccessDocument(f *testing.F) {
	for _, seed := range []string{
		`{"mode": "open"}`,
		`{"server": "files", "policy": {"mode": "hybrid", "default": "deny", "rules": [{"agent": "user:*", "tools": ["a"], "effect": "deny"}]}}`,
		`{"mode": "allowlist", "rules": [{"agent": "agent-a", "tools": ["read"], "expires": "2026-01-01T00:00:00Z", "requires_approval": true}]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		store := with(archive(accessConfig), "access/files.json", document)
		if faultsOf(t, store) != nil {
			return
		}
		s, err := snapshot.Compile(store)
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Decide(request(t, question("agent unheard-of", "tools/call", "tool files:unheard-of")), environment)
		if err != nil {
			t.Fatal(err)
		}
		if out.Decision && !strings.Contains(document, "*") && !strings.Contains(document, "allow") && !strings.Contains(document, "open") && !strings.Contains(document, "deny") {
			t.Errorf("permits by %q", out.Policies)
		}
	})
}
