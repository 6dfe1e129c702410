package authzen

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"
)

// An Entity is a subject or a resource. Its ID is unique only within its Type.
// Properties is a JSON object as it was sent, or nil.
type Entity struct {
	Type       string         `json:"type"`
	ID         string         `json:"id"`
	Properties jsontext.Value `json:"properties,omitzero"`
}

// A Subject is the user or machine that wants access (AuthZEN 1.0, "Subject").
type Subject = Entity

// A Resource is what access is wanted to (AuthZEN 1.0, "Resource").
type Resource = Entity

// An Action is what the subject wants to do with the resource (AuthZEN 1.0,
// "Action"). Properties is a JSON object as it was sent, or nil.
type Action struct {
	Name       string         `json:"name"`
	Properties jsontext.Value `json:"properties,omitzero"`
}

// An EvaluationRequest asks for one decision (AuthZEN 1.0, "The Access
// Evaluation API Request"). Context is a JSON object as it was sent, or nil.
type EvaluationRequest struct {
	Subject  Subject        `json:"subject"`
	Action   Action         `json:"action"`
	Resource Resource       `json:"resource"`
	Context  jsontext.Value `json:"context,omitzero"`
}

// AppendTo appends the request as JSON to b. Properties and Context are as they
// were sent, white space and all.
func (r *EvaluationRequest) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.entity(`{"subject":`, r.Subject)
	w.quote(`,"action":{"name":`, r.Action.Name)
	w.raw(`,"properties":`, r.Action.Properties)
	w.entity(`},"resource":`, r.Resource)
	w.raw(`,"context":`, r.Context)
	w.b = append(w.b, '}')
	return w.b, w.err
}

// A writer writes JSON.
type writer struct {
	b   []byte
	err error
}

func (w *writer) entity(before string, e Entity) {
	w.b = append(w.b, before...)
	w.quote(`{"type":`, e.Type)
	w.quote(`,"id":`, e.ID)
	w.raw(`,"properties":`, e.Properties)
	w.b = append(w.b, '}')
}

func (w *writer) quote(before, s string) {
	quoted, err := jsontext.AppendQuote(append(w.b, before...), s)
	w.b, w.err = quoted, cmp.Or(w.err, err)
}

// raw appends a value that is there.
func (w *writer) raw(before string, v jsontext.Value) {
	if v != nil {
		w.b = append(append(w.b, before...), v...)
	}
}

// UnmarshalJSONFrom reads a complete request; each entity it names must have
// all its required members.
func (r *EvaluationRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "subject", into: &r.Subject, required: true},
		member{name: "action", into: &r.Action, required: true},
		member{name: "resource", into: &r.Resource, required: true},
		member{name: "context", into: &r.Context})
}

// UnmarshalJSONFrom reads an entity with its required type and id.
func (e *Entity) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return e.decode(dec, "") }

// decode reads an entity. One that names no type has the inherited type, if
// that is not empty. An entity that only lacks members has those that are
// present; of any other that cannot be read nothing is left, so that the order
// of its members means nothing.
func (e *Entity) decode(dec *jsontext.Decoder, inherited string) error {
	all := []member{
		{name: "type", into: &e.Type, required: inherited == ""},
		{name: "id", into: &e.ID, required: true},
		{name: "properties", into: &e.Properties},
	}
	if err := readMembers(dec, all); err != nil {
		*e = Entity{}
		return err
	}
	if !all[0].present {
		e.Type = inherited
	}
	return checkRequired(dec, all)
}

// UnmarshalJSONFrom reads an action with its required name.
func (a *Action) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "name", into: &a.Name, required: true},
		member{name: "properties", into: &a.Properties})
}
