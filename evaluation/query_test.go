package evaluation_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

func TestTypeNames(t *testing.T) {
	s := compile(t, `
@id("all") permit (principal, action, resource)
when { principal is user || principal is App::Crew::user || resource is Http::Route };
-- config.yaml --
type_aliases:
  http-route: Http::Route
  identity: user
  "": user
`)
	s.allows("user alice", "read", "doc 1")
	s.allows("App::Crew::user alice", "read", "doc 1")
	s.allows("identity alice", "read", "doc 1")
	s.allows("agent a", "GET", "http-route /todos")
	s.denies("agent a", "read", "route_ 1")
	s.denies("Identity alice", "read", "doc 1")
	s.allows(" alice", "read", "doc 1")

	for _, name := range []string{
		"http_route-2", "ünï", "urn:x", "user::", "::user", "App:user", "a.b", "1user", "if", "in", "__cedar::ignore", "__cedar",
		`User::"a"`, `User::"a" || true) ; permit(principal`, "user\x00", "user ",
	} {
		complaint := fmt.Sprintf("/type is not the name of a Cedar entity type and has no alias in config.yaml: %q", name)
		refused := map[string]*authzen.EvaluationRequest{
			"/subject":  {Subject: authzen.Subject{Type: name}, Resource: authzen.Resource{Type: "doc"}},
			"/resource": {Subject: authzen.Subject{Type: "user"}, Resource: authzen.Resource{Type: name}},
		}
		for path, req := range refused {
			_, err := s.Decide(req, environment)
			if err == nil || err.Error() != path+complaint {
				t.Errorf("the %s type %q is answered with the error %v", path, name, err)
			}
		}
	}
	_, err := compile(t, "").Decide(&authzen.EvaluationRequest{}, environment)
	if err == nil {
		t.Error("an empty type without an alias is accepted")
	}
}

// An id is whatever a PEP says, and means nothing but itself: AZ-10.
func TestIDs(t *testing.T) {
	s := compile(t, `@id("one") permit (principal == user::"a\"b\\c\n*", action == Action::"", resource == doc::"");`)
	odd := authzen.EvaluationRequest{
		Subject:  authzen.Subject{Type: "user", ID: "a\"b\\c\n*"},
		Resource: authzen.Resource{Type: "doc"},
	}
	out, err := s.Decide(&odd, environment)
	if err != nil || !out.Decision {
		t.Errorf("decided %v, %v", out, err)
	}
	s.denies("user a", "", "doc ")
	s.denies("doc ", "", "user ")
}

// The types that a subject may have are an allow-list, because every entity is
// in itself: a subject of type Role would be in the role it names.
func TestSubjectTypes(t *testing.T) {
	const policy = `@id("admins") permit (principal in Role::"admin", action, resource);`
	const entities = `
-- entities.json --
[{"uid": {"type": "user", "id": "alice"}, "attrs": {}, "parents": [{"type": "Role", "id": "lead"}]},
 {"uid": {"type": "Role", "id": "lead"}, "attrs": {}, "parents": [{"type": "Role", "id": "admin"}]},
 {"uid": {"type": "team", "id": "a"}, "attrs": {}, "parents": []}]
`
	t.Run("by the schema", func(t *testing.T) {
		s := compile(t, policy+entities+`
-- schema.cedarschema --
entity Role in [Role];
entity team;
entity user in [Role];
entity doc;
action read appliesTo { principal: [user], resource: [doc] };
action list appliesTo { principal: [user, team], resource: [doc] };
`)
		s.allows("user alice", "read", "doc 1")
		s.denies("user bob", "read", "doc 1")
		s.explains(`the schema has no Role as subject of "read"`, "Role admin", "read", "doc 1")
		s.explains(`the schema has no team as subject of "read"`, "team a", "read", "doc 1")
		s.denies("team a", "list", "doc 1")
	})
	t.Run("by subject_types", func(t *testing.T) {
		s := compile(t, policy+entities+"\n-- config.yaml --\nsubject_types: [user, agent]\ntype_aliases: {person: user, boss: Role}\n")
		s.allows("user alice", "read", "doc 1")
		s.allows("person alice", "read", "doc 1")
		s.denies("agent a", "read", "doc 1")
		s.explains("the type Role is not a subject's", "Role admin", "read", "doc 1")
		s.explains("the type Role is not a subject's", "boss admin", "read", "doc 1")
		s.explains("the type team is not a subject's", "team a", "read", "doc 1")
	})
	t.Run("by both", func(t *testing.T) {
		s := compile(t, policy+entities+`
-- config.yaml --
subject_types: [user]
-- schema.cedarschema --
entity Role in [Role];
entity user in [Role];
entity team;
entity doc;
action read appliesTo { principal: [user, team], resource: [doc] };
`)
		s.allows("user alice", "read", "doc 1")
		s.explains("the type team is not a subject's", "team a", "read", "doc 1")
	})
	t.Run("by an empty list", func(t *testing.T) {
		s := compile(t, policy+entities+"\n-- config.yaml --\nsubject_types: []\n")
		s.explains("the type user is not a subject's", "user alice", "read", "doc 1")
	})
	t.Run("by the entities", func(t *testing.T) {
		s := compile(t, policy+entities)
		s.allows("user alice", "read", "doc 1")
		s.denies("team a", "read", "doc 1")
		s.denies("stranger a", "read", "doc 1")
		s.explains("the type Role is not a subject's", "Role admin", "read", "doc 1")
	})
	t.Run("by the configured parents", func(t *testing.T) {
		s := compile(t, policy+"\n-- config.yaml --\nparents: {roles: Role}\n")
		s.allows(`user alice {"roles":["admin"]}`, "read", "doc 1")
		s.explains("the type Role is not a subject's", "Role admin", "read", "doc 1")
	})
}

// Whom and what a schema does not know is denied, with the reason in the log,
// and is no error: AZ-70.
func TestUnknownToTheSchema(t *testing.T) {
	s := compile(t, `
@id("all") permit (principal, action, resource);
-- schema.cedarschema --
entity Colour enum ["red"];
entity user;
entity doc;
action reading;
action read in [reading] appliesTo { principal: [user, Colour], resource: [doc, Colour] };
action write appliesTo { principal: [user], resource: [doc] };
`)
	s.allows("user alice", "read", "doc 1")
	s.allows("user nobody-knows", "read", "doc nothing-known")
	s.allows("Colour red", "read", "Colour red")
	s.explains(`the schema has no action "erase" that applies to anything`, "user alice", "erase", "doc 1")
	s.explains(`the schema has no action "reading" that applies to anything`, "user alice", "reading", "doc 1")
	s.explains(`the schema has no spaceship as subject of "read"`, "spaceship a", "read", "doc 1")
	s.explains(`the schema has no doc as subject of "read"`, "doc 1", "read", "doc 1")
	s.explains(`the schema has no spaceship as resource of "read"`, "user alice", "read", "spaceship a")
	s.explains(`the schema has no Colour as resource of "write"`, "user alice", "write", "Colour red")
	s.explains(`Colour::"blue" is not one of the entities that the schema lists for Colour`, "user alice", "read", "Colour blue")
	s.explains(`Colour::"blue" is not one of the entities that the schema lists for Colour`, "Colour blue", "read", "doc 1")

	// What such a request says further is not read.
	s.explains(`the schema has no spaceship as subject of "read"`, `spaceship a {"x":[null]}`, "read", "doc 1", `{"__entity":1}`)
}

// An action is in the groups that the schema puts it in, and in those of their
// groups.
func TestActionGroups(t *testing.T) {
	const policy = `@id("reading") permit (principal, action in Action::"any", resource);`
	s := compile(t, policy+`
-- schema.cedarschema --
entity user;
action any;
action reading in [any];
action read in [reading] appliesTo { principal: [user], resource: [user] };
action write appliesTo { principal: [user], resource: [user] };
`)
	s.allows("user alice", "read", "user bob")
	s.denies("user alice", "write", "user bob")

	s = compile(t, policy+`
-- entities.json --
[{"uid": {"type": "Action", "id": "read"}, "attrs": {}, "parents": [{"type": "Action", "id": "reading"}]},
 {"uid": {"type": "Action", "id": "reading"}, "attrs": {}, "parents": [{"type": "Action", "id": "any"}]}]
`)
	s.allows("user alice", "read", "user bob")
	s.denies("user alice", "write", "user bob")
}

// overlaid stores something of alice and of doc 1. Its policies permit the
// actions of their names where what they see is what the context says.
const overlaid = `
@id("subject") permit (principal, action == Action::"subject", resource)
when { principal has role && context has said && principal.role == context.said };
@id("resource") permit (principal, action == Action::"resource", resource)
when { resource has status && context has said && resource.status == context.said };
@id("both") permit (principal, action == Action::"both", resource)
when { resource has owner && resource.owner == principal && resource has dept && principal has dept && resource.dept == principal.dept };
-- entities.json --
[{"uid": {"type": "user", "id": "alice"}, "attrs": {"role": "author", "dept": "eng"}, "parents": []},
 {"uid": {"type": "doc", "id": "1"}, "attrs": {"status": "archived", "owner": {"__entity": {"type": "user", "id": "alice"}}}, "parents": []}]
`

// Of each attribute the stored value wins, and the request's counts where none
// is stored: AZ-108.
func TestOverlay(t *testing.T) {
	s := compile(t, overlaid)
	const author, admin = `{"said":"author"}`, `{"said":"admin"}`
	s.allows(`user alice`, `subject`, `doc 1`, author)
	s.allows(`user alice {"role":"admin"}`, `subject`, `doc 1`, author)
	s.denies(`user alice {"role":"admin"}`, `subject`, `doc 1`, admin)
	s.allows(`user alice {"role":null,"x":1}`, `subject`, `doc 1`, author)
	s.denies(`user bob`, `subject`, `doc 1`, admin)
	s.allows(`user bob {"role":"admin"}`, `subject`, `doc 1`, admin)

	s.allows(`user alice`, `resource`, `doc 1 {"status":"active"}`, `{"said":"archived"}`)
	s.denies(`user alice`, `resource`, `doc 1 {"status":"active"}`, `{"said":"active"}`)
	s.allows(`user alice`, `resource`, `doc 2 {"status":"active"}`, `{"said":"active"}`)

	s.denies(`user alice`, `both`, `doc 1`)
	s.allows(`user alice`, `both`, `doc 1 {"dept":"eng"}`)
	s.denies(`user bob {"dept":"eng"}`, `both`, `doc 1 {"dept":"eng"}`)
	s.denies(`user bob {"dept":"eng"}`, `both`, `doc 2 {"dept":"eng","owner":{"type":"user","id":"bob"}}`)
}

// pep_authoritative names the types and attributes for which the PEP is
// believed over the store.
func TestPEPAuthoritative(t *testing.T) {
	s := compile(t, overlaid+`
-- config.yaml --
pep_authoritative: [doc, user.dept]
attributes: {doc.owner: user}
`)
	s.allows(`user alice`, `resource`, `doc 1 {"status":"active"}`, `{"said":"active"}`)
	s.allows(`user alice`, `resource`, `doc 1 {"status":null}`, `{"said":"archived"}`)
	s.denies(`user alice {"role":"admin"}`, `subject`, `doc 1`, `{"said":"admin"}`)
	s.allows(`user alice {"dept":"ops"}`, `both`, `doc 1 {"dept":"ops"}`)
	s.denies(`user alice {"dept":"ops"}`, `both`, `doc 1 {"dept":"eng"}`)
	s.denies(`user alice`, `both`, `doc 1 {"dept":"eng","owner":"bob"}`)
	s.allows(`user bob {"dept":"eng"}`, `both`, `doc 1 {"dept":"eng","owner":"bob"}`)
}

// No request changes what another sees.
func TestOverlayIsOfOneRequest(t *testing.T) {
	s := compile(t, overlaid)
	s.allows(`user bob {"role":"admin"}`, `subject`, `doc 1`, `{"said":"admin"}`)
	s.denies(`user bob`, `subject`, `doc 1`, `{"said":"admin"}`)
	s.allows(`user alice`, `both`, `doc 1 {"dept":"eng"}`)
	s.denies(`user alice`, `both`, `doc 1`)
}

// parents in config.yaml make properties of the subject its parents.
func TestParents(t *testing.T) {
	const roles = `
@id("admins") permit (principal in Role::"admin", action == Action::"admin", resource);
@id("readers") permit (principal in Role::"reader", action == Action::"read", resource);
@id("engineers") permit (principal in Group::"eng", action == Action::"build", resource);
@id("said") permit (principal, action == Action::"said", resource) when { principal has roles && principal.roles.contains("admin") };
@id("within") permit (principal, action == Action::"within", resource in Role::"admin");
-- entities.json --
[{"uid": {"type": "Role", "id": "admin"}, "attrs": {}, "parents": [{"type": "Role", "id": "writer"}]},
 {"uid": {"type": "Role", "id": "writer"}, "attrs": {}, "parents": [{"type": "Role", "id": "reader"}]},
 {"uid": {"type": "Group", "id": "eng"}, "attrs": {}, "parents": []},
 {"uid": {"type": "Group", "id": "crew"}, "attrs": {}, "parents": [{"type": "Role", "id": "reader"}]},
 {"uid": {"type": "user", "id": "stored"}, "attrs": {}, "parents": [{"type": "Role", "id": "reader"}]},
 {"uid": {"type": "user", "id": "by-group"}, "attrs": {}, "parents": [{"type": "Group", "id": "crew"}]},
 {"uid": {"type": "user", "id": "alone"}, "attrs": {}, "parents": []}]
`
	t.Run("not configured", func(t *testing.T) {
		s := compile(t, roles)
		s.denies(`user alone {"roles":["admin"]}`, `admin`, `doc 1`)
		s.allows(`user alone {"roles":["admin"]}`, `said`, `doc 1`)
		s.allows(`user stored`, `read`, `doc 1`)
	})
	t.Run("configured", func(t *testing.T) {
		s := compile(t, roles+"\n-- config.yaml --\nparents: {roles: Role, groups: Group}\n")
		s.allows(`user alone {"roles":["admin"]}`, `admin`, `doc 1`)
		s.allows(`user alone {"roles":"admin"}`, `admin`, `doc 1`)
		s.allows(`user unknown {"roles":["x","admin"]}`, `admin`, `doc 1`)
		s.denies(`user alone {"roles":[]}`, `admin`, `doc 1`)
		s.denies(`user alone {"roles":null}`, `admin`, `doc 1`)
		s.denies(`user alone {"role":["admin"]}`, `admin`, `doc 1`)
		s.allows(`user alone {"roles":["admin"]}`, `said`, `doc 1`)

		// Through the stored hierarchy.
		s.allows(`user alone {"roles":["writer"]}`, `read`, `doc 1`)
		s.allows(`user alone {"groups":["crew"]}`, `read`, `doc 1`)
		s.denies(`user alone {"roles":["writer"]}`, `admin`, `doc 1`)

		// Where parents of the type are stored, however far above, they are all
		// there are.
		s.denies(`user stored {"roles":["admin"]}`, `admin`, `doc 1`)
		s.allows(`user stored {"roles":["admin"]}`, `read`, `doc 1`)
		s.denies(`user by-group {"roles":["admin"]}`, `admin`, `doc 1`)
		s.allows(`user stored {"groups":["eng"]}`, `build`, `doc 1`)
		s.denies(`user by-group {"groups":["eng"]}`, `build`, `doc 1`)

		// A type's ids are not another's, and a resource has no such parents.
		s.denies(`user alone {"groups":["admin"]}`, `admin`, `doc 1`)
		s.denies(`user alone`, `within`, `doc 1 {"roles":["admin"]}`)

		s.refuses(`/subject/properties/roles must be an id or an array of ids of Role entities`, `user alone {"roles":1}`, `admin`, `doc 1`)
		s.refuses(`/subject/properties/roles must be an id or an array of ids of Role entities`, `user alone {"roles":["a",1]}`, `admin`, `doc 1`)
		s.refuses(`/subject/properties/roles must be an id or an array of ids of Role entities`, `user alone {"roles":{"id":"admin"}}`, `admin`, `doc 1`)
		s.refuses(`/subject/properties/roles/1 must not be null`, `user alone {"roles":["a",null]}`, `admin`, `doc 1`)
	})
	const schema = `
-- schema.cedarschema --
entity Role in [Role];
entity Group in [Role];
entity user in [Role, Group] { roles?: Set<String>, team?: Set<Group> };
entity doc;
action admin, read, build appliesTo { principal: [user], resource: [doc] };
-- p.cedar --
@id("admins") permit (principal in Role::"admin", action == Action::"admin", resource);
@id("readers") permit (principal in Role::"reader", action == Action::"read", resource);
@id("engineers") permit (principal in Group::"eng", action == Action::"build", resource);
-- config.yaml --
parents: {roles: Role, groups: Group, team: Group}
`
	t.Run("with a schema", func(t *testing.T) {
		s := compile(t, schema)
		s.allows(`user alice {"roles":["admin"]}`, `admin`, `doc 1`)
		s.allows(`user alice {"groups":["eng"]}`, `build`, `doc 1`)
		s.allows(`user alice {"groups":"eng"}`, `build`, `doc 1`)
		s.allows(`user alice {"team":["eng"]}`, `build`, `doc 1`)
		s.allows(`user alice {"team":[{"type":"Group","id":"eng"}]}`, `build`, `doc 1`)
		s.refuses(`/subject/properties/roles must be an array`, `user alice {"roles":"admin"}`, `admin`, `doc 1`)
		s.refuses(`/subject/properties/groups must be an id or an array of ids of Group entities`, `user alice {"groups":[1]}`, `admin`, `doc 1`)
		s.refuses(`/subject/properties/team/0/type must be Group, not "Role"`, `user alice {"team":[{"type":"Role","id":"admin"}]}`, `admin`, `doc 1`)
	})
}

// Where the resource is the subject itself, what is said of the one must be
// known of the other.
func TestResourceIsSubject(t *testing.T) {
	s := compile(t, `
@id("self") permit (principal, action == Action::"self", resource) when { principal == resource };
@id("admins") permit (principal, action == Action::"admin", resource) when { principal has role && principal.role == "admin" };
-- entities.json --
[{"uid": {"type": "user", "id": "alice"}, "attrs": {"role": "author"}, "parents": []}]
`)
	const complaint = ` must equal what is known of the subject, which the resource is`
	s.allows(`user alice`, `self`, `user alice`)
	s.allows(`user alice`, `self`, `user alice {}`)
	s.allows(`user alice`, `self`, `user alice {"role":"author"}`)
	s.allows(`user alice`, `self`, `user alice {"role":null}`)
	s.allows(`user alice {"x":[1,2]}`, `self`, `user alice {"x":[2,1]}`)
	s.allows(`user bob {"role":"admin"}`, `admin`, `user bob {"role":"admin"}`)
	s.refuses(`/resource/properties/role`+complaint, `user alice`, `self`, `user alice {"role":"admin"}`)
	s.refuses(`/resource/properties/role`+complaint, `user bob`, `admin`, `user bob {"role":"admin"}`)
	s.refuses(`/resource/properties/x`+complaint, `user alice {"y":1}`, `self`, `user alice {"x":1}`)
	s.refuses(`/resource/properties/a~1b`+complaint, `user alice`, `self`, `user alice {"a/b":1}`)
	s.denies(`user alice`, `admin`, `user bob {"role":"admin"}`)
	s.denies(`user alice`, `self`, `doc alice {"role":"admin"}`)

	// Of several the same one is named every time.
	req := request(t, question(`user alice`, `self`, `user alice {"a":1,"b":1,"c":1,"d":1,"e":1}`))
	_, first := s.Decide(req, environment)
	for range 100 {
		if _, again := s.Decide(req, environment); again == nil || again.Error() != first.Error() {
			t.Fatalf("the same request is answered with the errors\n%v\n%v", first, again)
		}
	}
}

// What is the service's in the context is set by no request, and seen by no
// policy unless the service puts it there.
func TestContextOfTheService(t *testing.T) {
	s := compile(t, `
@id("action") permit (principal, action == Action::"call", resource) when { context has action && context.action.tool == "x" };
@id("approval") permit (principal, action == Action::"approved", resource) when { context has approval };
@id("support") permit (principal, action == Action::"supported", resource) when { context has supported_obligations };
@id("below") permit (principal, action == Action::"below", resource) when { context.a has action && context.a has approval };
`)
	s.allows(`user alice`, `call {"tool":"x"}`, `doc 1`)
	s.denies(`user alice`, `call {"tool":"y"}`, `doc 1`, `{"tool":"x"}`)
	s.denies(`user alice`, `call`, `doc 1`)
	const complaint = `/context/action is where policies find the action's properties: send those`
	s.refuses(complaint, `user alice`, `call {"tool":"y"}`, `doc 1`, `{"action":{"tool":"x"}}`)
	s.refuses(complaint, `user alice`, `call`, `doc 1`, `{"action":{"tool":"x"}}`)
	s.refuses(complaint, `user alice`, `call`, `doc 1`, `{"\u0061ction":1}`)
	s.allows(`user alice`, `call {"tool":"x"}`, `doc 1`, `{"action":null,"Action":1}`)

	s.denies(`user alice`, `approved`, `doc 1`, `{"approval":{"template":"sre"}}`)
	s.denies(`user alice`, `approved`, `doc 1`, `{"approv\u0061l":true}`)
	s.denies(`user alice`, `supported`, `doc 1`, `{"supported_obligations":["custom"]}`)
	s.allows(`user alice`, `below`, `doc 1`, `{"a":{"action":1,"approval":2}}`)
	s.allows(`user alice`, `call {"tool":"x"}`, `doc 1`, `{"":1}`)
}

// The service's members of a context need no declaration in a schema.
func TestContextOfTheServiceUnderASchema(t *testing.T) {
	s := compile(t, `
@id("all") permit (principal, action, resource);
-- schema.cedarschema --
entity user;
action read appliesTo { principal: [user], resource: [user] };
`)
	s.allows(`user alice`, `read`, `user bob`, `{"approval":{"id":"1"},"supported_obligations":["custom"]}`)
	s.refuses(`/context/action is where policies find the action's properties: send those`, `user alice`, `read`, `user bob`, `{"action":{}}`)
}

func TestClock(t *testing.T) {
	const config = "\n-- config.yaml --\nclock: now\n"
	s := compile(t, `
@id("in-2026") permit (principal, action, resource)
when { context.now >= datetime("2026-01-01") && context.now < datetime("2027-01-01") };
@id("to-the-millisecond") permit (principal, action, resource)
when { context.now == datetime("2020-02-03T04:05:06.789Z") };
`+config)
	at := func(when time.Time) []string {
		t.Helper()
		out, err := s.Decide(request(t, question("user alice", "read", "doc 1")), snapshot.Environment{Time: when})
		if err != nil {
			t.Fatal(err)
		}
		return out.Policies
	}
	if diff := cmp.Diff([]string{"in-2026"}, at(now)); diff != "" {
		t.Errorf("determining policies (-want +got):\n%s", diff)
	}
	precise := time.Date(2020, 2, 3, 5, 5, 6, 789_999_999, time.FixedZone("CET", 3600))
	if diff := cmp.Diff([]string{"to-the-millisecond"}, at(precise)); diff != "" {
		t.Errorf("determining policies (-want +got):\n%s", diff)
	}
	if got := at(now.AddDate(1, 0, 0)); got != nil {
		t.Errorf("determining policies in 2027: %q", got)
	}
	s.refuses("/context/now is set by the service", "user alice", "read", "doc 1", `{"now":"2026-11-20"}`)
	s.refuses("/context/now is set by the service", "user alice", "read", "doc 1", `{"n\u006fw":1}`)

	t.Run("not configured", func(t *testing.T) {
		s := compile(t, `@id("clock") permit (principal, action, resource) when { context has now };`)
		s.denies("user alice", "read", "doc 1")
		s.allows("user alice", "read", "doc 1", `{"now":1}`)
	})
	t.Run("with a schema", func(t *testing.T) {
		s := compile(t, `
@id("clock") permit (principal, action, resource) when { context.now < datetime("2027-01-01") };
-- schema.cedarschema --
entity user;
action read appliesTo { principal: [user], resource: [user], context: { now: datetime } };
`+config)
		s.allows("user alice", "read", "user bob")
	})
}
