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
	var subject, action, resource bool
	err := members(dec, func(name string) error {
		switch name {
		case "subject":
			return present(dec, &subject, r.Subject.UnmarshalJSONFrom)
		case "action":
			return present(dec, &action, r.Action.UnmarshalJSONFrom)
		case "resource":
			return present(dec, &resource, r.Resource.UnmarshalJSONFrom)
		case "context":
			return object(dec, &r.Context)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return required(dec, member{"subject", subject}, member{"action", action}, member{"resource", resource})
}

// present reads a member unless it is null and notes that it was there.
func present(dec *jsontext.Decoder, was *bool, read func(*jsontext.Decoder) error) error {
	if null(dec) {
		return nil
	}
	*was = true
	return read(dec)
}

// UnmarshalJSONFrom reads an entity with its required type and id.
func (e *Entity) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return e.decode(dec, "")
}

// decode reads an entity. One that names no type has the inherited type, if
// that is not empty. An entity that only lacks members has those that were
// there; of any other that cannot be read nothing is left, so that the order
// of its members means nothing.
func (e *Entity) decode(dec *jsontext.Decoder, inherited string) error {
	var typed, identified bool
	err := members(dec, func(name string) error {
		switch name {
		case "type":
			return text(dec, &e.Type, &typed)
		case "id":
			return text(dec, &e.ID, &identified)
		case "properties":
			return object(dec, &e.Properties)
		}
		return nil
	})
	if err != nil {
		*e = Entity{}
		return err
	}
	if !typed && inherited != "" {
		e.Type, typed = inherited, true
	}
	return required(dec, member{"type", typed}, member{"id", identified})
}

// UnmarshalJSONFrom reads an action with its required name.
func (a *Action) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var named bool
	err := members(dec, func(name string) error {
		switch name {
		case "name":
			return text(dec, &a.Name, &named)
		case "properties":
			return object(dec, &a.Properties)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return required(dec, member{"name", named})
}
