package results

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/result"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Rules are the obligations on the response to one call. The zero value has none.
// As JSON they stay with what outlives the call: its task, or the ids of events.
type Rules struct {
	// Tool is the tool that the call names, or "". Its output schema holds for the
	// result.
	Tool   string           `json:"tool,omitzero"`
	Custom []jsontext.Value `json:"custom,omitempty"` // properties of the obligations
	// Lost means that there were obligations which are not known any more. Every
	// response is withheld.
	Lost bool `json:"lost,omitzero"`
}

// IsZero reports whether there are no obligations.
func (r Rules) IsZero() bool { return len(r.Custom) == 0 && !r.Lost }

// Size returns about how many bytes the rules have as JSON.
func (r Rules) Size() int {
	size := len(r.Tool)
	for _, properties := range r.Custom {
		size += len(properties)
	}
	return size
}

// And returns all obligations of both.
func (r Rules) And(other Rules) Rules {
	all := Rules{Tool: r.Tool, Custom: slices.Clone(r.Custom), Lost: r.Lost || other.Lost}
	if all.Tool == "" {
		all.Tool = other.Tool
	}
	for _, properties := range other.Custom {
		if !slices.ContainsFunc(all.Custom, func(p jsontext.Value) bool { return bytes.Equal(p, properties) }) {
			all.Custom = append(all.Custom, properties)
		}
	}
	return all
}

// Check returns an error for an obligation that cannot be carried out on responses
// to the method.
func Check(method string, properties jsontext.Value) error {
	r, err := result.Parse(properties)
	if err != nil {
		return err
	}
	if (r.Action == result.Redact || r.Action == result.Mask) && contents[method] == nil {
		return fmt.Errorf("%s: results of %s have no content that the gateway could change", r.Action, method)
	}
	return nil
}

// Labels returns the labels that the response gives its caller. An obligation that
// cannot be read has none: Apply reports it.
func (r Rules) Labels() (names []string) {
	for _, properties := range r.Custom {
		if rule, err := result.Parse(properties); err == nil {
			names = append(names, rule.Labels...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// OnlyLabel reports whether the obligations give labels, and change nothing.
func (r Rules) OnlyLabel() bool {
	return !slices.ContainsFunc(r.Custom, func(properties jsontext.Value) bool {
		rule, err := result.Parse(properties)
		return err != nil || rule.Action != result.Label
	})
}

// A WithheldError says why an obligation cannot be carried out on a response.
type WithheldError struct {
	Reason string // for the client: it has nothing of the response
	Detail string // for the operator, or ""
}

func (e *WithheldError) Error() string {
	if e.Detail == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Detail
}

func withheld(format string, args ...any) error {
	return &WithheldError{Reason: fmt.Sprintf(format, args...)}
}

func detailed(reason, format string, args ...any) error {
	return &WithheldError{reason, fmt.Sprintf(format, args...)}
}

// Apply returns the response with the obligations carried out. Valid checks
// structured content that was changed against the output schema of the tool. After
// an error, which is a [WithheldError] for every fault of the response, the client
// gets none of it.
func (r Rules) Apply(method string, response *wire.Message, valid func(jsontext.Value) error) (*wire.Message, error) {
	if r.Lost {
		return nil, withheld("the obligations of the permit are not known any more")
	}
	f := &filter{valid: valid}
	for _, properties := range r.Custom {
		rule, err := result.Parse(properties)
		if err != nil {
			return nil, fmt.Errorf("obligation: %w", err)
		}
		f.add(rule)
	}
	out := response
	if f.changes() {
		var err error
		if out, err = f.response(method, response); err != nil {
			return nil, err
		}
	}
	if f.limit == 0 {
		return out, nil
	}
	size, err := sizeOf(method, out)
	if err == nil && size > f.limit {
		err = withheld("it has %d bytes, and max_bytes is %d", size, f.limit)
	}
	return out, err
}

// sizeOf returns the size of a response in bytes: of the status of a task, that of
// the result in it.
func sizeOf(method string, m *wire.Message) (int, error) {
	if m.Result == nil {
		return len(m.Error), nil
	}
	members, err := jsonobject.Parse(m.Result)
	if err != nil {
		return 0, withheld("it cannot be read")
	}
	if strings.HasPrefix(method, "tasks/") && method != "tasks/result" || isTask(members) {
		return len(members["result"]) + len(members["error"]) + len(members["structuredContent"]) + len(members["content"]), nil
	}
	return len(m.Result), nil
}

// isTask reports whether a result is the task that the call has become.
func isTask(members jsonobject.Object) bool {
	return string(members["resultType"]) == `"task"` || members["task"].Kind() == '{'
}

// A filter changes one response.
type filter struct {
	rules []*result.Rule // redact before mask
	paths bool           // of a rule
	limit int            // of max_bytes; 0 is none
	valid func(structured jsontext.Value) error
}

func (f *filter) add(r *result.Rule) {
	switch r.Action {
	case result.Redact:
		f.rules = slices.Insert(f.rules, 0, r)
	case result.Mask:
		f.rules = append(f.rules, r)
	case result.MaxBytes:
		if f.limit == 0 || r.Bytes < f.limit {
			f.limit = r.Bytes
		}
	}
	f.paths = f.paths || r.Paths != nil
}

// changes reports whether there is anything to change.
func (f *filter) changes() bool { return len(f.rules) > 0 }

// document changes a JSON value.
func (f *filter) document(v jsontext.Value) (jsontext.Value, error) {
	var places []place
	for _, r := range f.rules {
		if r.Paths == nil {
			places = append(places, place{&edit{rule: r}, nil})
		}
		for _, path := range r.Paths {
			places = append(places, place{&edit{rule: r, path: path}, path})
		}
	}
	out, err := rewrite(v, places)
	if err != nil {
		return nil, withheld("%v", err)
	}
	for _, p := range places {
		if p.rule.Required && !p.hit {
			return nil, withheld("a required path of %s is absent", p.rule.Action)
		}
	}
	return out, nil
}

// text changes a text of content.
func (f *filter) text(text string) (string, error) {
	v := jsontext.Value(text)
	if isDocument(v) {
		out, err := f.document(v)
		if err != nil || bytes.Equal(out, v) {
			return text, err
		}
		return string(out), nil
	}
	if f.paths {
		return "", withheld("a text is no JSON object or array of at most %d levels", wire.MaxDepth)
	}
	return f.freeText(text)
}

// freeText masks a text that is not JSON.
func (f *filter) freeText(text string) (string, error) {
	for _, r := range f.rules {
		var err error
		if text, err = maskText(text, r); err != nil {
			return "", withheld("%v", err)
		}
	}
	return text, nil
}

// isDocument reports whether a text is an object or array that every parser reads
// alike.
func isDocument(v jsontext.Value) bool {
	kind := v.Kind()
	return (kind == '{' || kind == '[') && v.IsValid() && !wire.IsDeep(v)
}
