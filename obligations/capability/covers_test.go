package capability_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, tool string
		want          bool
	}{
		{"files:read_file", "files:read_file", true},
		{"files:read_file", "files:read_files", false},
		{"files:read_file", "Files:read_file", false},
		{"files:*", "files:read_file", true},
		{"files:*", "files:a:b", true},
		{"files:*", "filesystem:read_file", false},
		{"files:*", "files:", false},
		{"files:a:b", "files:a:b", true},
		{"files:a", "files:a:b", false},
		{"*", "mail:send", true},
	} {
		if got := capability.Matches(test.pattern, test.tool); got != test.want {
			t.Errorf("%s covers %s: %v", test.pattern, test.tool, got)
		}
	}
}

// What a presented capability covers, and the reason if it does not.
func TestCovers(t *testing.T) {
	with := func(change func(*capability.Constraints)) capability.Terms {
		return terms(func(t *capability.Terms) { change(&t.Constraints) }, "files:write", "mail:*")
	}
	staging := with(func(c *capability.Constraints) {
		c.Arguments = jsonobject.Object{"target": jsontext.Value(`"staging"`), "id": jsontext.Value(`9007199254740993`)}
	})
	small := with(func(c *capability.Constraints) {
		c.ArgumentsSchema = jsontext.Value(`{"properties":{"amount":{"maximum":100}},"required":["amount"]}`)
	})
	inSession := terms(func(t *capability.Terms) { t.Session = "s-1" }, "files:write")
	for _, test := range []struct {
		name      string
		terms     capability.Terms
		tool      string
		arguments string
		session   string
		after     time.Duration
		want      authzen.CapabilityReason
	}{
		{"the tool", with(func(*capability.Constraints) {}), "files:write", "", "", 0, ""},
		{"a tool of the server", with(func(*capability.Constraints) {}), "mail:send", "", "", 0, ""},
		{"another tool", with(func(*capability.Constraints) {}), "files:read", "", "", 0, "tool_not_covered"},
		{"the last second", with(func(*capability.Constraints) {}), "files:write", "", "", time.Hour - 1, ""},
		{"the end", with(func(*capability.Constraints) {}), "files:write", "", "", time.Hour, "expired"},
		{"before its time", with(func(c *capability.Constraints) { c.ValidFrom = morning.Add(time.Minute) }), "files:write", "", "", time.Minute - 1, "not_yet_valid"},
		{"from its time on", with(func(c *capability.Constraints) { c.ValidFrom = morning.Add(time.Minute) }), "files:write", "", "", time.Minute, ""},
		{"the arguments", staging, "files:write", `{"id":9007199254740993, "target":"st\u0061ging", "more":1}`, "", 0, ""},
		{"another value", staging, "files:write", `{"id":9007199254740993,"target":"production"}`, "", 0, "arguments_violate"},
		{"an integer that rounds to the same", staging, "files:write", `{"id":9007199254740992,"target":"staging"}`, "", 0, "arguments_violate"},
		{"an absent argument", staging, "files:write", `{"target":"staging"}`, "", 0, "arguments_violate"},
		{"an argument twice", staging, "files:write", `{"id":9007199254740993,"target":"production","target":"staging"}`, "", 0, "tool_not_covered"}, // nothing can be read of such a context
		{"no arguments", staging, "files:write", "", "", 0, "arguments_missing"},
		{"arguments that are no object", staging, "files:write", `["staging"]`, "", 0, "arguments_violate"},
		{"null arguments", staging, "files:write", `null`, "", 0, "arguments_violate"},
		{"the schema", small, "files:write", `{"amount":100}`, "", 0, ""},
		{"a violated schema", small, "files:write", `{"amount":100.01}`, "", 0, "arguments_violate"},
		{"a huge exponent", small, "files:write", `{"amount":1e999999999}`, "", 0, "arguments_violate"},
		{"a schema without arguments", small, "files:write", "", "", 0, "arguments_missing"},
		{"the session", inSession, "files:write", "", "s-1", 0, ""},
		{"another session", inSession, "files:write", "", "s-2", 0, "wrong_session"},
		{"no session", inSession, "files:write", "", "", 0, "wrong_session"},
	} {
		s := open(t)
		c := s.issue(t, test.terms)
		q := s.call(test.tool, test.arguments, claim(c.ID, true))
		q.Claim.Session, q.Time = test.session, morning.Add(test.after)
		got := s.find(t, q)
		if got.Denied != test.want || (got.Capability != nil) != (test.want == "") {
			t.Errorf("%s, presented: %+v, want %q", test.name, got, test.want)
		}
		q.Claim.ID = ""
		if got := s.find(t, q); got.Denied != "" || (got.Capability != nil) != (test.want == "") {
			t.Errorf("%s, not presented: %+v", test.name, got)
		}
	}
}

// Of the capabilities that a holder has, the reason is that of one for the tool, and
// before all others that arguments are missing, because a PEP can send them.
func TestReasonIsOfTheTool(t *testing.T) {
	s := open(t)
	for _, step := range []struct {
		name  string
		terms capability.Terms
		want  authzen.CapabilityReason
	}{
		{"another tool, later", terms(func(t *capability.Terms) { t.Constraints.ValidFrom = morning.Add(time.Hour / 2) }, "files:list"), ""},
		{"the tool, later", terms(func(t *capability.Terms) { t.Constraints.ValidFrom = morning.Add(time.Hour / 2) }, "files:write"), "not_yet_valid"},
		{"the tool, with arguments", terms(func(t *capability.Terms) {
			t.Constraints.Arguments = jsonobject.Object{"a": jsontext.Value("1")}
		}, "files:write"), "arguments_missing"},
		{"the tool, in a session", terms(func(t *capability.Terms) { t.Session = "s-1" }, "files:write"), "arguments_missing"},
	} {
		s.issue(t, step.terms)
		if got := s.find(t, s.call("files:write", "", claim("", true))); got.Missing != step.want || got.Capability != nil {
			t.Errorf("%s: %+v, want %q", step.name, got, step.want)
		}
	}
}

// A capability without uses does not hide why another one does not cover the call, whichever of them
// ends first.
func TestExhaustedReasonIsTheLast(t *testing.T) {
	for name, end := range map[string]time.Duration{"ends first": -time.Minute, "ends last": time.Minute} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			used := s.issue(t, terms(func(t *capability.Terms) {
				t.Constraints.MaxUses, t.Constraints.ValidUntil = 1, morning.Add(time.Hour+end)
			}, "files:write"))
			if !s.decide(t, s.call("files:write", `{"a":1}`, claim(used.ID, true))) {
				t.Fatal("the call is refused")
			}
			ask := func(want authzen.CapabilityReason) {
				t.Helper()
				if got := s.find(t, s.call("files:write", `{"a":2}`, claim("", true))); got.Missing != want || got.Capability != nil {
					t.Errorf("%+v, want %q", got, want)
				}
			}
			ask("exhausted")
			s.issue(t, terms(func(t *capability.Terms) {
				t.Constraints.Arguments = jsonobject.Object{"a": jsontext.Value("1")}
			}, "files:write"))
			ask("arguments_violate")
		})
	}
}

// The reasons have an order: state and time, tool, arguments, session, uses.
func TestTheFirstReasonIsTold(t *testing.T) {
	s := open(t)
	made := terms(func(t *capability.Terms) {
		t.Session, t.Constraints.MaxUses = "s-1", 1
		t.Constraints.Arguments = jsonobject.Object{"a": jsontext.Value("1")}
	}, "files:write")
	c := s.issue(t, made)
	right := claim(c.ID, true)
	right.Session = "s-1"
	if !s.decide(t, s.call("files:write", `{"a":1}`, right)) {
		t.Fatal("the call is refused")
	}
	for _, test := range []struct {
		tool, arguments, session string
		want                     authzen.CapabilityReason
	}{
		{"files:read", "", "", "tool_not_covered"},
		{"files:write", "", "", "arguments_missing"},
		{"files:write", `{"a":2}`, "", "arguments_violate"},
		{"files:write", `{"a":1}`, "", "wrong_session"},
		{"files:write", `{"a":1}`, "s-1", "exhausted"},
	} {
		wrong := claim(c.ID, true)
		wrong.Session = test.session
		if got := s.find(t, s.call(test.tool, test.arguments, wrong)).Denied; got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
	if _, err := s.Revoke(t.Context(), c.ID, admin, ""); err != nil {
		t.Fatal(err)
	}
	if got := s.find(t, s.call("files:read", "", claim(c.ID, true))).Denied; got != authzen.CapabilityRevoked {
		t.Errorf("a revoked one: %s", got)
	}
}

// To everybody but its holder a capability is unknown, and its holder cannot use one that was never
// issued.
func TestNotTheHolder(t *testing.T) {
	s := open(t)
	active := s.issue(t, terms(nil, "files:write"))
	pending := s.request(t, terms(nil, "files:write"), "task-1")
	refused := s.request(t, terms(nil, "files:write"), "task-2")
	if _, err := s.Refuse(t.Context(), refused.ID, admin, ""); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		id     string
		change func(*authzen.CapabilityQuestion)
	}{
		{"another id", active.ID, func(q *authzen.CapabilityQuestion) { q.Request.Subject.ID = "agent-b" }},
		{"another type", active.ID, func(q *authzen.CapabilityQuestion) { q.Request.Subject.Type = "user" }},
		{"another tenant", active.ID, func(q *authzen.CapabilityQuestion) { q.Tenant = "other" }},
		{"no tenant", active.ID, func(q *authzen.CapabilityQuestion) { q.Tenant = "" }},
		{"an unknown id", "cap_unknown", func(*authzen.CapabilityQuestion) {}},
		{"a pending one", pending.ID, func(*authzen.CapabilityQuestion) {}},
		{"a refused one", refused.ID, func(*authzen.CapabilityQuestion) {}},
	} {
		q := s.call("files:write", "", claim(test.id, true))
		test.change(q)
		if got := s.find(t, q); got.Denied != authzen.CapabilityUnknown || got.Capability != nil {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

// A request is about a tool by its gateway or by its resource.
func TestAQuestionIsAboutATool(t *testing.T) {
	s := open(t)
	c := s.issue(t, terms(nil, "files:write"))
	every, err := s.Issue(t.Context(), capability.Caller{Tenant: gateway.Tenant, AnyTool: true}, "", terms(nil, "*"), capability.Grant{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, resource, id, context string
		want, wantEvery             authzen.CapabilityReason
	}{
		{"the resource", "tool", "files:write", ``, "", ""},
		{"another tool", "tool", "files:read", `{}`, "tool_not_covered", ""},
		{"another type of resource", "document", "files:write", ``, "tool_not_covered", "tool_not_covered"},
		{"the gateway before the resource", "tool", "files:write", `{"gateway":{"server":"files","tool":"read"}}`, "tool_not_covered", ""},
		{"half a gateway", "tool", "files:write", `{"gateway":{"server":"files"}}`, "", ""},
	} {
		q := s.call("", "", claim(c.ID, true))
		q.Request.Resource, q.Request.Context = authzen.Resource{Type: test.resource, ID: test.id}, nil
		if test.context != "" {
			q.Request.Context = jsontext.Value(test.context)
		}
		if got := s.find(t, q).Denied; got != test.want {
			t.Errorf("%s: %q", test.name, got)
		}
		q.Claim.ID = every.ID
		if got := s.find(t, q).Denied; got != test.wantEvery {
			t.Errorf("%s, of every tool: %q", test.name, got)
		}
	}
}

// Of several that cover, the one with the earliest end counts, then the lowest id.
func TestWhichOfSeveral(t *testing.T) {
	ids := []string{"c", "b", "d", "a"}
	s := openWith(t, func(c *capability.Config) {
		c.NewID = func() string { id := ids[0]; ids = ids[1:]; return id }
	})
	for _, until := range []time.Duration{time.Hour, 2 * time.Hour, 2 * time.Hour, 2 * time.Hour} {
		s.issue(t, terms(func(t *capability.Terms) { t.Duration = lasting(until) }, "files:write"))
	}
	for _, want := range []string{"cap_c", "cap_a", "cap_b", "cap_d", ""} {
		if got := s.found(t, s.call("files:write", "", nil)); got != want {
			t.Errorf("found %s, want %s", got, want)
		}
		if want != "" {
			if _, err := s.Revoke(t.Context(), want, admin, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The next one counts when the first has no use left.
func TestTheNextAfterAnExhausted(t *testing.T) {
	s := open(t)
	first := s.issue(t, uses(1))
	second := s.issue(t, terms(func(t *capability.Terms) { t.Duration = lasting(2 * time.Hour) }, "files:*"))
	for _, want := range []string{first.ID, second.ID} {
		q := s.call("files:read_file", "", claim("", true))
		if got := s.found(t, q); got != want {
			t.Errorf("found %s, want %s", got, want)
		}
		s.decide(t, q)
	}
}

func TestALimitedCapabilityNeedsAClaimOfUse(t *testing.T) {
	s := open(t)
	c := s.issue(t, uses(1))
	if got := s.find(t, s.call("files:read_file", "", &authzen.CapabilityClaim{ID: c.ID})); got.Denied != authzen.CapabilityUseMissing {
		t.Errorf("presented without use: %+v", got)
	}
}

// What policies see of a capability.
func TestVerified(t *testing.T) {
	s := open(t)
	c := s.request(t, terms(func(t *capability.Terms) { t.Constraints.MaxUses, t.Session = 3, "s-1" }, "files:write"), "task-1")
	carol := authzen.Subject{Type: "user", ID: "carol", Properties: jsontext.Value(`{"phone":"1"}`)}
	if _, err := s.Activate(t.Context(), c.ID, capability.Actor{}, capability.Grant{Issuer: &carol, Approvers: []authzen.Subject{carol}}); err != nil {
		t.Fatal(err)
	}
	presented := claim("", true)
	presented.Session = "s-1"
	v := s.find(t, requested(s.call("files:write", "", presented), "r1")).Capability
	if v == nil || v.ID != c.ID || v.Template != "tool-owner" || v.UsesLeft != 3 || v.Bound != capability.BoundSession || v.Call == "" || v.Used ||
		!v.Until.Equal(morning.Add(time.Hour)) || v.Issuer == nil || v.Issuer.ID != "carol" || v.Issuer.Properties != nil || len(v.Approvers) != 1 {
		t.Errorf("verified: %+v", v)
	}
}

// A schema whose evaluation grows exponentially is neither waited for nor satisfied.
func TestASchemaThatTakesTooLong(t *testing.T) {
	var schema strings.Builder
	schema.WriteString(`{"$defs":{"n0":{}`)
	for i := range 40 {
		previous := string(rune('0'+i%10)) + strings.Repeat("x", i/10)
		if i == 0 {
			previous = "0"
		}
		name := string(rune('0'+(i+1)%10)) + strings.Repeat("x", (i+1)/10)
		schema.WriteString(`,"n` + name + `":{"allOf":[{"$ref":"#/$defs/n` + previous + `"},{"$ref":"#/$defs/n` + previous + `"}]}`)
	}
	schema.WriteString(`},"$ref":"#/$defs/n0xxxx"}`)
	s := open(t)
	c := s.issue(t, terms(func(t *capability.Terms) { t.Constraints.ArgumentsSchema = jsontext.Value(schema.String()) }, "files:write"))
	started := time.Now()
	if got := s.find(t, s.call("files:write", `{}`, claim(c.ID, true))).Denied; got != authzen.CapabilityArgumentsViolate {
		t.Errorf("it is %q", got)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A constrained capability never covers arguments that a plain comparison refuses, and one for all
// tools of a server covers whatever one for a tool does.
func FuzzCovers(f *testing.F) {
	f.Add("files:write", "files:write", `"staging"`, `{"target":"staging"}`)
	f.Add("files:*", "files:read", `1`, `{"target":1.0}`)
	f.Add("files:read", "mail:read", `{"a":[1]}`, `{"target":{"a":[1]}}`)
	f.Add("files:*", "files:*", `9007199254740993`, `{"target":9007199254740992}`)
	s := open(f)
	revoke := func(t *testing.T, id string) {
		if _, err := s.Revoke(t.Context(), id, admin, ""); err != nil {
			t.Error(err)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, tool, value, arguments string) {
		parsed, err := jsonobject.Parse(jsontext.Value(arguments))
		if err != nil || jsontext.Value(arguments).Kind() != '{' {
			t.Skip("not arguments")
		}
		narrow := terms(func(t *capability.Terms) {
			t.Constraints.Arguments = jsonobject.Object{"target": jsontext.Value(value)}
		}, pattern)
		c, err := s.Issue(t.Context(), gateway, "", narrow, capability.Grant{})
		if err != nil {
			t.Skip("not terms")
		}
		defer revoke(t, c.ID)
		server, name, _ := strings.Cut(tool, ":")
		q := s.call("", "", claim(c.ID, true))
		context, err := jsonobject.Object{"arguments": jsontext.Value(arguments)}.Encode()
		if err != nil {
			t.Skip("not arguments")
		}
		q.Request.Context, q.Request.Resource = context, authzen.Resource{Type: "tool", ID: tool}
		covers := s.find(t, q).Denied == ""
		of, named, _ := strings.Cut(pattern, ":")
		want := of == server && (named == name || named == "*" && name != "") && jsonobject.Equal(parsed["target"], jsontext.Value(value))
		if covers != want {
			t.Errorf("%s with target %s covers %s with %s: %v, want %v", pattern, value, tool, arguments, covers, want)
		}
		wide, err := s.Issue(t.Context(), gateway, "", terms(nil, of+":*"), capability.Grant{})
		if err != nil {
			t.Fatal(err)
		}
		defer revoke(t, wide.ID)
		q.Claim.ID = wide.ID
		if covers && s.find(t, q).Denied != "" {
			t.Errorf("%s covers %s, and %s:* does not", pattern, tool, of)
		}
	})
}
