package console

import (
	"net/http"
)

// A testReport has the results of the tests of the policy store.
type testReport struct {
	Revision string   `json:"revision"`
	InForce  bool     `json:"in_force"`
	Running  bool     `json:"running"`
	Seconds  float64  `json:"seconds"`
	Faults   []fault  `json:"faults"`
	Problem  string   `json:"problem"`
	Report   *results `json:"report"`
}

type results struct {
	Passed   int           `json:"passed"`
	Failed   int           `json:"failed"`
	Tests    []testResult  `json:"tests"`
	Coverage coverageShare `json:"coverage"`
}

type testResult struct {
	Name        string   `json:"name"`
	Tenant      string   `json:"tenant"`
	File        string   `json:"file"`
	Line        int      `json:"line"`
	Pass        bool     `json:"pass"`
	Differences []string `json:"differences"`
	Errors      []string `json:"errors"`
	Problem     string   `json:"problem"`
}

type coverageShare struct {
	Percent    float64 `json:"percent"`
	Determined share   `json:"determined"`
	Conditions share   `json:"conditions"`
	Gaps       []gap   `json:"gaps"`
}

type share struct {
	Tried int `json:"tried"`
	Of    int `json:"of"`
}

type gap struct {
	File string `json:"file"`
	Line int    `json:"line"`
	What string `json:"what"`
}

// Failed returns the tests that did not pass.
func (p testsPage) FailedTests() (failed []testResult) {
	if p.Report == nil {
		return nil
	}
	for _, test := range p.Report.Tests {
		if !test.Pass {
			failed = append(failed, test)
		}
	}
	return failed
}

type testsPage struct{ testReport }

// tests runs the tests of the policy store, or shows their last results if nothing has changed.
func (v *visit) tests() error {
	var page testsPage
	if err := v.ask(http.MethodGet, "/admin/v1/tests", nil, &page.testReport); err != nil {
		return err
	}
	if page.Running {
		v.w.Header().Set("Refresh", refreshAfter)
	}
	return v.show(http.StatusOK, "tests", "Tests", page)
}

// refreshAfter is the time in seconds after which a browser looks again at something that runs.
const refreshAfter = "2"

// A testSummary is what the overview says of the tests.
type testSummary struct {
	testReport
	Bar string // width of the covered share in percent
}

// lastTests returns the last results, without running tests. It returns nil if there are none yet.
func (v *visit) lastTests() (*testSummary, error) {
	var s testSummary
	if err := v.ask(http.MethodGet, "/admin/v1/tests?last=true", nil, &s.testReport); err != nil {
		return nil, err
	}
	if s.Report == nil && s.Faults == nil && s.Problem == "" {
		return nil, nil
	}
	if s.Report != nil {
		s.Bar = number(s.Report.Coverage.Percent) + "%"
	}
	return &s, nil
}
