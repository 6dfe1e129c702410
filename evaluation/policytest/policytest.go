// Package policytest runs the tests of a policy store. A test is a request and its expected decision:
//
//	tests:
//	  - name: alice writes her own document
//	    request:
//	      subject: {type: user, id: alice}
//	      action: {name: write}
//	      resource: {type: document, id: d-1, properties: {owner: alice}}
//	      context: {ip: 192.0.2.1}
//	    decision: true
//	    policies: [owners-write]     # optional: the determining policies, exactly
//	    obligations: [notification]  # optional: the types of the obligations, exactly
//	    unknown: true                # optional: the request has names that the
//	                                 # schema does not declare
//	    time: 2026-01-31T12:00:00Z   # optional: the time of the decision
//	    approval: {template: sre}    # optional: the active approval, with
//	                                 # approvers, until, channel and uses_left
//
// A test that cannot be read exactly is a fault and never passes. Unknown keys are faults, names are
// unique in a file, and requests are parsed as strictly as those from a PEP.
//
// Tests are in files tests/*.yaml of the store, and tests of a tenant in
// tenants/<tenant>/tests/*.yaml. They are not part of a snapshot: a change to a test does not change
// the revision.
//
// [RunStore] decides the requests and computes the coverage of the policies. It returns a [Report],
// which can be written as text, JSON or JUnit XML. [FromEntry] converts a logged decision to a test.
package policytest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A Report holds the result of each test, in the given order, and the coverage of the policies. Its
// formats are in report.go.
type Report struct {
	Results  []Result
	Coverage Coverage
}

// Failed returns the results of the tests that did not pass.
func (r *Report) Failed() []Result {
	var failed []Result
	for _, result := range r.Results {
		if !result.Pass() {
			failed = append(failed, result)
		}
	}
	return failed
}

// A Result is the result of one test.
type Result struct {
	Test    Test
	Got     Expectation
	Errors  []string // policies whose evaluation failed, and unknown names
	Vacuous []string // unknown names for which the expected denial would pass with any policies
	Err     error    // why there is no decision, or nil

	// Explanation explains the decision of a test that did not pass.
	Explanation *explain.Explanation
}

// Run decides every request with the snapshot and compares the results. It fails only if ctx ends.
func Run(ctx context.Context, s *snapshot.Snapshot, tests []Test) (*Report, error) {
	report := &Report{Results: make([]Result, len(tests)), Coverage: newCoverage(explain.Sources(s))}
	for i, test := range tests {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		report.Results[i] = run(s, test, report.Coverage)
	}
	return report, nil
}

func run(s *snapshot.Snapshot, test Test, c Coverage) Result {
	env := snapshot.Environment{Time: test.Time, Approval: test.Approval, Capability: test.Capability}
	outcome, err := s.Decide(test.Request, env)
	if err != nil {
		return Result{Test: test, Err: err}
	}
	traces, err := explain.Traces(s, test.Request, env)
	if err != nil {
		return Result{Test: test, Err: err}
	}
	c.add(traces, outcome.Policies)
	result := newResult(test, outcome)
	for _, name := range vacuous(s, test) {
		result.Vacuous = append(result.Vacuous, sentence(name))
	}
	if !result.Pass() {
		result.Explanation, result.Err = explain.Explain(s, test.Request, env)
	}
	return result
}

func newResult(test Test, outcome *snapshot.Outcome) Result {
	result := Result{Test: test, Got: Expectation{Decision: outcome.Decision, Policies: sorted(outcome.Policies)}}
	for _, o := range outcome.Obligations {
		result.Got.Obligations = append(result.Got.Obligations, o.Type)
	}
	result.Got.Obligations = sorted(result.Got.Obligations)
	for _, e := range outcome.Errors {
		result.Errors = append(result.Errors, strings.TrimPrefix(e.Policy+": "+e.Message, ": "))
	}
	return result
}

// sorted returns a list of names in a comparable form: sorted and not nil.
func sorted(names []string) []string {
	out := append([]string{}, names...)
	slices.Sort(out)
	return out
}

// Pass reports whether the test got the expected result.
func (r Result) Pass() bool { return r.Err == nil && len(r.differences()) == 0 }

// String returns the result in one line, after the test's position in the file.
func (r Result) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", r.Test.File, r.Test.Line, r.Test.Name, r.outcome())
}

func (r Result) outcome() string {
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.Pass():
		return "pass"
	}
	lines := r.differences()
	for _, e := range r.Errors {
		lines = append(lines, "error "+e)
	}
	return strings.Join(lines, "; ")
}

func (r Result) differences() []string {
	var out []string
	want, got := r.Test.Want, r.Got
	if want.Decision != got.Decision {
		out = append(out, fmt.Sprintf("decision is %t, want %t", got.Decision, want.Decision))
	}
	if want.Policies != nil && !slices.Equal(want.Policies, got.Policies) {
		out = append(out, fmt.Sprintf("policies are %q, want %q", got.Policies, want.Policies))
	}
	if want.Obligations != nil && !slices.Equal(want.Obligations, got.Obligations) {
		out = append(out, fmt.Sprintf("obligations are %q, want %q", got.Obligations, want.Obligations))
	}
	if len(r.Vacuous) > 0 {
		out = append(append(out, r.Vacuous...), unknownHint)
	}
	return out
}
