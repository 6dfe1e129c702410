package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// proofAlgorithms sign proofs. Their keys are asymmetric.
var proofAlgorithms = []jose.SignatureAlgorithm{jose.ES256, jose.EdDSA}

func proofAlgorithmNames() (names []string) {
	for _, a := range proofAlgorithms {
		names = append(names, string(a))
	}
	return names
}

const (
	typeProof = "dpop+jwt"
	maxProof  = 8 << 10 // bytes
	// lastSecond is the end of the year 9999, the last time that RFC 3339 can express.
	lastSecond = 253402300799
)

// A proof is a DPoP proof (RFC 9449, section 4.2) that its own key has signed.
type proof struct {
	thumbprint string // of the key

	ID          string   `json:"jti"`
	Method      string   `json:"htm"`
	URL         string   `json:"htu"`
	Issued      *float64 `json:"iat"` // seconds since 1970
	TokenDigest string   `json:"ath"`
	Nonce       string   `json:"nonce"`
}

func (p *proof) issued() time.Time {
	whole, part := math.Modf(*p.Issued)
	return time.Unix(int64(whole), int64(part*1e9))
}

// parseProof reads a proof, and verifies its signature. No error repeats the proof.
func parseProof(text string) (*proof, error) {
	if len(text) > maxProof {
		return nil, fmt.Errorf("a proof has more than %d bytes", maxProof)
	}
	key, err := proofKey(text)
	if err != nil {
		return nil, err
	}
	signed, err := jose.ParseSignedCompact(text, proofAlgorithms)
	if err != nil {
		return nil, errors.New("the proof is not a JWT")
	}
	payload, err := signed.Verify(key)
	if err != nil {
		return nil, errors.New("the signature is not valid")
	}
	p := new(proof)
	if err := json.Unmarshal(payload, p); err != nil {
		return nil, errors.New("the claims cannot be read")
	}
	if p.ID == "" || p.Method == "" || p.URL == "" || p.Issued == nil || *p.Issued < 0 || *p.Issued > lastSecond {
		return nil, errors.New("a required claim is missing")
	}
	digest, err := key.Thumbprint(crypto.SHA256)
	p.thumbprint = base64.RawURLEncoding.EncodeToString(digest)
	return p, err
}

// A proofHeader is the JOSE header of a proof.
type proofHeader struct {
	Type      string         `json:"typ"`
	Algorithm string         `json:"alg"`
	Key       jsontext.Value `json:"jwk"`
	Critical  jsontext.Value `json:"crit"`
}

// proofKey returns the public key in the header of a proof, after it has checked the
// header.
func proofKey(text string) (*jose.JSONWebKey, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, errors.New("the proof is not a JWT")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(parts[0])
	if err != nil {
		return nil, errors.New("the header cannot be read")
	}
	var h proofHeader
	switch err := json.Unmarshal(raw, &h); {
	case err != nil:
		return nil, errors.New("the header cannot be read")
	case h.Type != typeProof:
		return nil, errors.New("typ is not " + typeProof)
	case !slices.Contains(proofAlgorithms, jose.SignatureAlgorithm(h.Algorithm)):
		return nil, fmt.Errorf("alg is not one of %v", proofAlgorithms)
	case h.Critical != nil:
		return nil, errors.New("the header has extensions")
	}
	return publicKey(h.Key, jose.SignatureAlgorithm(h.Algorithm))
}

// privateMembers are the members of a JWK that only its owner knows (RFC 7518, section
// 6).
var privateMembers = []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"}

// publicKey reads a JWK that must be a public key for an algorithm.
func publicKey(jwk jsontext.Value, algorithm jose.SignatureAlgorithm) (*jose.JSONWebKey, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(jwk, &members); err != nil {
		return nil, errors.New("jwk is not a key")
	}
	for name := range members {
		if slices.ContainsFunc(privateMembers, func(private string) bool { return strings.EqualFold(name, private) }) {
			return nil, errors.New("jwk has a private key")
		}
	}
	key := new(jose.JSONWebKey)
	if err := key.UnmarshalJSON(jwk); err != nil || !key.Valid() {
		return nil, errors.New("jwk is not a key")
	}
	of := jose.SignatureAlgorithm("")
	switch public := key.Key.(type) {
	case *ecdsa.PublicKey:
		if public.Curve.Params().Name == "P-256" {
			of = jose.ES256
		}
	case ed25519.PublicKey:
		of = jose.EdDSA
	}
	if of != algorithm {
		return nil, errors.New("jwk is not a key for alg")
	}
	return key, nil
}
