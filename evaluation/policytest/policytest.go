// Package policytest runs the tests that stand beside the policies of a policy
// store. A test is a request and the decision that is wanted of it:
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
//	    time: 2026-01-31T12:00:00Z   # optional: when the decision is made
//
// The law it keeps: a test that would be misread is a fault, not a test that
// passes. Keys that are not known are faults, a name stands for one test of its
// file, and a request is read as strictly as one from a PEP.
//
// Tests are in files tests/*.yaml of the store. They are no part of a snapshot:
// a change of a test is no new revision.
package policytest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/evaluation"
)

// A Report is what became of each test, in the order in which they were given.
type Report struct {
	Results []Result
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
	Test   Test
	Got    Expectation
	Errors []string // of policies that could not be evaluated, and of names nobody knows
	Err    error    // why there is no decision, or nil
}

// Run decides every request by the snapshot and compares.
func Run(s *evaluation.Snapshot, tests []Test) *Report {
	report := &Report{Results: make([]Result, len(tests))}
	for i, test := range tests {
		report.Results[i] = run(s, test)
	}
	return report
}

func run(s *evaluation.Snapshot, test Test) Result {
	outcome, err := s.Decide(test.Request, evaluation.Environment{Time: test.Time})
	if err != nil {
		return Result{Test: test, Err: err}
	}
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
	place := fmt.Sprintf("%s:%d: %s: ", r.Test.File, r.Test.Line, r.Test.Name)
	switch {
	case r.Err != nil:
		return place + r.Err.Error()
	case r.Pass():
		return place + "pass"
	}
	lines := r.differences()
	for _, e := range r.Errors {
		lines = append(lines, "error "+e)
	}
	return place + strings.Join(lines, "; ")
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
	return out
}
