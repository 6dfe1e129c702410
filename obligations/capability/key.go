package capability

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Key is the public key of a holder: Ed25519, or ECDSA with the curve P-256.
type Key struct {
	JWK jsontext.Value `json:"jwk"` // its required members alone (RFC 7638, section 3.2)
	JKT string         `json:"jkt"` // SHA-256 thumbprint of the JWK (RFC 7638)
}

// jwk has the members of a key that is accepted (RFC 7517, RFC 8037). Members of private keys are none.
type jwk struct {
	Type  string `json:"kty"`
	Curve string `json:"crv"`
	X     string `json:"x"`
	Y     string `json:"y,omitzero"`

	ID         string   `json:"kid,omitzero"`
	Use        string   `json:"use,omitzero"`
	Algorithm  string   `json:"alg,omitzero"`
	Operations []string `json:"key_ops,omitempty"`
	Extract    bool     `json:"ext,omitzero"`
}

// ParseKey parses the JWK of a holder's public key (RFC 7517). Paths of errors are those of a submission.
func ParseKey(text jsontext.Value) (*Key, error) {
	var members jwk
	if err := json.Unmarshal(text, &members, json.RejectUnknownMembers(true)); err != nil || len(text) > maxKey {
		return nil, authzen.Invalid(pathKey, "must be the JWK of a public key, with kty, crv, x and y alone")
	}
	public, jkt := publicKey(text)
	if public == nil {
		return nil, authzen.Invalid(pathKey, `must be an Ed25519 key ("kty":"OKP") or a P-256 key ("kty":"EC")`)
	}
	required, err := jose.JSONWebKey{Key: public}.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return &Key{JWK: required, JKT: jkt}, nil
}

// Bounds and path of a key.
const (
	maxKey  = 1 << 10
	pathKey = "/holder_key"
)

// publicKey returns the key of a JWK, which is nil unless it is supported, and its thumbprint.
func publicKey(text jsontext.Value) (public crypto.PublicKey, jkt string) {
	var key jose.JSONWebKey
	if key.UnmarshalJSON(text) != nil || !key.IsPublic() {
		return nil, ""
	}
	switch public := key.Key.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if public.Curve != elliptic.P256() {
			return nil, ""
		}
	default:
		return nil, ""
	}
	thumbprint, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, ""
	}
	return key.Key, base64.RawURLEncoding.EncodeToString(thumbprint)
}

// signatureSize is the size of a signature of either algorithm, in bytes.
const signatureSize = 64

// isSigned reports whether a key signed a text: with Ed25519 (RFC 8032), or with ES256 as r ‖ s
// (RFC 7518, section 3.4). The key alone decides on the algorithm.
func isSigned(by crypto.PublicKey, text, signature []byte) bool {
	if len(signature) != signatureSize {
		return false
	}
	switch key := by.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, text, signature)
	case *ecdsa.PublicKey:
		sum := sha256.Sum256(text)
		r, s := new(big.Int).SetBytes(signature[:signatureSize/2]), new(big.Int).SetBytes(signature[signatureSize/2:])
		return ecdsa.Verify(key, sum[:], r, s)
	}
	return false
}
