package authzen

import (
	"errors"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// A Searched entity is what a search looks for: any of its type. What else a
// request says of it is ignored, so that nobody gives properties to all that
// might be found.
type Searched struct {
	Type string `json:"type"`
}

// A SubjectSearchRequest asks which subjects may do the action with the
// resource (AuthZEN 1.0, "The Subject Search API Request").
type SubjectSearchRequest struct {
	Subject  Searched       `json:"subject"`
	Action   Action         `json:"action"`
	Resource Resource       `json:"resource"`
	Context  jsontext.Value `json:"context,omitzero"`
	Page     *PageRequest   `json:"page,omitzero"`
}

// A ResourceSearchRequest asks which resources the subject may do the action
// with (AuthZEN 1.0, "The Resource Search API Request").
type ResourceSearchRequest struct {
	Subject  Subject        `json:"subject"`
	Action   Action         `json:"action"`
	Resource Searched       `json:"resource"`
	Context  jsontext.Value `json:"context,omitzero"`
	Page     *PageRequest   `json:"page,omitzero"`
}

// An ActionSearchRequest asks what the subject may do with the resource
// (AuthZEN 1.0, "The Action Search API Request").
type ActionSearchRequest struct {
	Subject  Subject        `json:"subject"`
	Resource Resource       `json:"resource"`
	Context  jsontext.Value `json:"context,omitzero"`
	Page     *PageRequest   `json:"page,omitzero"`
}

// A PageRequest asks for a part of the results (AuthZEN 1.0, "Paginated
// Requests"). Without a Token it is the first; without a Limit the PDP chooses,
// or goes on with the limit of the page before.
type PageRequest struct {
	Token      string         `json:"token,omitzero"`
	Limit      *int           `json:"limit,omitzero"`
	Properties jsontext.Value `json:"properties,omitzero"`
}

// A Page says which part of the results a response is (AuthZEN 1.0, "Paginated
// Responses"). NextToken leads to the next one and is empty at the end; Count
// is how many results are in this one, Total how many there are, where that is
// known.
type Page struct {
	NextToken string `json:"next_token"`
	Count     int    `json:"count"`
	Total     *int   `json:"total,omitzero"`
}

// An EntitySearchResponse lists subjects or resources in the order of their
// ids. There is no Page where the results are whole and nobody asked for one.
// Page comes first, for PEPs that read results as they arrive (AuthZEN 1.0,
// "The Search API Response").
type EntitySearchResponse struct {
	Page    *Page         `json:"page,omitzero"`
	Results []FoundEntity `json:"results"`
}

// A FoundEntity is one result. A PEP that cannot meet its obligations must
// leave it out (Obligations Profile, "Obligations and Search Requests").
type FoundEntity struct {
	Type        string       `json:"type"`
	ID          string       `json:"id"`
	Obligations []Obligation `json:"obligations,omitempty"`
}

// An ActionSearchResponse lists actions in the order of their names. See
// [EntitySearchResponse].
type ActionSearchResponse struct {
	Page    *Page         `json:"page,omitzero"`
	Results []FoundAction `json:"results"`
}

// A FoundAction is one result. See [FoundEntity].
type FoundAction struct {
	Name        string       `json:"name"`
	Obligations []Obligation `json:"obligations,omitempty"`
}

// UnmarshalJSONFrom reads a complete request.
func (r *SubjectSearchRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "subject", into: &r.Subject, required: true},
		member{name: "action", into: &r.Action, required: true},
		member{name: "resource", into: &r.Resource, required: true},
		member{name: "context", into: &r.Context},
		member{name: "page", into: optional(&r.Page)})
}

// UnmarshalJSONFrom reads a complete request.
func (r *ResourceSearchRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "subject", into: &r.Subject, required: true},
		member{name: "action", into: &r.Action, required: true},
		member{name: "resource", into: &r.Resource, required: true},
		member{name: "context", into: &r.Context},
		member{name: "page", into: optional(&r.Page)})
}

// UnmarshalJSONFrom reads a complete request. An action, which a request may
// not have, is ignored like any unknown member.
func (r *ActionSearchRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "subject", into: &r.Subject, required: true},
		member{name: "resource", into: &r.Resource, required: true},
		member{name: "context", into: &r.Context},
		member{name: "page", into: optional(&r.Page)})
}

// UnmarshalJSONFrom reads the type of what is searched.
func (s *Searched) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec, member{name: "type", into: &s.Type, required: true})
}

// UnmarshalJSONFrom reads a page request. Members it does not know are ignored.
func (p *PageRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "token", into: &p.Token},
		member{name: "limit", into: p.readLimit},
		member{name: "properties", into: &p.Properties})
}

// readLimit reads a non-negative integer. One that is larger than any list counts
// as the largest there can be.
func (p *PageRequest) readLimit(dec *jsontext.Decoder) error {
	if err := expect(dec, '0', "a number"); err != nil {
		return err
	}
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	digits := token.String()
	n, err := strconv.ParseUint(digits, 10, 31)
	if errors.Is(err, strconv.ErrSyntax) {
		return Invalid(string(dec.StackPointer()), "must be a whole number from 0, not %s", digits)
	}
	limit := int(n) // the largest where it is out of range
	p.Limit = &limit
	return nil
}
