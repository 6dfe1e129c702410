package policytest

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// ErrNoTest means that an entry of the decision log cannot be made a test.
var ErrNoTest = errors.New("this entry makes no test")

// FromEntry writes a decision of the log as a test file with one test, or one
// for each item of a batch: the request, at its time, must be decided as it
// was. line is the entry as the log exports it. The result reads back as that
// request exactly, or the error is ErrNoTest: so it is for an entry that
// records no evaluation, whose request is masked, or whose numbers YAML cannot
// carry.
func FromEntry(line []byte) ([]byte, error) {
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, fmt.Errorf("read log entry: %w", err)
	}
	logged, err := e.decisions()
	if err != nil {
		return nil, fmt.Errorf("%w: decision %s: %w", ErrNoTest, e.ID, err)
	}
	var file testFile
	for _, d := range logged {
		row, err := d.row()
		if err != nil {
			return nil, fmt.Errorf("%w: decision %s: %w", ErrNoTest, d.id, err)
		}
		file.Tests = append(file.Tests, row)
	}
	out, err := yaml.MarshalWithOptions(file, yaml.IndentSequence(true), yaml.CustomMarshaler(quoted))
	if err != nil {
		return nil, fmt.Errorf("write test: %w", err)
	}
	return out, readsBack(out, logged)
}

// An entry is what of a line of the decision log a test is made of.
type entry struct {
	ID      string         `json:"id"`
	Time    time.Time      `json:"time"`
	Kind    string         `json:"kind"`
	Request jsontext.Value `json:"request"`
	answer
	Evaluations []answer `json:"evaluations"`
	Masked      []string `json:"masked"`
}

type answer struct {
	Decision    bool     `json:"decision"`
	Policies    []string `json:"policies"`
	Obligations []struct {
		Type string `json:"type"`
	} `json:"obligations"`
}

// A logged is one decision of an entry.
type logged struct {
	id      string
	time    time.Time
	request *authzen.EvaluationRequest
	answer
}

// decisions returns the decisions of an entry, as they are addressed.
func (e *entry) decisions() ([]logged, error) {
	if len(e.Masked) > 0 {
		return nil, fmt.Errorf("it is masked at %s", strings.Join(e.Masked, ", "))
	}
	switch e.Kind {
	case "evaluation":
		var request authzen.EvaluationRequest
		if err := authzen.Unmarshal(e.Request, &request); err != nil {
			return nil, err
		}
		return []logged{{e.ID, e.Time, &request, e.answer}}, nil
	case "evaluations":
		return e.items()
	}
	return nil, fmt.Errorf("it records no evaluation but %q", e.Kind)
}

// items returns the decisions of a batch, which may have ended before its last
// item.
func (e *entry) items() ([]logged, error) {
	var batch authzen.EvaluationsRequest
	if err := authzen.Unmarshal(e.Request, &batch); err != nil {
		return nil, err
	}
	var out []logged
	for i, item := range batch.Items()[:min(len(batch.Evaluations), len(e.Evaluations))] {
		if item.Err != nil {
			continue // denied as it stands, without a request to decide
		}
		out = append(out, logged{fmt.Sprintf("%s.%d", e.ID, i), e.Time, item.Request, e.Evaluations[i]})
	}
	if out == nil {
		return nil, errors.New("none of its items could be decided")
	}
	return out, nil
}

// A testFile is a file of tests as it is written.
type testFile struct {
	Tests []*row `yaml:"tests"`
}

func (d logged) row() (*row, error) {
	body, err := json.Marshal(d.request)
	if err != nil {
		return nil, err
	}
	if body, err = plain(body); err != nil {
		return nil, err
	}
	out := row{
		Name:        d.name(),
		Time:        d.time.UTC().Format(time.RFC3339Nano),
		Request:     new(request),
		Decision:    &d.Decision,
		Policies:    new([]string),
		Obligations: new([]string),
	}
	*out.Policies = sorted(d.Policies)
	for _, o := range d.answer.Obligations {
		*out.Obligations = append(*out.Obligations, o.Type)
	}
	*out.Obligations = sorted(*out.Obligations)
	return &out, yaml.Unmarshal(body, out.Request)
}

// name says what was decided, in the words of the request.
func (d logged) name() string {
	may := "may not"
	if d.Decision {
		may = "may"
	}
	r := d.request
	return fmt.Sprintf("%s %s %s %s %s %s (decision %s)", r.Subject.Type, r.Subject.ID, may, r.Action.Name, r.Resource.Type, r.Resource.ID, d.id)
}

// plain returns JSON in which each number has the one form that YAML reads as
// the same number.
func plain(body jsontext.Value) (jsontext.Value, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		token, err := dec.ReadToken()
		if err != nil {
			break
		}
		if token.Kind() == '0' && tooLong(token.String()) {
			return nil, fmt.Errorf("%s has a number with more digits than YAML carries: %s", dec.StackPointer(), token)
		}
	}
	return body, body.Canonicalize(jsontext.CanonicalizeRawInts(false))
}

// tooLong reports whether a number that is no integer has more digits than a
// float64 keeps.
func tooLong(number string) bool {
	mantissa, _, scientific := strings.Cut(strings.ToLower(number), "e")
	digits := strings.Trim(strings.ReplaceAll(strings.TrimPrefix(mantissa, "-"), ".", ""), "0")
	return (scientific || strings.Contains(mantissa, ".")) && len(digits) > 15
}

// bare is text that needs no quotes, but for the words that mean something
// else to some reader of YAML.
var (
	bare  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)
	words = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)
)

// quoted writes a string such that every reader of YAML reads that string.
func quoted(text string) ([]byte, error) {
	if bare.MatchString(text) && !words.MatchString(text) {
		return []byte(text), nil
	}
	return jsontext.AppendQuote(nil, text)
}

// readsBack reports tests that would be read otherwise than they were meant.
func readsBack(src []byte, want []logged) error {
	tests, faults := parse("", src)
	if len(faults) > 0 {
		return fmt.Errorf("%w: it would not be read: %w", ErrNoTest, faults)
	}
	for i, test := range tests {
		if !sameRequest(test.Request, want[i].request) {
			return fmt.Errorf("%w: decision %s: its request would be read otherwise", ErrNoTest, want[i].id)
		}
	}
	return nil
}

func sameRequest(a, b *authzen.EvaluationRequest) bool {
	var forms [2]jsontext.Value
	for i, r := range []*authzen.EvaluationRequest{a, b} {
		body, err := json.Marshal(r)
		if err == nil {
			forms[i], err = plain(body)
		}
		if err != nil {
			return false
		}
	}
	return bytes.Equal(forms[0], forms[1])
}
