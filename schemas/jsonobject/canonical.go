package jsonobject

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-json-experiment/json/jsontext"
)

// Canonical returns the canonical form of a JSON value (RFC 8785), with integers digit by digit:
// two integers may round to the same float64 without being equal.
func Canonical(v jsontext.Value) (jsontext.Value, error) {
	c := v.Clone()
	err := c.Canonicalize(jsontext.CanonicalizeRawInts(false))
	return c, err
}

// Digest returns the SHA-256 of the canonical form of a JSON value, as in sha256:2c26….
func Digest(v jsontext.Value) (string, error) {
	canonical, err := Canonical(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// Equal reports whether the canonical forms of two JSON values are equal. An absent value, which is
// nil, equals only an absent value.
func Equal(a, b jsontext.Value) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	x, errX := Canonical(a)
	y, errY := Canonical(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
