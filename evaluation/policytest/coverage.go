package policytest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/explain"
)

// ErrCoverage means that the tests cover less of the policies than required.
var ErrCoverage = errors.New("the tests cover too little of the policies")

// Coverage is the part of the policies that the tests cover. A policy counts as covered when it has
// determined a decision. A condition has two outcomes, true and false, and each counts as much as a
// policy.
type Coverage struct {
	Policies []PolicyCoverage `json:"policies"` // in the order of their ids and files
}

// A PolicyCoverage counts the tests that concern a policy.
type PolicyCoverage struct {
	explain.Citation
	Reached     int                 `json:"reached"`     // tests that satisfy its scope
	Determining int                 `json:"determining"` // tests whose decision it determined
	Conditions  []ConditionCoverage `json:"conditions,omitempty"`
}

// A ConditionCoverage counts the results of a condition in the tests that reached it.
type ConditionCoverage struct {
	cedarsyntax.Condition
	True   int `json:"true"`
	False  int `json:"false"`
	Errors int `json:"errors,omitzero"`
}

// A Share is the number of covered items of a total.
type Share struct {
	Tried int `json:"tried"`
	Of    int `json:"of"`
}

// Percent returns the share in percent. The share of an empty total is 100.
func (s Share) Percent() float64 {
	if s.Of == 0 {
		return 100
	}
	return 100 * float64(s.Tried) / float64(s.Of)
}

// String returns the share as "1 of 2".
func (s Share) String() string { return fmt.Sprintf("%d of %d", s.Tried, s.Of) }

func (s Share) plus(other Share) Share { return Share{s.Tried + other.Tried, s.Of + other.Of} }

func (s *Share) count(tried bool) {
	s.Of++
	if tried {
		s.Tried++
	}
}

// Determined returns the share of policies that determined a decision.
func (c Coverage) Determined() Share {
	var s Share
	for _, p := range c.Policies {
		s.count(p.Determining > 0)
	}
	return s
}

// Conditions returns the share of covered outcomes of conditions, two for each.
func (c Coverage) Conditions() Share {
	var s Share
	for _, p := range c.Policies {
		for _, condition := range p.Conditions {
			s.count(condition.True > 0)
			s.count(condition.False > 0)
		}
	}
	return s
}

// Share returns the share of policies and outcomes together.
func (c Coverage) Share() Share { return c.Determined().plus(c.Conditions()) }

// A Gap is a part of a policy that no test covers.
type Gap struct {
	File string `json:"file"`
	Line int    `json:"line"`
	What string `json:"what"`
}

// String returns the gap with its position, on one line.
func (g Gap) String() string { return fmt.Sprintf("%s:%d: %s", g.File, g.Line, g.What) }

// Gaps lists what no test covers, in the order of the files. If no test satisfies a policy's scope, it
// lists only the policy.
func (c Coverage) Gaps() []Gap {
	var gaps []Gap
	for _, p := range c.Policies {
		gaps = append(gaps, p.gaps()...)
	}
	slices.SortStableFunc(gaps, func(a, b Gap) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return gaps
}

func (p PolicyCoverage) gaps() []Gap {
	policy := p.Effect + " " + p.Policy
	if p.Reached == 0 {
		return []Gap{{p.File, p.Line, policy + " is never reached"}}
	}
	var gaps []Gap
	if p.Determining == 0 {
		gaps = append(gaps, Gap{p.File, p.Line, policy + " never determines a decision"})
	}
	for _, condition := range p.Conditions {
		if missing := condition.missing(); missing != "" {
			gaps = append(gaps, Gap{p.File, condition.Line, condition.Text + " " + missing})
		}
	}
	return gaps
}

func (c ConditionCoverage) missing() string {
	switch {
	case c.True+c.False+c.Errors == 0:
		return "is never reached"
	case c.True+c.False == 0:
		return "is always an error"
	case c.True == 0:
		return "never holds"
	case c.False == 0:
		return "always holds"
	}
	return ""
}

// newCoverage returns the coverage of an empty set of tests.
func newCoverage(sources []explain.Source) Coverage {
	c := Coverage{Policies: make([]PolicyCoverage, len(sources))}
	for i, source := range sources {
		c.Policies[i].Citation = source.Citation
		for _, condition := range source.Conditions {
			c.Policies[i].Conditions = append(c.Policies[i].Conditions, ConditionCoverage{Condition: condition})
		}
	}
	return c
}

// add counts one decision, given the traces of its policies.
func (c Coverage) add(traces []explain.Trace, determining []string) {
	for _, trace := range traces {
		p := c.policy(trace.Policy)
		p.add(trace)
		if slices.Contains(determining, trace.Policy) {
			p.Determining++
		}
	}
}

// merge adds the coverage of other tests. A policy counts once, whichever tenant's tests evaluate it.
func (c *Coverage) merge(other Coverage) {
	own := make(map[explain.Citation]int, len(c.Policies))
	for i, p := range c.Policies {
		own[p.Citation] = i
	}
	for _, p := range other.Policies {
		if i, found := own[p.Citation]; found {
			c.Policies[i].merge(p)
		} else {
			c.Policies = append(c.Policies, p)
		}
	}
	slices.SortStableFunc(c.Policies, func(a, b PolicyCoverage) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.File, b.File))
	})
}

func (p *PolicyCoverage) merge(other PolicyCoverage) {
	p.Reached += other.Reached
	p.Determining += other.Determining
	for i, c := range other.Conditions {
		p.Conditions[i].True += c.True
		p.Conditions[i].False += c.False
		p.Conditions[i].Errors += c.Errors
	}
}

func (c Coverage) policy(id string) *PolicyCoverage {
	i, _ := slices.BinarySearchFunc(c.Policies, id, func(p PolicyCoverage, id string) int { return strings.Compare(p.Policy, id) })
	return &c.Policies[i]
}

func (p *PolicyCoverage) add(trace explain.Trace) {
	p.Reached++
	for i, step := range trace.Conditions {
		p.Conditions[i].add(step.Verdict)
	}
}

func (c *ConditionCoverage) add(v explain.Verdict) {
	switch v {
	case explain.VerdictTrue:
		c.True++
	case explain.VerdictFalse:
		c.False++
	case explain.VerdictError:
		c.Errors++
	}
}

// FailUnder returns ErrCoverage if the tests cover less than percent of the policies.
func (r *Report) FailUnder(percent float64) error {
	if tried := r.Coverage.Share().Percent(); tried < percent {
		return fmt.Errorf("%w: %.1f%%, less than %g%%", ErrCoverage, tried, percent)
	}
	return nil
}
