package policytest

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/explain"
)

// Limits on the lines of one item in a text report.
const (
	explainedLines = 12 // for a test that did not pass
	shownGaps      = 20
)

// Text writes the report for people: the failed tests with expected and actual results and an
// explanation, then what the tests cover and what they do not.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	failed := r.Failed()
	for _, result := range failed {
		result.text(&b)
	}
	fmt.Fprintf(&b, "%d passed, %d failed\n", len(r.Results)-len(failed), len(failed))
	r.Coverage.text(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Result) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s:%d: %s\n", r.Test.File, r.Test.Line, r.Test.Name)
	if r.Err != nil {
		fmt.Fprintf(b, "    %v\n", r.Err)
	}
	for _, difference := range r.differences() {
		fmt.Fprintf(b, "    %s\n", difference)
	}
	for _, line := range r.explained() {
		fmt.Fprintf(b, "        %s\n", line)
	}
	b.WriteByte('\n')
}

// explained returns the first lines of the explanation.
func (r Result) explained() []string {
	if r.Explanation == nil {
		return nil
	}
	lines := slices.DeleteFunc(strings.Split(r.Explanation.String(), "\n"), func(line string) bool { return line == "" })
	return lines[:min(len(lines), explainedLines)]
}

func (c Coverage) text(b *strings.Builder) {
	fmt.Fprintf(b, "coverage %.1f%%: %s policies determine a decision, %s outcomes of conditions are seen\n",
		c.Share().Percent(), c.Determined(), c.Conditions())
	gaps := c.Gaps()
	for _, gap := range gaps[:min(len(gaps), shownGaps)] {
		fmt.Fprintf(b, "    %s\n", gap)
	}
	if left := len(gaps) - shownGaps; left > 0 {
		fmt.Fprintf(b, "    … and %d more\n", left)
	}
}

// MarshalJSONTo writes the report as one JSON object.
func (r *Report) MarshalJSONTo(enc *jsontext.Encoder) error {
	failed := len(r.Failed())
	out := reportJSON{
		Passed: len(r.Results) - failed,
		Failed: failed,
		Tests:  make([]resultJSON, len(r.Results)),
		Coverage: coverageJSON{
			Percent:    r.Coverage.Share().Percent(),
			Determined: r.Coverage.Determined(),
			Conditions: r.Coverage.Conditions(),
			Gaps:       r.Coverage.Gaps(),
			Coverage:   r.Coverage,
		},
	}
	for i, result := range r.Results {
		out.Tests[i] = result.json()
	}
	return json.MarshalEncode(enc, out)
}

// JSON writes the report as indented JSON.
func (r *Report) JSON(w io.Writer) error {
	if err := json.MarshalWrite(w, r, jsontext.Multiline(true)); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

type reportJSON struct {
	Passed   int          `json:"passed"`
	Failed   int          `json:"failed"`
	Coverage coverageJSON `json:"coverage"`
	Tests    []resultJSON `json:"tests"`
}

type coverageJSON struct {
	Percent    float64 `json:"percent"`
	Determined Share   `json:"determined"`
	Conditions Share   `json:"conditions"`
	Gaps       []Gap   `json:"gaps,omitempty"`
	Coverage
}

type resultJSON struct {
	Name        string               `json:"name"`
	Tenant      string               `json:"tenant,omitzero"`
	File        string               `json:"file"`
	Line        int                  `json:"line"`
	Pass        bool                 `json:"pass"`
	Want        Expectation          `json:"want"`
	Got         *Expectation         `json:"got,omitzero"`
	Differences []string             `json:"differences,omitempty"`
	Errors      []string             `json:"errors,omitempty"`
	Problem     string               `json:"problem,omitzero"` // why there is no decision
	Explanation *explain.Explanation `json:"explanation,omitzero"`
}

func (r Result) json() resultJSON {
	out := resultJSON{
		Name:        r.Test.Name,
		Tenant:      r.Test.Tenant,
		File:        r.Test.File,
		Line:        r.Test.Line,
		Pass:        r.Pass(),
		Want:        r.Test.Want,
		Explanation: r.Explanation,
	}
	if r.Err != nil {
		out.Problem = r.Err.Error()
		return out
	}
	out.Got, out.Differences, out.Errors = &r.Got, r.differences(), r.Errors
	return out
}
