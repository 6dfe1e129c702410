// Package conformance checks whether a PDP conforms to AuthZEN 1.0. The PDP is a
// black box: requests go over HTTP, byte for byte as they are written in the
// tables of this package, and only answers count.
//
// The checks are those of two sources, under the names they have there:
//
//	basic-core … discovery      the levels of the OpenID AuthZEN certification
//	                            scenario, by anchor: c-2-2-1
//	authzen-pdp-…-test-plan     the modules of the OpenID Foundation's
//	                            conformance suite, by module name, once with the
//	                            endpoints of the specification (static) and once
//	                            with those of the metadata (discovery)
//	metadata-…                  the suite's conditions on identifier and metadata,
//	                            by condition name
//
// The PDP must serve the fixture that both ask for; the policy set
// certification is one. Where the scenario and the suite differ, the checks of
// each ask what it asks, so that a PDP that passes satisfies both. What the
// texts recommend (a warning in the suite) is required here.
//
// A check that can be written as requests and a demand on their answers is a
// row of a table, and a further API is a further table.
package conformance

import (
	"net/http"
	"testing"
	"time"
)

// A Target is the PDP under test.
type Target struct {
	// BaseURL is where requests go: http://127.0.0.1:8080, with the tenant's
	// path if there is one and without a slash at its end.
	BaseURL string
	// Identifier is what the PDP calls itself, an https URL. URLs of the
	// metadata that begin with it are asked for below BaseURL. "" is BaseURL.
	Identifier string
	// Authorization is the Authorization header of each request but that for
	// the metadata. Without it the PDP is asked without credentials and the
	// modules about credentials do not apply.
	Authorization string
	// Transport carries the requests. Nil is http.DefaultTransport.
	Transport http.RoundTripper
}

// A Level is a named list of checks.
type Level struct {
	Name   string
	Checks []Check
}

// A Check asks the PDP and says what is wrong with its answers.
type Check struct {
	Name string
	Run  func() error
}

// Run runs every check as a subtest of its name within its level's.
func Run(t *testing.T, target Target) {
	for _, level := range Levels(target) {
		t.Run(level.Name, func(t *testing.T) {
			for _, check := range level.Checks {
				t.Run(check.Name, func(t *testing.T) {
					if err := check.Run(); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// Levels returns every check that applies to the target.
func Levels(target Target) []Level {
	if target.Identifier == "" {
		target.Identifier = target.BaseURL
	}
	c := &caller{target: target, http: &http.Client{
		Transport:     target.Transport,
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	static, discovery := c.static(), c.discovery()
	return []Level{
		{"basic-core", static.checks(basicCore)},
		{"basic-properties", static.checks(basicProperties)},
		{"batch-core", static.checks(batchCore)},
		{"batch-properties", static.checks(batchProperties)},
		{"search-core", static.checks(searchCore)},
		{"search-properties", static.checks(searchProperties)},
		{"transport", append(static.checks(transport), c.conditions(transportConditions)...)},
		{"discovery", c.conditions(discoveryConditions)},
		{"metadata-static", c.conditions(staticConditions)},
		{"metadata-discovery", c.conditions(metadataConditions)},
		{"authzen-pdp-evaluation-test-plan/static", static.checks(evaluationModules(target))},
		{"authzen-pdp-evaluation-test-plan/discovery", discovery.checks(evaluationModules(target))},
		{"authzen-pdp-evaluations-test-plan/static", static.checks(evaluationsModules())},
		{"authzen-pdp-evaluations-test-plan/discovery", discovery.checks(evaluationsModules())},
		{"authzen-pdp-subject-search-test-plan/static", static.checks(subjectSearchModules())},
		{"authzen-pdp-subject-search-test-plan/discovery", discovery.checks(subjectSearchModules())},
		{"authzen-pdp-resource-search-test-plan/static", static.checks(resourceSearchModules())},
		{"authzen-pdp-resource-search-test-plan/discovery", discovery.checks(resourceSearchModules())},
		{"authzen-pdp-action-search-test-plan/static", static.checks(actionSearchModules())},
		{"authzen-pdp-action-search-test-plan/discovery", discovery.checks(actionSearchModules())},
	}
}
