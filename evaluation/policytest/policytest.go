// Package policytest runs the tests of a policy store. A test is a request and
// the decision that it must have:
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
//	    time: 2026-01-31T12:00:00Z   # optional: when the decision is made
//	    approval: {template: sre}    # optional: the approval that stands, with
//	                                 # approvers, until, channel and uses_left
//
// The law it keeps: a test that would be misread is a fault, not a test that
// passes. Keys that are not known are faults, a name stands for one test of its
// file, and a request is read as strictly as one from a PEP.
//
// Tests are in files tests/*.yaml of the store, and tests of a tenant in
// tenants/<tenant>/tests/*.yaml. They are no part of a snapshot: a change of a
// test is no new revision.
//
// [RunStore] decides the requests and says what of the policies they have tried: a
// [Report] is written as text, JSON or JUnit XML. [FromEntry] makes a test of
// a decision in the log.
package policytest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A Report is what became of each test, in the order in which they were given,
// and what of the policies they have tried. How it is written is in report.go.
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

// A Result is what became of one test.
type Result struct {
	Test    Test
	Got     Expectation
	Errors  []string // of policies that could not be evaluated, and of names nobody knows
	Vacuous []string // names for which the wanted denial would pass whatever the policies say
	Err     error    // why there is no decision, or nil

	// Explanation says how the decision of a test that did not pass came about.
	Explanation *explain.Explanation
}

// Run decides every request by the snapshot and compares.
func Run(s *snapshot.Snapshot, tests []Test) *Report {
	report := &Report{Results: make([]Result, len(tests)), Coverage: newCoverage(explain.Sources(s))}
	for i, test := range tests {
		report.Results[i] = run(s, test, report.Coverage)
	}
	return report
}

func run(s *snapshot.Snapshot, test Test, c Coverage) Result {
	env := snapshot.Environment{Time: test.Time, Approval: test.Approval}
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

// sorted returns a list of names as it is compared: in order, and not nil.
func sorted(names []string) []string {
	out := append([]string{}, names...)
	slices.Sort(out)
	return out
}

// Pass reports whether the test got what it wants.
func (r Result) Pass() bool { return r.Err == nil && len(r.differences()) == 0 }

// String says what became of the test in one line, after its place in the
// file.
func (r Result) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", r.Test.File, r.Test.Line, r.Test.Name, r.verdict())
}

func (r Result) verdict() string {
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
