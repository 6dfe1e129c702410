package policytest

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"

	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// ErrNoTest means that an entry of the decision log cannot be converted to a test.
var ErrNoTest = errors.New("the entry cannot be made into a test")

// FromEntry converts a decision of the log to a test file with one test, or one for each item of a
// batch. The test expects the same decision for the request at its time. line is the entry as the log
// exports it. FromEntry returns ErrNoTest if the result does not read back as exactly that request. This
// is so for an entry that records no evaluation, a masked request, or numbers that YAML cannot
// represent.
func FromEntry(line []byte) ([]byte, error) {
	e, err := replay.ReadEntry(line)
	if err != nil {
		return nil, err
	}
	logged, err := decided(replay.Decisions(e))
	if err != nil {
		return nil, fmt.Errorf("%w: decision %s: %w", ErrNoTest, e.ID, err)
	}
	return FromDecisions(logged)
}

// FromDecisions is FromEntry for decisions with requests that are not masked.
func FromDecisions(logged []replay.Logged) ([]byte, error) {
	var file testFile
	for _, d := range logged {
		row, err := rowOf(d)
		if err != nil {
			return nil, fmt.Errorf("%w: decision %s: %w", ErrNoTest, d.ID, err)
		}
		file.Tests = append(file.Tests, row)
	}
	out, err := yaml.MarshalWithOptions(file, yaml.IndentSequence(true), yaml.CustomMarshaler(quoted))
	if err != nil {
		return nil, fmt.Errorf("write test: %w", err)
	}
	return out, readsBack(out, logged)
}

// decided returns the decisions that have a valid request.
func decided(all []replay.Logged, err error) ([]replay.Logged, error) {
	all = slices.DeleteFunc(all, func(l replay.Logged) bool { return l.Request == nil })
	if err == nil && len(all) == 0 {
		err = errors.New("none of its items could be decided")
	}
	return all, err
}

// A testFile is a test file to write.
type testFile struct {
	Tests []*row `yaml:"tests"`
}

func rowOf(d replay.Logged) (*row, error) {
	body, err := json.Marshal(d.Request)
	if err != nil {
		return nil, err
	}
	if body, err = plain(body); err != nil {
		return nil, err
	}
	out := row{
		Name:        nameOf(d),
		Time:        d.Time.UTC().Format(time.RFC3339Nano),
		Request:     new(request),
		Decision:    &d.Decision,
		Policies:    new([]string),
		Obligations: new([]string),
		Unknown:     !d.Decision && namesUnknown(d),
		Approval:    approvalOf(d.Approval),
		Capability:  capabilityOf(d.Capability),
	}
	if d.CapabilityDenied != "" {
		return nil, fmt.Errorf("its capability was refused (%s), and a test cannot say so", d.CapabilityDenied)
	}
	*out.Policies = sorted(d.Policies)
	for _, o := range d.Obligations {
		*out.Obligations = append(*out.Obligations, o.Type)
	}
	*out.Obligations = sorted(*out.Obligations)
	return &out, yaml.Unmarshal(body, out.Request)
}

// nameOf returns a test name that describes the decision.
func nameOf(d replay.Logged) string {
	may := "may not"
	if d.Decision {
		may = "may"
	}
	r := d.Request
	return fmt.Sprintf("%s %s %s %s %s %s (decision %s)", r.Subject.Type, r.Subject.ID, may, r.Action.Name, r.Resource.Type, r.Resource.ID, d.ID)
}

// plain returns JSON in which each number has the form that YAML reads as the same number.
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

// tooLong reports whether a non-integer has more digits than a float64 holds.
func tooLong(number string) bool {
	mantissa, _, scientific := strings.Cut(strings.ToLower(number), "e")
	digits := strings.Trim(strings.ReplaceAll(strings.TrimPrefix(mantissa, "-"), ".", ""), "0")
	return (scientific || strings.Contains(mantissa, ".")) && len(digits) > 15
}

// bare matches text that needs no quotes, except for words with a special meaning to some YAML reader.
var (
	bare  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)
	words = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)
)

// quoted formats a string so that every YAML reader reads the same string.
func quoted(text string) ([]byte, error) {
	if bare.MatchString(text) && !words.MatchString(text) {
		return []byte(text), nil
	}
	return jsontext.AppendQuote(nil, text)
}

// readsBack returns an error if the tests do not read back as intended.
func readsBack(src []byte, want []replay.Logged) error {
	tests, problems := parse("", src)
	if len(problems) > 0 {
		return fmt.Errorf("%w: it would not be read: %w", ErrNoTest, problems)
	}
	for i, test := range tests {
		if !sameRequest(test.Request, want[i].Request) {
			return fmt.Errorf("%w: decision %s: its request would be read otherwise", ErrNoTest, want[i].ID)
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

// namesUnknown reports whether a decision has an error without a policy: the request has names that the
// schema does not declare.
func namesUnknown(d replay.Logged) bool {
	for _, e := range d.Errors {
		if e.Policy == "" {
			return true
		}
	}
	return false
}
