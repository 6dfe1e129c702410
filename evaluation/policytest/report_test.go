package policytest_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// The policies and tests of which reports are made: something of everything.
var (
	reported = snapshot.Archive{"a.cedar": []byte(`@id("staff-read")
permit (principal, action == Action::"read", resource)
when { context.staff && context.hours < 17 }
unless { context.locked };

@id("nobody-drops")
forbid (principal, action == Action::"drop", resource);

@id("root-drops")
permit (principal == user::"root", action == Action::"drop", resource);

@id("guests-read")
permit (principal == guest::"g", action == Action::"read", resource)
when { context.staff };
`)}
	reportedTests = `
tests:
  - name: staff reads
    request:
      subject: &ann {type: user, id: ann}
      action: &read {name: read}
      resource: &doc {type: doc, id: d}
      context: {staff: true, hours: 9, locked: false}
    decision: true
  - name: "staff reads <late> & \"long\""
    request: {subject: *ann, action: *read, resource: *doc, context: {staff: true, hours: 20, locked: false}}
    decision: true
    policies: [staff-read]
  - name: root drops
    request: {subject: {type: user, id: root}, action: {name: drop}, resource: *doc}
    decision: false
  - name: refused
    request: {subject: *ann, action: *read, resource: *doc, context: {action: {}}}
    decision: false
`
)

func report(t *testing.T, archive snapshot.Archive, src string) *policytest.Report {
	t.Helper()
	tests, err := policytest.Load(store(src))
	if err != nil {
		t.Fatal(err)
	}
	return run(t, compile(t, archive), tests)
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := report(t, reported, reportedTests).Text(&b); err != nil {
		t.Fatal(err)
	}
	want := `tests/a.yaml:10: staff reads <late> & "long"
    decision is false, want true
    policies are [], want ["staff-read"]
        deny (user::"ann", Action::"read", doc::"d")
            no permit applies
        nearest permits
            a.cedar:1: permit staff-read
                a.cedar:3: when { context.hours < 17 } does not hold
                    context.hours is 20
            a.cedar:12: permit guests-read
                principal is user::"ann", not guest::"g"
        what would change the answer
            staff-read permits, given context.hours < 17

tests/a.yaml:17: refused
    /context/action is where policies find the action's properties: send those

2 passed, 2 failed
coverage 50.0%: 2 of 4 policies determine a decision, 4 of 8 outcomes of conditions are seen
    a.cedar:3: when { context.staff } always holds
    a.cedar:4: unless { context.locked } always holds
    a.cedar:9: permit root-drops never determines a decision
    a.cedar:12: permit guests-read is never reached
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := report(t, reported, reportedTests).JSON(&b); err != nil {
		t.Fatal(err)
	}
	type test struct {
		Name, Problem string
		Line          int
		Pass          bool
		Want, Got     jsontext.Value
		Differences   []string
		Explanation   *struct{ Because string }
	}
	var got struct {
		Passed, Failed int
		Coverage       jsontext.Value
		Tests          []test
	}
	if err := json.Unmarshal([]byte(b.String()), &got, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if got.Passed != 2 || got.Failed != 2 {
		t.Errorf("%d passed, %d failed", got.Passed, got.Failed)
	}
	_ = got.Coverage.Compact()
	wantCoverage := `{"percent":50,"determined":{"tried":2,"of":4},"conditions":{"tried":4,"of":8},` +
		`"gaps":[{"file":"a.cedar","line":3,"what":"when { context.staff } always holds"},{"file":"a.cedar","line":4,"what":"unless { context.locked } always holds"},` +
		`{"file":"a.cedar","line":9,"what":"permit root-drops never determines a decision"},{"file":"a.cedar","line":12,"what":"permit guests-read is never reached"}],` +
		`"policies":[{"policy":"guests-read","effect":"permit","file":"a.cedar","line":12,"reached":0,"determining":0,"conditions":[{"line":14,"text":"when { context.staff }","true":0,"false":0}]},` +
		`{"policy":"nobody-drops","effect":"forbid","file":"a.cedar","line":6,"reached":1,"determining":1},` +
		`{"policy":"root-drops","effect":"permit","file":"a.cedar","line":9,"reached":1,"determining":0},` +
		`{"policy":"staff-read","effect":"permit","file":"a.cedar","line":1,"reached":2,"determining":1,"conditions":[{"line":3,"text":"when { context.staff }","true":2,"false":0},` +
		`{"line":3,"text":"when { context.hours < 17 }","true":1,"false":1},{"line":4,"text":"unless { context.locked }","true":1,"false":0}]}]}`
	if diff := cmp.Diff(wantCoverage, string(got.Coverage)); diff != "" {
		t.Errorf("coverage (-want +got):\n%s", diff)
	}
	second := got.Tests[1]
	_, _ = second.Want.Compact(), second.Got.Compact()
	want := test{
		Name: `staff reads <late> & "long"`, Line: 10,
		Want: jsontext.Value(`{"decision":true,"policies":["staff-read"]}`), Got: jsontext.Value(`{"decision":false,"policies":[],"obligations":[]}`),
		Differences: []string{"decision is false, want true", `policies are [], want ["staff-read"]`},
		Explanation: &struct{ Because string }{"no permit applies"},
	}
	if diff := cmp.Diff(want, second); diff != "" {
		t.Errorf("test (-want +got):\n%s", diff)
	}
	if last := got.Tests[3]; last.Pass || last.Problem == "" || last.Got != nil || last.Explanation != nil {
		t.Errorf("the request that is refused is %+v", last)
	}
}

func TestJUnit(t *testing.T) {
	var b strings.Builder
	if err := report(t, reported, reportedTests).JUnit(&b); err != nil {
		t.Fatal(err)
	}
	want := `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="policies" tests="4" failures="1" errors="1">
  <testsuite name="tests/a.yaml" tests="4" failures="1" errors="1">
    <testcase name="staff reads" classname="tests/a.yaml" file="tests/a.yaml" line="3"></testcase>
    <testcase name="staff reads &lt;late&gt; &amp; &#34;long&#34;" classname="tests/a.yaml" file="tests/a.yaml" line="10">
      <failure message="decision is false, want true; policies are [], want [&#34;staff-read&#34;]">deny (user`
	if !strings.HasPrefix(b.String(), want) {
		t.Error(cmp.Diff(want, b.String()))
	}
	var parsed struct {
		Suites []struct {
			Cases []struct {
				Failure, Error *struct {
					Message string `xml:"message,attr"`
					Text    string `xml:",chardata"`
				}
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(strings.NewReplacer("failure", "Failure", "error>", "Error>", "<error", "<Error").Replace(b.String())), &parsed); err != nil {
		t.Fatal(err)
	}
	cases := parsed.Suites[0].Cases
	if cases[3].Error == nil || !strings.HasPrefix(cases[3].Error.Message, "/context/action ") {
		t.Errorf("the request that is refused is %+v", cases[3])
	}
	if !strings.Contains(cases[1].Failure.Text, "context.hours is 20\n") {
		t.Errorf("the failure says %q", cases[1].Failure.Text)
	}
}

func TestFailUnder(t *testing.T) {
	r := report(t, reported, reportedTests)
	if err := r.FailUnder(50); err != nil {
		t.Error(err)
	}
	err := r.FailUnder(50.1)
	if !errors.Is(err, policytest.ErrCoverage) || err.Error() != "the tests cover too little of the policies: 50.0%, less than 50.1%" {
		t.Error(err)
	}
	empty := report(t, snapshot.Archive{}, "tests: []\n")
	if err := empty.FailUnder(100); err != nil {
		t.Errorf("of no policies: %v", err)
	}
}

// An error of a condition is neither outcome, and ends what is reached.
func TestCoverageOfErrors(t *testing.T) {
	r := report(t, reported, `
tests:
  - name: no hours
    request: {subject: {type: user, id: ann}, action: {name: read}, resource: {type: doc, id: d}, context: {staff: true}}
    decision: false
`)
	i := len(r.Coverage.Policies) - 1
	var got []string
	for _, c := range r.Coverage.Policies[i].Conditions {
		got = append(got, fmt.Sprint(c.True, c.False, c.Errors))
	}
	if diff := cmp.Diff([]string{"1 0 0", "0 0 1", "0 0 0"}, got); diff != "" {
		t.Errorf("true, false, errors (-want +got):\n%s", diff)
	}
	want := []string{
		"a.cedar:1: permit staff-read never determines a decision",
		"a.cedar:3: when { context.staff } always holds",
		"a.cedar:3: when { context.hours < 17 } is always an error",
		"a.cedar:4: unless { context.locked } is never reached",
		"a.cedar:6: forbid nobody-drops is never reached",
		"a.cedar:9: permit root-drops is never reached",
		"a.cedar:12: permit guests-read is never reached",
	}
	got = nil
	for _, gap := range r.Coverage.Gaps() {
		got = append(got, gap.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
}
