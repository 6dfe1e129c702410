// Package prooftest makes proofs of capabilities, in tests. It follows the documentation alone, and
// shares no code with what verifies them.
package prooftest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Key is the key of a holder.
type Key struct{ private crypto.Signer }

// Ed25519 returns a new Ed25519 key.
func Ed25519() Key {
	_, private, _ := ed25519.GenerateKey(nil) // rand.Reader never fails
	return Key{private}
}

// Named returns the Ed25519 key of a name.
func Named(name string) Key {
	seed := sha256.Sum256([]byte(name))
	return Key{ed25519.NewKeyFromSeed(seed[:])}
}

// ECDSA returns a new key with a curve of 256 bits or more.
func ECDSA(curve elliptic.Curve) Key {
	private, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		panic(err)
	}
	return Key{private}
}

// JWK returns the public key (RFC 7517).
func (k Key) JWK() jsontext.Value { return jsontext.Value("{" + k.members() + "}") }

// PrivateJWK returns the private key.
func (k Key) PrivateJWK() jsontext.Value {
	var d []byte
	switch private := k.private.(type) {
	case ed25519.PrivateKey:
		d = private.Seed()
	case *ecdsa.PrivateKey:
		d, _ = private.Bytes() // its curve is known
	}
	return jsontext.Value("{" + k.members() + `,"d":"` + encode(d) + `"}`)
}

func (k Key) members() string {
	switch public := k.private.Public().(type) {
	case ed25519.PublicKey:
		return `"kty":"OKP","crv":"Ed25519","x":"` + encode(public) + `"`
	case *ecdsa.PublicKey:
		point, _ := public.Bytes() // 4 ‖ x ‖ y
		size := (len(point) - 1) / 2
		return fmt.Sprintf(`"kty":"EC","crv":"P-%d","x":%q,"y":%q`, public.Params().BitSize, encode(point[1:1+size]), encode(point[1+size:]))
	}
	return ""
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Sign signs a text: with ECDSA as r ‖ s over its SHA-256.
func (k Key) Sign(text string) string {
	switch private := k.private.(type) {
	case ed25519.PrivateKey:
		return encode(ed25519.Sign(private, []byte(text)))
	case *ecdsa.PrivateKey:
		sum := sha256.Sum256([]byte(text))
		r, s, err := ecdsa.Sign(rand.Reader, private, sum[:])
		if err != nil {
			panic(err)
		}
		return encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
	}
	return ""
}

// A Call is what a proof is about. An empty method is tools/call, an empty timestamp is the present, and
// an empty nonce is a random one.
type Call struct {
	Arguments  string // canonical JSON
	Capability string
	Method     string
	Nonce      string
	Timestamp  string
	Tool       string // SERVER:TOOL
}

// Proof returns the proof of a call.
func (k Key) Proof(c Call) *authzen.CapabilityProof {
	if c.Method == "" {
		c.Method = "tools/call"
	}
	if c.Timestamp == "" {
		c.Timestamp = time.Now().UTC().Format(time.RFC3339)
	}
	if c.Nonce == "" {
		c.Nonce = rand.Text()
	}
	text := fmt.Sprintf(`{"arguments_digest":"%s","capability":%s,"method":%s,"nonce":%s,"timestamp":%s,"tool":%s}`,
		Digest(c.Arguments), quote(c.Capability), quote(c.Method), quote(c.Nonce), quote(c.Timestamp), quote(c.Tool))
	return &authzen.CapabilityProof{Timestamp: c.Timestamp, Nonce: c.Nonce, Signature: k.Sign("capability-proof-1\n" + text)}
}

// Digest returns the digest of canonical arguments.
func Digest(arguments string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(arguments)))
}

// quote quotes text of printable ASCII as JSON does.
func quote(text string) string { return strconv.Quote(text) }
