package identity

import (
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Bounds of the proofs that are remembered.
const (
	MaxProofs         = maxProofs
	MaxProofsOfCaller = maxProofsOfCaller
)

// Use takes a proof of a caller, as the request with it does.
func (u *Proofs) Use(id, caller string, issued, now time.Time) error {
	seconds := float64(issued.Unix())
	return u.use(&proof{thumbprint: "key", ID: id, Issued: &seconds}, &Caller{Subject: authzen.Subject{ID: caller}}, now)
}

// ParseProof reads a proof, and returns the thumbprint of its key.
func ParseProof(text string) (thumbprint string, err error) {
	p, err := parseProof(text)
	if err != nil {
		return "", err
	}
	return p.thumbprint, nil
}
