package evaluation_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/evaluation/lint"
	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/policies"
	"github.com/policy-service/policy-service/schemas"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// accessConfig gives the agents of ADR-003's document their types.
const accessConfig = `-- config.yaml --
clock: now
access: {agents: {"user-*": user}, default: agent}
`

// files returns a context of mcp-gateway about a tool of the server files.
func files(tool string) string {
	return fmt.Sprintf(`{"gateway":{"server":"files","tool":%q,"dialect":"default"},"supported_obligations":["custom"]}`, tool)
}

// ADR-003's own document loads as it is.
func TestAccessDocumentOfTheADR(t *testing.T) {
	const document = accessConfig + `-- access/files.json --
{"mode": "allowlist", "default": "deny", "rules": [
  {"agent": "agent-a", "tools": ["read_file", "list_files"], "expires": "2024-01-02T00:00:00Z"},
  {"agent": "user-1", "tools": "*", "requires_approval": true}]}
`
	for _, document := range []string{
		document,
		strings.Replace(document, `{"mode"`, `{"policy": {"mode"`, 1) + "}",
		strings.Replace(document, `{"mode"`, `{"type": "tool_access_policy", "policy": {"mode"`, 1) + "}",
	} {
		s := compile(t, document)
		at := func(moment string) snapshot.Environment {
			parsed, err := time.Parse(time.RFC3339, moment)
			if err != nil {
				t.Fatal(err)
			}
			return snapshot.Environment{Time: parsed}
		}
		for _, test := range []struct {
			subject, tool, moment string
			allowed               bool
			policies              []string
		}{
			{"agent agent-a", "read_file", "2024-01-01T23:59:59Z", true, []string{"access/files#0"}},
			{"agent agent-a", "read_file", "2024-01-02T00:00:00Z", false, nil},
			{"agent agent-a", "write_file", "2024-01-01T00:00:00Z", false, nil},
			{"agent agent-b", "read_file", "2024-01-01T00:00:00Z", false, nil},
			{"user agent-a", "read_file", "2024-01-01T00:00:00Z", false, nil},
			{"user user-1", "anything", "2030-01-01T00:00:00Z", true, []string{"access/files#1"}},
			{"agent user-1", "anything", "2030-01-01T00:00:00Z", false, nil},
		} {
			out, err := s.Decide(request(t, question(test.subject, "tools/call", "tool files:"+test.tool, files(test.tool))), at(test.moment))
			if err != nil {
				t.Fatal(err)
			}
			if out.Decision != test.allowed || !slices.Equal(out.Policies, test.policies) {
				t.Errorf("%+v: %v by %q", test, out.Decision, out.Policies)
			}
			if test.subject == "user user-1" && (len(out.Obligations) != 1 || out.Template != "access-files") {
				t.Errorf("%+v needs no approval: %+v", test, out)
			}
		}
	}
}

// A document decides on a tool, however the request names it, and on nothing else.
func TestAccessUnderEveryMapping(t *testing.T) {
	s := compile(t, accessConfig+`-- access/files.json --
{"mode": "allowlist", "rules": [{"agent": "agent-a", "tools": ["read"]}]}
`)
	const context = `{"gateway":{"server":"files","tool":"read"}}`
	for _, action := range []string{"tools/call", "tool.invoke"} {
		s.allows("agent agent-a", action, "tool files:read")
		s.allows("agent agent-a", action, "account 1", context)
		s.allows("agent agent-a", action, "tool anything", context)
		s.denies("agent agent-a", action, "tool files:write")
		s.denies("agent agent-a", action, "tool read")
		s.denies("agent agent-a", action, "account files:read")
		s.denies("agent agent-a", action, "tool files:read", `{"gateway":{"server":"files","tool":"write"}}`)
		s.denies("agent agent-a", action, "tool files:read", `{"gateway":{"server":"crm","tool":"read"}}`)
		s.denies("agent agent-a", action, "tool files:read:more")
		s.denies("agent agent-a", action, "tool x", `{"gateway":{"server":"files:read","tool":"x"}}`)
	}
	s.denies("agent agent-a", "tools/list", "tool files:read", context)
	s.refuses("/context/called_tool is set by the service", "agent agent-a", "tools/call", "tool files:write", `{"called_tool":"files:read"}`)
	s.denies("agent agent-a", "tools/call", "tool files:write", `{"called_tool":null}`)

	// Without documents, the name is anybody's.
	s = compile(t, `@id("p") permit (principal, action, resource) when { context.called_tool == "mine" };`)
	s.allows("agent agent-a", "tools/call", "tool files:write", `{"called_tool":"mine"}`)
}

// A type that has an alias is no way around a rule that denies.
func TestAccessUnderAliases(t *testing.T) {
	s := compile(t, `@id("all") permit (principal, action, resource is tool);
@id("all, too") permit (principal, action, resource is MCP::tool);
-- config.yaml --
type_aliases: {mcp_tool: tool, tool: "MCP::tool"}
-- access/files.json --
{"mode": "hybrid", "default": "deny", "rules": [{"agent": "*", "tools": ["wipe"], "effect": "deny"}]}
`)
	for _, of := range []string{"mcp_tool", "tool"} {
		s.allows("agent a", "tools/call", of+" files:read")
		s.denies("agent a", "tools/call", of+" files:wipe")
	}
}

// TestAccessModes shows each mode with each kind of rule.
func TestAccessModes(t *testing.T) {
	const entities = `-- entities.json --
[{"uid": {"type": "agent", "id": "agent-r"}, "attrs": {}, "parents": [{"type": "Level", "id": "restricted"}]}]
`
	for name, test := range map[string]struct {
		document        string
		allowed, denied []string // SUBJECT TOOL
	}{
		"an allowlist permits what it lists": {
			`{"mode": "allowlist", "rules": [{"agent": "agent-a", "tools": ["read"]}, {"agent": "agent:agent-b", "tools": "*"}, {"agent": "user:*", "tools": ["read"]}]}`,
			[]string{"agent-a read", "agent-b read", "agent-b write"}, []string{"agent-a write", "agent-c read", "agent-r read"},
		},
		"an empty allowlist permits nothing": {
			`{"mode": "allowlist", "rules": []}`, nil, []string{"agent-a read"},
		},
		"a denylist permits what it does not list": {
			`{"mode": "denylist", "rules": [{"agent": "agent-a", "tools": ["write"]}, {"agent": "Level:restricted", "tools": "*"}]}`,
			[]string{"agent-a read", "agent-c write"}, []string{"agent-a write", "agent-r read"},
		},
		"open permits everything": {
			`{"mode": "open"}`, []string{"agent-a read", "agent-r write"}, nil,
		},
		"a hybrid that denies has exceptions, and denials win": {
			`{"mode": "hybrid", "default": "deny", "rules": [{"agent": "*", "tools": ["read"]}, {"agent": "agent-a", "tools": "*", "effect": "deny"}]}`,
			[]string{"agent-c read", "agent-r read"}, []string{"agent-a read", "agent-c write"},
		},
		"a hybrid that allows has exceptions": {
			`{"mode": "hybrid", "default": "allow", "rules": [{"agent": "*", "tools": ["wipe"], "effect": "deny"}]}`,
			[]string{"agent-a read"}, []string{"agent-a wipe"},
		},
		"a rule ends": {
			`{"mode": "allowlist", "rules": [{"agent": "agent-a", "tools": ["read"], "expires": "1969-12-31T23:59:59.999Z"}, {"agent": "agent-b", "tools": ["read"], "expires": "2999-01-01T01:00:00+01:00"}]}`,
			[]string{"agent-b read"}, []string{"agent-a read"},
		},
		"the default of a hybrid is permitted, but not what needs an approval": {
			`{"mode": "hybrid", "default": "allow", "rules": [{"agent": "*", "tools": ["write"], "requires_approval": true}]}`,
			[]string{"agent-a read"}, []string{"agent-a write"},
		},
		"nor what needs a capability": {
			`{"mode": "hybrid", "default": "allow", "rules": [{"agent": "*", "tools": ["write"], "requires_capability": true}]}`,
			[]string{"agent-a read"}, []string{"agent-a write"},
		},
		"a requirement is not lifted by another rule": {
			`{"mode": "allowlist", "rules": [{"agent": "*", "tools": "*"}, {"agent": "agent-a", "tools": ["write"], "requires_capability": true}]}`,
			[]string{"agent-a read", "agent-b write"}, []string{"agent-a write"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fitsAccessSchema(t, test.document)
			s := compile(t, accessConfig+entities+"-- access/files.json --\n"+test.document)
			for _, call := range test.allowed {
				agent, tool, _ := strings.Cut(call, " ")
				s.allows("agent "+agent, "tools/call", "tool files:"+tool)
			}
			for _, call := range test.denied {
				agent, tool, _ := strings.Cut(call, " ")
				s.denies("agent "+agent, "tools/call", "tool files:"+tool)
			}
			s.denies("agent agent-a", "tools/call", "tool crm:read")
		})
	}
}

// fitsAccessSchema checks that the JSON Schema for editors accepts a document that loads.
func fitsAccessSchema(t *testing.T, document string) {
	t.Helper()
	text, err := schemas.StoreSchema("access")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("access.json", schema); err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.MustCompile("access.json").Validate(value); err != nil {
		t.Errorf("%s: %v", document, err)
	}
}

// What a rule requires is offered in the denial, and fulfilled by nothing else.
func TestAccessRequirements(t *testing.T) {
	const document = `-- access/files.json --
{"mode": "hybrid", "default": "DEFAULT", "rules": [
  {"agent": "*", "tools": ["read"], "requires_capability": true},
  {"agent": "*", "tools": ["write"], "requires_approval": true},
  {"agent": "*", "tools": ["wipe"], "requires_approval": true, "requires_capability": true}]}
`
	capability := &authzen.VerifiedCapability{ID: "cap_1", Until: time.Unix(1<<40, 0), Bound: "identity"}
	approval := &authzen.VerifiedApproval{Template: "access-files", Until: time.Unix(1<<40, 0)}
	other := &authzen.VerifiedApproval{Template: "access-other", Until: time.Unix(1<<40, 0)}
	for _, preset := range []string{"allow", "deny"} {
		s := compile(t, accessConfig+strings.Replace(document, "DEFAULT", preset, 1))
		for _, test := range []struct {
			tool       string
			approval   *authzen.VerifiedApproval
			capability *authzen.VerifiedCapability
			runs       bool
			asks       string // templates of the offers
		}{
			{"read", nil, nil, false, "capability access-files"},
			{"read", approval, nil, false, "capability access-files"},
			{"read", nil, capability, true, ""},
			{"write", nil, nil, false, "approval access-files"},
			{"write", other, nil, false, "approval access-files"},
			{"write", nil, capability, false, "approval access-files"},
			{"write", approval, nil, true, ""},
			{"wipe", approval, nil, false, "capability access-files"},
			{"wipe", nil, capability, false, "approval access-files"},
			{"wipe", approval, capability, true, ""},
		} {
			out, err := s.Decide(request(t, question("agent agent-a", "tools/call", "tool files:"+test.tool, files(test.tool))),
				snapshot.Environment{Approval: test.approval, Capability: test.capability})
			if err != nil {
				t.Fatal(err)
			}
			asks := ""
			if out.Capability != "" {
				asks = "capability " + out.Capability
			} else if out.Template != "" {
				asks = "approval " + out.Template
			}
			if runs := out.Decision && len(out.Obligations) == 0; runs != test.runs || asks != test.asks {
				t.Errorf("default %s, %s: runs %v and asks for %q, want %v and %q (%q)", preset, test.tool, runs, asks, test.runs, test.asks, out.Policies)
			}
		}
	}
}

// A tenant's document never widens what a forbid of the root forbids, is about its own tenant alone,
// and does not change what the root's policies and documents mean.
func TestAccessOfTenants(t *testing.T) {
	const root = `
@id("no-wipe") forbid (principal, action, resource == tool::"files:wipe");
` + accessConfig + `-- access/files.json --
{"mode": "hybrid", "default": "deny", "rules": [
  {"agent": "agent-a", "tools": ["read"]},
  {"agent": "*", "tools": ["delete"], "effect": "deny"}]}
-- access/crm.json --
{"mode": "allowlist", "rules": [{"agent": "agent-a", "tools": ["read"]}]}
`
	store := compileStore(t, root+`-- tenants/evil/access/files.json --
{"mode": "open"}
-- tenants/evil/access/tenants-good.json --
{"server": "good", "policy": {"mode": "open"}}
-- tenants/evil/config.yaml --
access: {agents: {"agent-a": user}, default: user}
-- tenants/good/access/mail.json --
{"mode": "open"}
`)
	evil, good := store("evil"), store("good")
	for _, tool := range []string{"files:wipe", "files:delete"} {
		evil.denies("agent agent-a", "tools/call", "tool "+tool)
	}
	evil.allows("agent anybody", "tools/call", "tool files:read") // the root does not forbid it
	evil.allows("agent agent-a", "tools/call", "tool crm:read")   // the root's bare ids keep their type
	evil.denies("user agent-a", "tools/call", "tool crm:read")
	evil.denies("agent agent-a", "tools/call", "tool mail:send")
	good.allows("agent anybody", "tools/call", "tool mail:send")
	good.denies("agent anybody", "tools/call", "tool files:read")
	good.denies("agent anybody", "tools/call", "tool good:read")
	out := evil.decide(question("agent anybody", "tools/call", "tool files:read"))
	if !slices.Equal(out.Policies, []string{"tenants/evil/access/files#default"}) {
		t.Errorf("policies %q", out.Policies)
	}
}

// Where the root's policies read context.called_tool from requests, no tenant has the service set it.
func TestAccessOfTenantsTakesNoName(t *testing.T) {
	for _, root := range []string{
		`@id("f") forbid (principal, action, resource) unless { context has called_tool && context.called_tool == "safe" };`,
		`@id("f") forbid (principal, action, resource) unless { context == {} };`,
	} {
		store := archive("\n" + root + "\n-- tenants/evil/access/files.json --\n{\"mode\": \"open\"}\n")
		_, err := snapshot.CompileStore(store)
		if err == nil || !strings.Contains(err.Error(), "tenants/evil/access/files.json:1:1: access documents set context.called_tool") {
			t.Errorf("%s\nis compiled with the error %v", root, err)
		}
	}
}

// A search finds the tools that a document permits, and no others.
func TestAccessSearch(t *testing.T) {
	s := compile(t, accessConfig+`-- access/files.json --
{"mode": "allowlist", "rules": [{"agent": "agent-a", "tools": ["read", "list"]}]}
-- entities.json --
[{"uid": {"type": "tool", "id": "files:read"}, "attrs": {}, "parents": []},
 {"uid": {"type": "tool", "id": "files:write"}, "attrs": {}, "parents": []},
 {"uid": {"type": "tool", "id": "files:list"}, "attrs": {}, "parents": []},
 {"uid": {"type": "agent", "id": "agent-a"}, "attrs": {}, "parents": []},
 {"uid": {"type": "agent", "id": "agent-b"}, "attrs": {}, "parents": []}]
`)
	found := func(q snapshot.SearchQuery) (names []string) {
		t.Helper()
		candidates, err := s.SearchCandidates(&q, snapshot.Environment{})
		if err != nil {
			t.Fatal(err)
		}
		page, err := s.Search(t.Context(), candidates, 0, snapshot.SearchLimits{Results: 100, Bytes: 1 << 20, Candidates: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Results {
			names = append(names, r.Name)
		}
		return names
	}
	ask := func(kind, subject, resource, context string) snapshot.SearchQuery {
		q := snapshot.SearchQuery{For: kind, Request: authzen.EvaluationRequest{
			Subject: authzen.Subject{Type: "agent", ID: subject}, Action: authzen.Action{Name: "tools/call"}, Resource: authzen.Resource{Type: "tool", ID: resource},
		}}
		if context != "" {
			q.Request.Context = jsontext.Value(context)
		}
		return q
	}
	for _, test := range []struct {
		query snapshot.SearchQuery
		want  []string
	}{
		{ask(snapshot.ForResource, "agent-a", "", ""), []string{"files:list", "files:read"}},
		{ask(snapshot.ForResource, "agent-b", "", ""), nil},
		{ask(snapshot.ForResource, "agent-a", "", files("write")), nil},
		{ask(snapshot.ForSubject, "", "files:read", ""), []string{"agent-a"}},
		{ask(snapshot.ForSubject, "", "files:write", ""), nil},
		{ask(snapshot.ForAction, "agent-a", "files:read", ""), []string{"tool.invoke", "tools/call"}},
	} {
		if got := found(test.query); !slices.Equal(got, test.want) {
			t.Errorf("%s search for %+v finds %q, want %q", test.query.For, test.query.Request, got, test.want)
		}
	}
}

// A masked name of a server or tool prevents a replay if a rule depends on it.
func TestAccessReplayOfMasked(t *testing.T) {
	s := compile(t, accessConfig+`-- access/files.json --
{"mode": "allowlist", "rules": [{"agent": "agent-a", "tools": ["read"]}]}
`)
	masked := request(t, question("agent agent-a", "tools/call", "tool x", `{"gateway":{"server":"files","tool":"***","iss":"***"}}`))
	for pointer, policy := range map[string]string{"/context/gateway/tool": "access/files#0", "/context/gateway": "access/files#0", "/context/other": ""} {
		hidden := replay.HiddenFrom(s.Snapshot, &replay.Logged{Request: masked, Masked: []string{pointer}})
		if (hidden == nil) != (policy == "") || hidden != nil && hidden.Policy != policy {
			t.Errorf("%s: %v, want policy %q", pointer, hidden, policy)
		}
	}
}

// Everything that names policies names the rules, with their lines.
func TestAccessRulesAreNamed(t *testing.T) {
	s := compile(t, accessConfig+`-- access/files.json --
{"mode": "hybrid", "default": "deny", "rules": [
  {"agent": "agent-a", "tools": ["read"]},

  {"agent": "agent-a", "tools": ["write"],
   "requires_capability": true}]}
`)
	var sources []string
	for _, source := range explain.Sources(s.Snapshot) {
		sources = append(sources, fmt.Sprintf("%s:%d %s %s", source.File, source.Line, source.Effect, source.Policy))
		for _, condition := range source.Conditions {
			if condition.Line != source.Line {
				t.Errorf("a condition of %s is in line %d", source.Policy, condition.Line)
			}
		}
		if !strings.Contains(source.Text, `@id("`+source.Policy+`")`) {
			t.Errorf("the text of %s is %s", source.Policy, source.Text)
		}
	}
	want := []string{"access/files.json:2 permit access/files#0", "access/files.json:4 permit access/files#1", "access/files.json:4 forbid access/files#1.capability"}
	if !slices.Equal(sources, want) {
		t.Errorf("sources %q, want %q", sources, want)
	}
	e, err := explain.Explain(s.Snapshot, request(t, question("agent agent-a", "tools/call", "tool files:write")), snapshot.Environment{})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := e.Text(&text); err != nil || !strings.Contains(text.String(), "access/files.json:4: forbid access/files#1.capability") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// A misspelled name is a warning where another name is known.
func TestAccessWarnings(t *testing.T) {
	all, err := snapshot.CompileStore(archive(accessConfig + `-- access/files.json --
{"mode": "allowlist", "rules": [
  {"agent": "agent-aa", "tools": ["raed"]}]}
-- access/Files.json --
{"server": "filse", "policy": {"mode": "open"}}
-- entities.json --
[{"uid": {"type": "tool", "id": "files:read"}, "attrs": {}, "parents": []},
 {"uid": {"type": "agent", "id": "agent-a"}, "attrs": {}, "parents": []}]
`))
	if err != nil {
		t.Fatal(err)
	}
	got := lines(lint.Warnings(all))
	want := `access/Files.json:1:1: the document is about the server filse, of which no entity or test has a tool (did you mean "files"?)
access/files.json:2:3: policy access/files#0 names agent::"agent-aa", which no entity, test or setting has (did you mean "agent-a"?)
access/files.json:2:3: policy access/files#0 compares called_tool with "files:raed", which no entity or test has (did you mean "files:read"?)
`
	if got != want {
		t.Errorf("warnings\n%s\nwant\n%s", got, want)
	}
}

// A revision in the log decides as it did: the archive holds the documents.
func TestAccessIsOfTheRevision(t *testing.T) {
	const document = "-- access/files.json --\n{\"mode\": \"MODE\"}\n"
	open, hybrid := compile(t, strings.Replace(document, "MODE", "open", 1)), compile(t, strings.Replace(document, `"MODE"`, `"allowlist", "rules": []`, 1))
	if open.Revision() == hybrid.Revision() {
		t.Error("the documents are not a part of the revision")
	}
	if _, kept := open.Archive()["access/files.json"]; !kept || !snapshot.Counts("access/files.json") {
		t.Error("the archive does not have the document")
	}
	all, err := snapshot.CompileLogged(open.Archive())
	if err != nil {
		t.Fatal(err)
	}
	again, err := all.For("")
	if err != nil {
		t.Fatal(err)
	}
	compiledStore{again, t}.allows("agent a", "tools/call", "tool files:read")
}

// Nothing that a request states makes a participant of tool-access full, or a tool unprotected.
func TestToolAccessClaims(t *testing.T) {
	set, err := policies.Set("tool-access")
	if err != nil {
		t.Fatal(err)
	}
	store, err := policystore.Read(set)
	if err != nil {
		t.Fatal(err)
	}
	own, err := snapshot.Compile(store)
	if err != nil {
		t.Fatal(err)
	}
	s := compiledStore{own, t}
	for _, claim := range []string{
		``, ` {"level":"full"}`, ` {"levels":["full"]}`, ` {"parents":["full"]}`, ` {"Level":"full"}`, ` {"roles":["full","tool_owner"]}`,
		` {"parents":[{"type":"Level","id":"full"}]}`, ` {"protected":false}`, ` {"tool_group":"unprotected"}`,
	} {
		for _, asked := range []string{
			question("agent agent-c"+claim, "tools/call", "tool clock:now"),
			question("agent stranger"+claim, "tools/call", "tool clock:now"),
			question("agent agent-a", "tools/call", "tool files:read_text_file"+claim),
			question("Level full"+claim, "tools/call", "tool clock:now"),
			question("agent agent-c", "tools/call"+claim, "tool clock:now", `{"gateway":{"server":"clock","tool":"now","dialect":"default"}}`),
		} {
			if out, err := s.Decide(request(t, asked), environment); err == nil && out.Decision {
				t.Errorf("%s\nis permitted by %q", asked, out.Policies)
			}
		}
	}
	s.allows("agent agent-a", "tools/call", "tool clock:now")
}
