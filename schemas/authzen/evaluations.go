package authzen

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Semantic says how far a batch is carried on (AuthZEN 1.0, "Evaluations
// semantics").
type Semantic string

const (
	ExecuteAll          Semantic = "execute_all" // the default
	DenyOnFirstDeny     Semantic = "deny_on_first_deny"
	PermitOnFirstPermit Semantic = "permit_on_first_permit"
)

// Stops reports whether a batch ends with an item that was decided so.
func (s Semantic) Stops(decision bool) bool {
	return s == DenyOnFirstDeny && !decision || s == PermitOnFirstPermit && decision
}

// An EvaluationsRequest is a batch: defaults, and items that override them key
// by key (AuthZEN 1.0, "The Access Evaluations API Request"). All is kept as
// the JSON text it came as; [EvaluationsRequest.Items] resolves it. A batch
// without items is a single request, see [EvaluationsRequest.Single].
type EvaluationsRequest struct {
	Subject     jsontext.Value   `json:"subject,omitzero"`
	Action      jsontext.Value   `json:"action,omitzero"`
	Resource    jsontext.Value   `json:"resource,omitzero"`
	Context     jsontext.Value   `json:"context,omitzero"`
	Evaluations []jsontext.Value `json:"evaluations,omitempty"`
	Options     Options          `json:"options,omitzero"`
}

// Options are the execution metadata of a batch. Other options are ignored.
type Options struct {
	Semantic Semantic `json:"evaluations_semantic,omitzero"` // "" is ExecuteAll
}

// An EvaluationsResponse lists the decisions of a batch in the order of its
// items, or is the one Decision of a batch that had none.
type EvaluationsResponse struct {
	*Decision
	Evaluations []Decision `json:"evaluations,omitempty"`
}

// UnmarshalJSONFrom reads a batch. Only what concerns the batch as a whole is
// an error here: a default that is no object, items that are no array, an
// unknown semantic. What is wrong with one item is that item's answer.
func (r *EvaluationsRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readMembers(dec, append(r.keys(),
		member{name: "evaluations", into: r.readItems},
		member{name: "options", into: &r.Options}))
}

// keys are the members of a batch that an item may override.
func (r *EvaluationsRequest) keys() []member {
	return []member{
		{name: "subject", into: &r.Subject},
		{name: "action", into: &r.Action},
		{name: "resource", into: &r.Resource},
		{name: "context", into: &r.Context},
	}
}

func (r *EvaluationsRequest) readItems(dec *jsontext.Decoder) error {
	return readArray(dec, "an array", func() error {
		item, err := dec.ReadValue()
		if err != nil {
			return err
		}
		r.Evaluations = append(r.Evaluations, item.Clone())
		return nil
	})
}

// UnmarshalJSONFrom reads the options of a batch.
func (o *Options) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec, member{name: "evaluations_semantic", into: o.Semantic.read})
}

func (s *Semantic) read(dec *jsontext.Decoder) error {
	text, err := readText(dec)
	if err != nil {
		return err
	}
	switch *s = Semantic(text); *s {
	case ExecuteAll, DenyOnFirstDeny, PermitOnFirstPermit:
		return nil
	}
	return Invalid(string(dec.StackPointer()), "must be %s, %s or %s, not %q", ExecuteAll, DenyOnFirstDeny, PermitOnFirstPermit, text)
}

// AppendTo appends the batch as JSON to b. Its values are as they were sent, white
// space and all. BenchmarkAppendBatch compares it with reflection.
func (r *EvaluationsRequest) AppendTo(b []byte) ([]byte, error) {
	begin := len(b)
	w := writer{b: b}
	w.raw(`,"subject":`, r.Subject)
	w.raw(`,"action":`, r.Action)
	w.raw(`,"resource":`, r.Resource)
	w.raw(`,"context":`, r.Context)
	before := `,"evaluations":[`
	for _, item := range r.Evaluations {
		w.raw(before, item)
		before = ","
	}
	if len(r.Evaluations) > 0 {
		w.b = append(w.b, ']')
	}
	if r.Options != (Options{}) {
		w.quote(`,"options":{"evaluations_semantic":`, string(r.Options.Semantic))
		w.b = append(w.b, '}')
	}
	if len(w.b) == begin {
		w.b = append(w.b, '{')
	}
	w.b[begin] = '{' // in place of the first comma
	return append(w.b, '}'), w.err
}

// Single returns the request that a batch without items stands for.
func (r *EvaluationsRequest) Single() (*EvaluationRequest, error) {
	item := r.resolve(nil, r.defaults())
	if item.Err != nil {
		return nil, item.Err
	}
	return item.Request, nil
}

// An Item is one resolved request of a batch, or what is wrong with it.
type Item struct {
	Request *EvaluationRequest
	Err     *ValidationError // Path is within the whole batch
}

// Items resolves every item against the defaults: a key that an item has
// replaces the default whole. Only a subject or resource without a type takes
// the type of the default of the same key, as the OpenID Foundation's
// conformance suite asks.
func (r *EvaluationsRequest) Items() []Item {
	defaults := r.defaults()
	items := make([]Item, len(r.Evaluations))
	for i, raw := range r.Evaluations {
		items[i] = r.resolve(raw, defaults)
		if items[i].Err != nil {
			items[i].Err = items[i].Err.Below(fmt.Sprintf("/evaluations/%d", i))
		}
	}
	return items
}

// A part is one key of a request: absent, or read, with what is wrong with it.
type part[T any] struct {
	present bool
	value   T
	err     error
}

// parts are the keys of an item or of the defaults.
type parts struct {
	subject  part[inheriting]
	action   part[Action]
	resource part[inheriting]
	context  jsontext.Value
}

// inheriting is an entity that may leave its type to another.
type inheriting struct {
	Entity
	inherited string
}

func (e *inheriting) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return e.decode(dec, e.inherited)
}

func (r *EvaluationsRequest) defaults() parts {
	return parts{
		subject:  readPart("/subject", r.Subject, inheriting{}),
		action:   readPart("/action", r.Action, Action{}),
		resource: readPart("/resource", r.Resource, inheriting{}),
		context:  r.Context,
	}
}

func readPart[T any](path string, raw jsontext.Value, start T) part[T] {
	p := part[T]{present: raw != nil, value: start}
	if p.present {
		p.err = below(path, asValidationError(json.Unmarshal(raw, &p.value)))
	}
	return p
}

func below(path string, err error) error {
	if invalid, ok := err.(*ValidationError); ok {
		return invalid.Below(path)
	}
	return err
}

// resolve lays an item over the defaults. A nil item is the defaults alone.
func (r *EvaluationsRequest) resolve(raw jsontext.Value, defaults parts) Item {
	var own EvaluationsRequest
	if raw != nil {
		if err := asValidationError(json.Unmarshal(raw, (*itemKeys)(&own))); err != nil {
			return Item{Err: err.(*ValidationError)}
		}
	}
	request := &EvaluationRequest{Context: defaults.context}
	if own.Context != nil {
		request.Context = own.Context
	}
	err := firstError(
		take(&request.Subject, "/subject", own.Subject, defaults.subject),
		takeAction(&request.Action, own.Action, defaults.action),
		take(&request.Resource, "/resource", own.Resource, defaults.resource),
	)
	if err != nil {
		return Item{Err: err.(*ValidationError)}
	}
	return Item{Request: request}
}

// itemKeys reads the keys an item may override, and nothing else of a batch.
type itemKeys EvaluationsRequest

func (k *itemKeys) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readMembers(dec, (*EvaluationsRequest)(k).keys())
}

func take(into *Entity, path string, raw jsontext.Value, fallback part[inheriting]) error {
	chosen := fallback
	if raw != nil {
		chosen = readPart(path, raw, inheriting{inherited: fallback.value.Type})
	}
	*into = chosen.value.Entity
	return chosen.problem(path)
}

func takeAction(into *Action, raw jsontext.Value, fallback part[Action]) error {
	chosen := fallback
	if raw != nil {
		chosen = readPart("/action", raw, Action{})
	}
	*into = chosen.value
	return chosen.problem("/action")
}

func (p part[T]) problem(path string) error {
	if !p.present {
		return Invalid(path, "is required")
	}
	return p.err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
