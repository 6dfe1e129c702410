package evaluation_test

import "testing"

const taxSchema = `
-- schema.cedarschema --
entity user;
namespace Tax {
  entity Return;
  action view, "file" appliesTo {principal: [user], resource: [Return]};
}
namespace Doc {
  entity Page;
  action view appliesTo {principal: [user], resource: [Page]};
  action all;
}
`

// A request names an action in a namespace whole, or by its id where no other
// action has that.
func TestActionsInNamespaces(t *testing.T) {
	for name, schema := range map[string]string{"with a schema": taxSchema, "without a schema": ""} {
		t.Run(name, func(t *testing.T) {
			s := compile(t, `
@id("tax-view") permit (principal, action == Tax::Action::"view", resource);
@id("tax-file") permit (principal, action == Tax::Action::"file", resource);
@id("no-view") forbid (principal, action == Doc::Action::"view", resource);
`+schema)
			tax, page := "Tax::Return 1", "Doc::Page 1"
			s.answers(true, namedAction(`Tax::Action::\"view\"`, tax))
			s.answers(true, namedAction(`file`, tax))
			s.answers(true, namedAction(`Tax::Action::\"file\"`, tax))
			s.answers(false, namedAction(`Doc::Action::\"view\"`, page))
			s.answers(false, namedAction(`Doc::Action::\"file\"`, page))
			s.answers(false, namedAction(`Tax::view`, tax))
			s.refuses(`/action/name could be any of Doc::Action::"view", Tax::Action::"view": name one of them whole`, "user a", "view", tax)
		})
	}
}

// An action without a namespace is what its id names, whatever else has it.
func TestActionsWithoutNamespace(t *testing.T) {
	s := compile(t, `
@id("no-print") forbid (principal, action == Doc::Action::"print", resource);
@id("print") permit (principal, action == Action::"print", resource);
`)
	s.answers(true, namedAction(`print`, "page 1"))
	s.answers(false, namedAction(`Doc::Action::\"print\"`, "page 1"))
}

// The id of a group without a namespace is its own, whatever else has it: what
// is said of the group says so of a request that names it.
func TestActionGroupsWithoutNamespace(t *testing.T) {
	s := compile(t, `
@id("no-writes") forbid (principal, action in Action::"writes", resource);
@id("writes") permit (principal, action == Doc::Action::"writes", resource);
-- entities.json --
[{"uid": {"type": "Action", "id": "delete"}, "attrs": {}, "parents": [{"type": "Action", "id": "writes"}]}]
`)
	s.answers(false, namedAction(`writes`, "page 1"))
	s.answers(true, namedAction(`Doc::Action::\"writes\"`, "page 1"))
}

// namedAction is a request for an action by a name with quotes in it.
func namedAction(action, resource string) string {
	return `{"subject":{"type":"user","id":"a"},"action":{"name":"` + action + `"},"resource":` + entity(resource) + `}`
}
