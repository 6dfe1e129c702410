package evaluation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/replay"
)

// hiddenStore has a stored entity for those that requests refer to.
const hiddenStore = `
-- config.yaml --
parents: {roles: Role}
attributes: {"context.who": user, "doc.owner": user}
-- entities.json --
[{"uid": {"type": "user", "id": "s1"}, "attrs": {"level": 1, "password": "s1"}, "parents": []},
 {"uid": {"type": "user", "id": "masked:s1"}, "attrs": {"level": 2}, "parents": []}]
`

// TestHidden holds that a masked decision counts as one that can be made again
// only where it is the same whatever stands behind the mask: here several
// things, and nothing. Where a policy reads it, it is hidden.
func TestHidden(t *testing.T) {
	context := func(text string) string { return question("user alice", "read", "doc 1", text) }
	for _, tt := range []struct {
		when, body, masked string
		hidden             bool
	}{
		{`true`, context(`{"password":"SECRET"}`), "/context/password", false},
		{`context.path == "/"`, context(`{"password":"SECRET","path":"/"}`), "/context/password", false},
		{`context.password == "s1"`, context(`{"password":"SECRET"}`), "/context/password", true},
		{`context has password`, context(`{"password":"SECRET"}`), "/context/password", true},
		{`context["password"] like "s*"`, context(`{"password":"SECRET"}`), "/context/password", true},
		{`false && context.password == "s1"`, context(`{"password":"SECRET"}`), "/context/password", true},
		{`context == {password: "s1"}`, context(`{"password":"SECRET"}`), "/context/password", true},
		{`(if true then context else {password: "x"}).password == "s1"`, context(`{"password":"SECRET"}`), "/context/password", true},
		{`[context].contains({password: "s1"})`, context(`{"password":"SECRET"}`), "/context/password", true},

		{`context.http.method == "GET"`, context(`{"http":{"method":"GET","authorization":"SECRET"}}`), "/context/http/authorization", false},
		{`context has http.method`, context(`{"http":{"method":"GET","authorization":"SECRET"}}`), "/context/http/authorization", false},
		{`context.http.authorization == "s1"`, context(`{"http":{"method":"GET","authorization":"SECRET"}}`), "/context/http/authorization", true},
		{`context.http == {method: "GET", authorization: "s1"}`, context(`{"http":{"method":"GET","authorization":"SECRET"}}`), "/context/http/authorization", true},
		{`(if true then context.http else {authorization: "x"}).authorization == "s1"`, context(`{"http":{"authorization":"SECRET"}}`), "/context/http/authorization", true},
		{`context.list.contains("s1")`, context(`{"list":["a","SECRET"]}`), "/context/list/1", true},
		{`context.other.contains("s1")`, context(`{"list":["a","SECRET"],"other":["s1"]}`), "/context/list/1", false},
		{`context["a/b~"] == "s1"`, context(`{"a/b~":"SECRET"}`), "/context/a~1b~0", true},

		{`principal.password == "s1"`, question(`user alice {"password":"SECRET"}`, "read", "doc 1"), "/subject/properties/password", true},
		{`principal.level == 1`, question(`user alice {"password":"SECRET","level":1}`, "read", "doc 1"), "/subject/properties/password", false},
		{`context.who.password == "s1"`, question(`user alice {"password":"SECRET"}`, "read", "doc 1", `{"who":"alice"}`), "/subject/properties/password", true},
		{`resource.owner.password == "s1"`, question(`user alice {"password":"SECRET"}`, "read", `doc 1 {"owner":"alice"}`), "/subject/properties/password", true},
		{`principal in Role::"s1"`, question(`user alice {"roles":"SECRET"}`, "read", "doc 1"), "/subject/properties/roles", true},
		{`true`, question(`user alice {"roles":"SECRET"}`, "read", "doc 1"), "/subject/properties/roles", true},
		{`principal == user::"s1"`, question("user SECRET", "read", "doc 1"), "/subject/id", true},
		{`resource.token == "s1"`, question("user alice", "read", `doc 1 {"token":"SECRET"}`), "/resource/properties/token", true},
		{`resource.path == "/"`, question("user alice", "read", `doc 1 {"token":"SECRET","path":"/"}`), "/resource/properties/token", false},
		{`context.action.token == "s1"`, question("user alice", `read {"token":"SECRET"}`, "doc 1"), "/action/properties/token", true},
		{`context.action.path == "/"`, question("user alice", `read {"token":"SECRET","path":"/"}`, "doc 1"), "/action/properties/token", false},

		// A reference to an entity, of which something else is read.
		{`context.who.level == 1`, context(`{"who":"SECRET"}`), "/context/who", true},
		{`context.who.level == 1`, context(`{"who":{"type":"user","id":"SECRET"}}`), "/context/who/id", true},
		{`resource.owner.level == 1`, question("user alice", "read", `doc 1 {"owner":{"type":"user","id":"SECRET"}}`), "/resource/properties/owner/id", true},

		// A claim is none of the policies' business.
		{`context has approval && context.approval.template == "s1"`, context(`{"approval":{"token":"SECRET"}}`), "/context/approval/token", false},
		{`true`, context(`{"supported_obligations":["SECRET"]}`), "/context/supported_obligations/0", true},
	} {
		t.Run(tt.when+" "+tt.masked, func(t *testing.T) {
			s := compile(t, `@id("p") permit (principal, action, resource) when { `+tt.when+` };
@id("elsewhere") permit (principal, action == Action::"erase", resource) when { context.password == "s1" && principal.password == context.http };`+hiddenStore)
			masked := request(t, strings.ReplaceAll(tt.body, "SECRET", "masked:s1"))
			hidden := replay.HiddenFrom(s.Snapshot, &replay.Logged{Request: masked, Time: now, Masked: []string{tt.masked}})
			if (hidden != nil) != tt.hidden {
				t.Fatalf("hidden = %v, want %t", hidden, tt.hidden)
			}
			if tt.hidden {
				return
			}
			again, err := s.Decide(masked, environment)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{`"s1"`, `"other"`, `7`, `{"a":"s1"}`, `["s1"]`} {
				outcome, err := s.Decide(request(t, strings.ReplaceAll(tt.body, `"SECRET"`, secret)), environment)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(again, outcome); diff != "" {
					t.Errorf("with %s it is decided otherwise (-masked +sent):\n%s", secret, diff)
				}
			}
		})
	}
}

// TestHiddenMatters shows that the secrets of TestHidden do make a difference
// where policies read them.
func TestHiddenMatters(t *testing.T) {
	for _, when := range []string{`context.password == "s1"`, `context has password && context.password == "s1"`, `[context].contains({password: "s1"})`} {
		s := compile(t, `@id("p") permit (principal, action, resource) when { `+when+` };`)
		for secret, want := range map[string]bool{"s1": true, "masked:s1": false} {
			s.answers(want, question("user alice", "read", "doc 1", fmt.Sprintf(`{"password":%q}`, secret)))
		}
	}
}

// Where the schema says that what is masked is no text, it cannot be read.
func TestHiddenByType(t *testing.T) {
	s := compile(t, `@id("p") permit (principal, action, resource);
-- schema.cedarschema --
entity user, doc;
action read appliesTo { principal: [user], resource: [doc], context: { pin?: Long } };
`)
	masked := request(t, question("user alice", "read", "doc 1", `{"pin":"masked:x"}`))
	if hidden := replay.HiddenFrom(s.Snapshot, &replay.Logged{Request: masked, Time: now, Masked: []string{"/context/pin"}}); hidden == nil || hidden.Policy != "" {
		t.Errorf("hidden = %v", hidden)
	}
}
