package jwks

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"slices"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// minModulus is the size of the smallest RSA key that is used, in bits (RFC 7518
// 3.3).
const minModulus = 2048

// usable returns the keys of a set that verify signatures. Others are left out,
// as RFC 7517 5 has it: of other types and uses, too small, or not well-formed.
func usable(set []jsontext.Value) (keys []jose.JSONWebKey) {
	for _, raw := range set {
		var key jose.JSONWebKey
		if signs(raw) && key.UnmarshalJSON(raw) == nil && strong(key.Key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// signs reports whether a key is for signatures (RFC 7517 4.2, 4.3).
func signs(raw jsontext.Value) bool {
	var key struct {
		Use        string   `json:"use"`
		Operations []string `json:"key_ops"`
	}
	return json.Unmarshal(raw, &key) == nil && (key.Use == "" || key.Use == "sig") &&
		(key.Operations == nil || slices.Contains(key.Operations, "verify"))
}

// strong reports whether a key is a public one, of a size that nobody breaks.
func strong(key any) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= minModulus
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}
