package policytest_test

import (
	"strings"
	"testing"

	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A denial of a name that the schema does not have says nothing of the policies.
func TestDenialsOfUnknownNames(t *testing.T) {
	archive := snapshot.Archive{
		"a.cedar": []byte(`@id("p") permit (principal, action, resource) when { principal has level && principal.level == 1 };`),
		"schema.cedarschema": []byte(`entity user = {level?: Long}; entity tool;
action "tool.invoke" appliesTo {principal: user, resource: tool, context: {purpose?: String}};`),
		"config.yaml": []byte("undeclared_attributes: drop\nparents: {}\n"),
	}
	const good = "{subject: {type: user, id: a}, action: {name: tool.invoke}, resource: {type: tool, id: d}}"
	const hint = "; a test of such a denial says unknown: true"
	for request, want := range map[string]string{
		good: "pass",
		"{subject: {type: user, id: a}, action: {name: tool.invok}, resource: {type: tool, id: d}}":                                      "the schema has no action tool.invok (did you mean tool.invoke?)" + hint,
		"{subject: {type: usr, id: a}, action: {name: tool.invoke}, resource: {type: toool, id: d}}":                                     `subject: the schema has no entity type usr (did you mean "user"?); resource: the schema has no entity type toool (did you mean "tool"?)` + hint,
		"{subject: {type: user, id: a, properties: {levl: 1}}, action: {name: tool.invoke}, resource: {type: tool, id: d}}":              `the schema does not declare subject.properties.levl (did you mean "level"?)` + hint,
		"{subject: {type: user, id: a, properties: {other: 1}}, action: {name: tool.invoke}, resource: {type: tool, id: d}}":             "pass",
		"{subject: {type: user, id: a}, action: {name: tool.invoke}, resource: {type: tool, id: d}, context: {purpos: a, approval: {}}}": `the schema does not declare context.purpos (did you mean "purpose"?)` + hint,
	} {
		for _, unknown := range []bool{false, true} {
			src, want := "tests:\n- name: n\n  request: "+request+"\n  decision: false\n", want
			if unknown {
				src, want = src+"  unknown: true\n", "pass"
			}
			tests, err := policytest.Load(store(src))
			if err != nil {
				t.Fatal(err)
			}
			result := run(t, compile(t, archive), tests).Results[0]
			if got := result.String(); !strings.HasPrefix(got, "tests/a.yaml:2: n: "+want) {
				t.Errorf("%s: %s\nwant %s", request, got, want)
			}
			if result.Pass() != (want == "pass") {
				t.Errorf("%s: Pass is %v", request, result.Pass())
			}
		}
	}
}
