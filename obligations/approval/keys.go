package approval

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
)

// A signingKey signs binding tokens and approvals.
type signingKey struct {
	ID   string    `json:"kid"`
	Seed []byte    `json:"seed"`
	Made time.Time `json:"made"`
}

// A keyRing has the signing keys, newest first. The newest signs. The others verify their
// signatures until the last of those has expired.
type keyRing []signingKey

func newSigningKey(now time.Time) (signingKey, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return signingKey{}, fmt.Errorf("make signing key: %w", err)
	}
	return signingKey{ID: "key-" + rand.Text()[:12], Seed: private.Seed(), Made: now}, nil
}

func (k signingKey) private() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(k.Seed) }

// jwks returns the public keys (RFC 7517).
func (k keyRing) jwks() jose.JSONWebKeySet {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, key := range k {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.private().Public(), KeyID: key.ID, Algorithm: string(jose.EdDSA), Use: "sig"})
	}
	return set
}

// Types of tokens. They differ so that a proof of denial cannot pass for an approval.
const (
	typeBinding  = "access-request-binding+jwt"
	typeApproval = "approval+jwt"
)

// errSignature means that no key of the service signed the token.
var errSignature = errors.New("the signature does not verify")

// sign returns claims as a compact JWS (RFC 7515, section 3.1).
func (k keyRing) sign(kind string, claims any) (string, error) {
	payload, err := json.Marshal(claims, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", kind, err)
	}
	key := jose.JSONWebKey{Key: k[0].private(), KeyID: k[0].ID}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key}, (&jose.SignerOptions{}).WithType(jose.ContentType(kind)))
	if err != nil {
		return "", fmt.Errorf("sign %s: %w", kind, err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("sign %s: %w", kind, err)
	}
	return signed.CompactSerialize()
}

// verify decodes the claims of a compact JWS of that type. The caller checks the times in them.
func (k keyRing) verify(kind, token string, claims any) error {
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return errSignature
	}
	header := signed.Signatures[0].Protected
	i := slices.IndexFunc(k, func(key signingKey) bool { return key.ID == header.KeyID })
	if i < 0 || header.ExtraHeaders[jose.HeaderType] != kind {
		return errSignature
	}
	payload, err := signed.Verify(k[i].private().Public())
	if err != nil {
		return errSignature
	}
	return json.Unmarshal(payload, claims)
}
