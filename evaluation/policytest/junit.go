package policytest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// JUnit writes the report in JUnit XML for build servers: one suite for each file, in the order of the
// tests. A test without a decision is an error, and one with a different decision is a failure.
func (r *Report) JUnit(w io.Writer) error {
	out := junitReport{Name: "policies"}
	for _, result := range r.Results {
		out.add(result)
	}
	body, err := xml.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, body)
	return err
}

type junitReport struct {
	XMLName xml.Name `xml:"testsuites"`
	Name    string   `xml:"name,attr"`
	junitCounts
	Suites []*junitSuite `xml:"testsuite"`
}

type junitCounts struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Errors   int `xml:"errors,attr"`
}

type junitSuite struct {
	Name string `xml:"name,attr"`
	junitCounts
	Cases []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr"`
	Failure *junitProblem `xml:"failure"`
	Error   *junitProblem `xml:"error"`
}

type junitProblem struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (r *junitReport) add(result Result) {
	test := junitCase{Name: result.Test.Name, Class: result.Test.File, File: result.Test.File, Line: result.Test.Line}
	counts := junitCounts{Tests: 1}
	problem := &junitProblem{Message: result.outcome(), Text: strings.Join(result.explained(), "\n")}
	switch {
	case result.Err != nil:
		test.Error, counts.Errors = problem, 1
	case !result.Pass():
		test.Failure, counts.Failures = problem, 1
	}
	suite := r.suite(result.Test.File)
	suite.Cases = append(suite.Cases, test)
	suite.add(counts)
	r.junitCounts.add(counts)
}

// suite returns the suite of a file: the last one or a new one.
func (r *junitReport) suite(file string) *junitSuite {
	if n := len(r.Suites); n > 0 && r.Suites[n-1].Name == file {
		return r.Suites[n-1]
	}
	suite := &junitSuite{Name: file}
	r.Suites = append(r.Suites, suite)
	return suite
}

func (c *junitCounts) add(other junitCounts) {
	c.Tests += other.Tests
	c.Failures += other.Failures
	c.Errors += other.Errors
}
