package policytest_test

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/policies"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// run runs tests, and waits for their end.
func run(t *testing.T, s *snapshot.Snapshot, tests []policytest.Test) *policytest.Report {
	t.Helper()
	report, err := policytest.Run(t.Context(), s, tests)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestEmbeddedSets(t *testing.T) {
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			set, err := policies.Set(name)
			if err != nil {
				t.Fatal(err)
			}
			tests, err := policytest.Load(set)
			if err != nil {
				t.Fatal(err)
			}
			if len(tests) == 0 {
				t.Fatal("there are no tests")
			}
			archive, err := policystore.Read(set)
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range run(t, compile(t, archive), tests).Failed() {
				t.Error(result)
			}
		})
	}
}

// The capabilities of agent-tools are one more way to a permit. Without one, every request is decided as by
// the policies without them, and with one, nothing is denied that they permit.
func TestCapabilitiesOnlyAdd(t *testing.T) {
	set, err := policies.Set("agent-tools")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := policystore.Read(set)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := policytest.Load(set)
	if err != nil {
		t.Fatal(err)
	}
	with := compile(t, archive)
	before := maps.Clone(archive)
	delete(before, "capabilities.cedar")
	delete(before, "config.yaml")
	before["config.yaml"] = bytes.Split(archive["config.yaml"], []byte("  # What approves a capability"))[0]
	without := compile(t, before)
	freed := 0
	for _, test := range tests {
		if strings.HasPrefix(test.Request.Action.Name, "capability.") || strings.Contains(string(test.Request.Resource.Properties), "tool-grant") {
			continue // which only the new policies are about
		}
		env := snapshot.Environment{Time: test.Time, Approval: test.Approval}
		old, err := without.Decide(test.Request, env)
		if err != nil {
			t.Fatal(err)
		}
		same, err := with.Decide(test.Request, env)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(old, same); diff != "" {
			t.Errorf("%s: decided otherwise (-before +after):\n%s", test.Name, diff)
		}
		env.Capability = &authzen.VerifiedCapability{ID: "cap_1", Bound: "identity"}
		held, err := with.Decide(test.Request, env)
		if err != nil {
			t.Fatal(err)
		}
		if old.Decision && !held.Decision || len(held.Obligations) > len(old.Obligations) {
			t.Errorf("%s: a capability takes something away", test.Name)
		}
		if len(held.Obligations) < len(old.Obligations) {
			freed++
		}
	}
	if freed == 0 {
		t.Error("a capability gives nothing")
	}
}

func compile(t *testing.T, archive snapshot.Archive) *snapshot.Snapshot {
	t.Helper()
	snapshot, err := snapshot.Compile(archive)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

// A test may give the approval that stands, and it is all that policies see of
// it: what its request claims is nothing.
func TestApproval(t *testing.T) {
	const request = "request: {subject: {type: user, id: a}, action: {name: b}, resource: {type: doc, id: c}, context: {approval: {template: sre}}}"
	snapshot := compile(t, snapshot.Archive{"a.cedar": []byte(`@id("p") permit (principal, action, resource) when {
		context.approval.template == "sre" && context.approval.approvers.contains(user::"carol") && context.approval.uses_left == 1 &&
		context.approval.channel == "admin" && context.approval.until == datetime("2026-11-20T09:00:00Z") };`)})
	for approval, want := range map[string]bool{
		"": false,
		"approval: {template: sre, approvers: [{type: user, id: carol}], until: 2026-11-20T09:00:00Z, channel: admin, uses_left: 1}":   true,
		"approval: {template: other, approvers: [{type: user, id: carol}], until: 2026-11-20T09:00:00Z, channel: admin, uses_left: 1}": false,
	} {
		tests, err := policytest.Load(store("tests:\n  - name: n\n    " + request + "\n    decision: true\n    " + approval + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := run(t, snapshot, tests).Results[0].Got.Decision; got != want {
			t.Errorf("%q: %v", approval, got)
		}
	}
	for approval, want := range map[string]string{
		"{}":                           "approval: template is required",
		"{template: sre, until: soon}": "approval: until is \"soon\"",
		"{templates: sre}":             "unknown field",
	} {
		_, err := policytest.Load(store("tests:\n  - name: n\n    " + request + "\n    decision: true\n    approval: " + approval + "\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", approval, err)
		}
	}
}

// store has one test file.
func store(src string) fstest.MapFS {
	return fstest.MapFS{"tests/a.yaml": {Data: []byte(src)}}
}

// The snapshot that the tests below are about permits alice to read and asks
// her to tell dora.
var archive = snapshot.Archive{"a.cedar": []byte(`
@id("alice-reads")
@obligation_notification("{\"to\":\"dora\",\"body\":\"alice reads\"}")
permit (principal == user::"alice", action == Action::"read", resource);

@id("read-by-number")
permit (principal == user::"7", action, resource) when { context.level == 7 && context.tags.contains("x") };
`)}

func TestRun(t *testing.T) {
	for name, tt := range map[string]struct {
		wants string // what the test file wants of alice reading
		fails string // what the result says, or ""
	}{
		"decision":        {"decision: true", ""},
		"everything":      {"decision: true\n    policies: [alice-reads]\n    obligations: [notification]", ""},
		"another":         {"decision: false", "decision is true, want false"},
		"other policies":  {"decision: true\n    policies: [bob-reads]", `policies are ["alice-reads"], want ["bob-reads"]`},
		"no policies":     {"decision: true\n    policies: []", `policies are ["alice-reads"], want []`},
		"more policies":   {"decision: true\n    policies: [alice-reads, bob-reads]", `policies are ["alice-reads"], want ["alice-reads" "bob-reads"]`},
		"no obligations":  {"decision: true\n    obligations: []", `obligations are ["notification"], want []`},
		"all differences": {"decision: false\n    policies: []", `decision is true, want false; policies are ["alice-reads"], want []`},
	} {
		t.Run(name, func(t *testing.T) {
			tests, err := policytest.Load(store(`
tests:
  - name: alice
    request: {subject: {type: user, id: alice}, action: {name: read}, resource: {type: doc, id: d}}
    ` + tt.wants + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			result := run(t, compile(t, archive), tests).Results[0]
			want := "tests/a.yaml:3: alice: " + tt.fails
			if tt.fails == "" {
				want += "pass"
			}
			if diff := cmp.Diff(want, result.String()); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if result.Pass() != (tt.fails == "") {
				t.Errorf("Pass is %v", result.Pass())
			}
		})
	}
}

// What YAML knows of types is what JSON would have said, and anchors hold
// throughout a file.
func TestValues(t *testing.T) {
	tests, err := policytest.Load(store(`
tests:
  - name: first
    request:
      subject: &seven {type: user, id: "7"}
      action: &read {name: read}
      resource: &doc {type: doc, id: d}
      context: &context {level: 7, tags: [x, y], nothing: null, deep: {a: [1.5, true]}}
    decision: true
  - name: second
    request: {subject: *seven, action: *read, resource: *doc, context: *context}
    decision: true
`))
	if err != nil {
		t.Fatal(err)
	}
	report := run(t, compile(t, archive), tests)
	if len(report.Results) != 2 {
		t.Errorf("there are %d results", len(report.Results))
	}
	for _, result := range report.Failed() {
		t.Error(result)
	}
	want := `{"deep":{"a":[1.5,true]},"level":7,"nothing":null,"tags":["x","y"]}`
	for _, test := range tests {
		if diff := cmp.Diff(want, string(test.Request.Context)); diff != "" {
			t.Errorf("%s: context (-want +got):\n%s", test.Name, diff)
		}
	}
}

// A policy that looks at the clock is tested at a time of the test's choice.
func TestTime(t *testing.T) {
	opening := snapshot.Archive{
		"a.cedar":     []byte(`@id("from-nine") permit (principal, action, resource) when { context.now.toTime() >= duration("9h") };`),
		"config.yaml": []byte("clock: now\n"),
	}
	tests, err := policytest.Load(store(`
tests:
  - name: before nine
    request: &any {subject: {type: user, id: alice}, action: {name: read}, resource: {type: doc, id: d}}
    time: 2026-01-31T08:59:59Z
    decision: false
  - name: at nine
    request: *any
    time: 2026-01-31T10:00:00+01:00
    decision: true
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range run(t, compile(t, opening), tests).Failed() {
		t.Error(result)
	}
}

// A request that the snapshot refuses is a failure, never a wanted denial.
func TestRefusedRequestFails(t *testing.T) {
	tests, err := policytest.Load(store(`
tests:
  - name: reserved
    request: {subject: {type: user, id: alice}, action: {name: read}, resource: {type: doc, id: d}, context: {action: {}}}
    decision: false
`))
	if err != nil {
		t.Fatal(err)
	}
	result := run(t, compile(t, archive), tests).Results[0]
	if result.Err == nil || result.Pass() {
		t.Error(result)
	}
}

func TestLoadFaults(t *testing.T) {
	const request = "request: {subject: {type: user, id: a}, action: {name: b}, resource: {type: doc, id: c}}"
	for name, tt := range map[string]struct{ src, want string }{
		"unknown top":     {"tests: []\ntest: []\n", `tests/a.yaml:2:1: unknown field "test" (did you mean "tests"?)`},
		"unknown key":     {"tests:\n- name: a\n  " + request + "\n  decison: true\n", `tests/a.yaml:4:3: unknown field "decison" (did you mean "decision"?)`},
		"unknown member":  {"tests:\n- name: a\n  request:\n    subjet: {}\n  decision: true\n", `tests/a.yaml:4:5: unknown field "subjet" (did you mean "subject"?)`},
		"unknown in part": {"tests:\n- name: a\n  request:\n    subject:\n      typ: user\n  decision: true\n", `tests/a.yaml:5:7: unknown field "typ" (did you mean "type"?)`},
		"key twice":       {"tests:\n- name: a\n  name: b\n", `tests/a.yaml:3:3: mapping key "name" already defined at [2:3]`},
		"no name":         {"tests:\n- " + request + "\n  decision: true\n", `tests/a.yaml:2:3: name is required`},
		"no request":      {"tests:\n- name: a\n  decision: true\n", `tests/a.yaml:2:3: "a": request is required`},
		"no decision":     {"tests:\n- name: a\n  " + request + "\n", `tests/a.yaml:2:3: "a": decision is required`},
		"no subject":      {"tests:\n- name: a\n  request: {action: {name: b}, resource: {type: doc, id: c}}\n  decision: true\n", `tests/a.yaml:2:3: "a": /subject is required`},
		"no id":           {"tests:\n- name: a\n  request: {subject: {type: user}, action: {name: b}, resource: {type: doc, id: c}}\n  decision: true\n", `tests/a.yaml:2:3: "a": /subject/id is required`},
		"number for id":   {"tests:\n- name: a\n  request: {subject: {type: user, id: 1}, action: {name: b}, resource: {type: doc, id: c}}\n  decision: true\n", `tests/a.yaml:2:3: "a": /subject/id must be a string, not a number`},
		"text for truth":  {"tests:\n- name: a\n  " + request + "\n  decision: yes\n", `tests/a.yaml:4:13: tests.0.decision: must be true or false, not "yes"`},
		"no time":         {"tests:\n- name: a\n  " + request + "\n  decision: true\n  time: noon\n", `tests/a.yaml:2:3: "a": time is "noon", not of the form 2026-01-31T12:00:00Z`},
		"no test":         {"tests:\n- \n", `tests/a.yaml:2:3: a test is empty`},
		"not understood":  {"tests: !0 0\n", `tests/a.yaml:1:8: the tag "!0" is not understood (leave it out)`},
		"nothing":         {"", `tests/a.yaml:1:1: there is no list of tests`},
		"two documents":   {"tests: []\n---\ntests: []\n", `tests/a.yaml:3:1: there is more than one document (leave out what is behind ---)`},
		"name twice":      {"tests:\n- name: a\n  " + request + "\n  decision: true\n- name: a\n  " + request + "\n  decision: false\n", `tests/a.yaml:5:3: "a" names two tests`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policytest.Load(store(tt.src))
			var problems faults.List
			if !errors.As(err, &problems) {
				t.Fatalf("%v is no Faults", err)
			}
			if diff := cmp.Diff(tt.want, problems.Error()); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// Every file has its say before Load fails.
func TestLoadReportsAll(t *testing.T) {
	_, err := policytest.Load(fstest.MapFS{
		"tests/a.yaml": {Data: []byte("tests: 7\n")},
		"tests/b.yaml": {Data: []byte("tests:\n- name: one\n- name: two\n")},
		"tests/c.yaml": {Data: []byte("tests: [\n")},
		"other.yaml":   {Data: []byte("tests: 7\n")},
	})
	var problems faults.List
	if !errors.As(err, &problems) {
		t.Fatalf("%v is no Faults", err)
	}
	var files []string
	for _, fault := range problems {
		files = append(files, fault.File)
	}
	if diff := cmp.Diff([]string{"tests/a.yaml", "tests/b.yaml", "tests/b.yaml", "tests/c.yaml"}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s\n%v", diff, err)
	}
}

// Whatever a file of tests holds, it is tests or it is faults.
func FuzzLoad(f *testing.F) {
	for _, src := range []string{
		"", "tests: []", "tests: !0 0", "tests:\n- name: a\n", "tests: &a [*a]", "tests: [{name: a, request: {subject: {type: user, id: a}, action: {name: b}, resource: {type: c, id: d}}, decision: true}]",
		"? tests\n: - a", "tests:\n- <<: {name: b}\n  decision: true\n", "tests: |\n  x\n---\n", "a: &x {b: 1}\ntests:\n- *x\n",
	} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		if len(src) > 1<<10 {
			t.Skip("longer than what is new in it")
		}
		tests, err := policytest.Load(store(src))
		var problems faults.List
		if err != nil && (!errors.As(err, &problems) || tests != nil) {
			t.Errorf("%d tests and %v", len(tests), err)
		}
		for _, test := range tests {
			if test.Name == "" || test.Request == nil || test.Line < 1 {
				t.Errorf("%+v", test)
			}
		}
	})
}
