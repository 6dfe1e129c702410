package authzen

import (
	"cmp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Delegate acts on behalf of another (RFC 8693 4.1).
type Delegate struct {
	Issuer string `json:"iss,omitzero"`
	ID     string `json:"sub"`
}

// Full is the name of issuer and subject, as callers with tokens have it; ""
// without an issuer.
func (d Delegate) Full() string {
	if d.Issuer == "" {
		return ""
	}
	return d.Issuer + "#" + d.ID
}

// maxDelegates bounds a chain.
const maxDelegates = 8

// Delegates reads a chain of actors that act for each other, nearest first. They
// are named sub and iss, or id and issuer. One that is named both ways is
// refused: readers differ in which they take. The error names the path.
func Delegates(path string, raw jsontext.Value) ([]Delegate, error) {
	var chain []Delegate
	for raw != nil && raw.Kind() != 'n' {
		var one struct {
			Subject string         `json:"sub"`
			ID      string         `json:"id"`
			Issuer  string         `json:"iss"`
			Issued  string         `json:"issuer"`
			Act     jsontext.Value `json:"act"`
		}
		if err := json.Unmarshal(raw, &one); err != nil || one.Subject+one.ID == "" {
			return nil, Invalid(path, "must be an object with the id of an actor")
		}
		if one.Subject != "" && one.ID != "" || one.Issuer != "" && one.Issued != "" {
			return nil, Invalid(path, "must not have sub beside id, or iss beside issuer")
		}
		if len(chain) == maxDelegates {
			return nil, Invalid(path, "has more than %d actors, each acting for the next", maxDelegates)
		}
		chain = append(chain, Delegate{Issuer: cmp.Or(one.Issuer, one.Issued), ID: cmp.Or(one.Subject, one.ID)})
		raw = one.Act
	}
	return chain, nil
}
