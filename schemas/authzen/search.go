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
	return readSearch(dec, &r.Context, &r.Page,
		entry{"subject", r.Subject.UnmarshalJSONFrom},
		entry{"action", r.Action.UnmarshalJSONFrom},
		entry{"resource", r.Resource.UnmarshalJSONFrom})
}

// UnmarshalJSONFrom reads a complete request.
func (r *ResourceSearchRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readSearch(dec, &r.Context, &r.Page,
		entry{"subject", r.Subject.UnmarshalJSONFrom},
		entry{"action", r.Action.UnmarshalJSONFrom},
		entry{"resource", r.Resource.UnmarshalJSONFrom})
}

// UnmarshalJSONFrom reads a complete request. An action, which a request may
// not have, is ignored like any unknown member.
func (r *ActionSearchRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readSearch(dec, &r.Context, &r.Page,
		entry{"subject", r.Subject.UnmarshalJSONFrom},
		entry{"resource", r.Resource.UnmarshalJSONFrom})
}

// An entry is a required member of a search and what reads its value.
type entry struct {
	name string
	read func(*jsontext.Decoder) error
}

func readSearch(dec *jsontext.Decoder, context *jsontext.Value, page **PageRequest, entries ...entry) error {
	there := make([]member, len(entries))
	for i, e := range entries {
		there[i].name = e.name
	}
	err := members(dec, func(name string) error {
		for i, e := range entries {
			if e.name == name {
				return present(dec, &there[i].present, e.read)
			}
		}
		switch name {
		case "context":
			return object(dec, context)
		case "page":
			return readPage(dec, page)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return required(dec, there...)
}

// UnmarshalJSONFrom reads the type of what is searched.
func (s *Searched) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var typed bool
	err := members(dec, func(name string) error {
		if name == "type" {
			return text(dec, &s.Type, &typed)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return required(dec, member{"type", typed})
}

func readPage(dec *jsontext.Decoder, into **PageRequest) error {
	if null(dec) {
		return nil
	}
	*into = new(PageRequest)
	return (*into).UnmarshalJSONFrom(dec)
}

// UnmarshalJSONFrom reads a page request. Members it does not know are ignored.
func (p *PageRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var sent bool
	return members(dec, func(name string) error {
		switch name {
		case "token":
			return text(dec, &p.Token, &sent)
		case "limit":
			return count(dec, &p.Limit)
		case "properties":
			return object(dec, &p.Properties)
		}
		return nil
	})
}

// count reads a non-negative integer. One that is larger than any list counts
// as the largest there can be. Null is absence.
func count(dec *jsontext.Decoder, into **int) error {
	if null(dec) {
		return nil
	}
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
	*into = &limit
	return nil
}
