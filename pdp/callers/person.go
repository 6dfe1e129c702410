package callers

import "fmt"

// ReadClaims parses the payload of a verified token. It refuses duplicate names, and names that differ
// only in letter case from those that verifiers read.
func ReadClaims(payload []byte) (Claims, error) {
	claims, err := readClaims(payload)
	if err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	return claims, nil
}

// Texts returns a claim that is a string or a list of strings.
func (c Claims) Texts(name string) ([]string, error) { return c.texts(name) }

// Person returns the person whom the claims of a verified ID token describe. The id claim of the
// issuer is required.
func Person(i Issuer, claims Claims) (Caller, error) {
	return (&bearers{issuers: []Issuer{i}}).caller(i, claims)
}

// Named adds the configured names of the same person to a caller.
func (v *Verifier) Named(who Caller) Caller { return v.people.Load().of(who) }
