package credential

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// A clientKey signs the assertions by which the gateway authenticates.
type clientKey struct {
	id   string
	read func() string // the file of the key
}

// assertionLifetime is how long an assertion is good.
const assertionLifetime = time.Minute

// assertion returns a new assertion for a token endpoint (RFC 7523, section 3).
func (k *clientKey) assertion(client, endpoint string, now time.Time) (string, error) {
	signer, err := newSigner(k.read(), k.id)
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: client, Subject: client, Audience: jwt.Audience{endpoint}, ID: rand.Text(),
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(assertionLifetime)),
	}).Serialize()
}

// CheckKey reports a text that is not the PEM of a private key for assertions.
func CheckKey(text string) error {
	_, err := newSigner(text, "")
	return err
}

// minRSA is the least size of a key for RSA, in bits (RFC 7518, section 3.3).
const minRSA = 2048

// newSigner returns what signs with the key in a PEM file, by the algorithm of the
// type of the key.
func newSigner(text, id string) (jose.Signer, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the key is not in PEM")
	}
	key, err := parseKey(block)
	if err != nil {
		return nil, errors.New("the PEM has no private key (PKCS 8, PKCS 1 or SEC 1)") // the error of a parser may hold parts of the key
	}
	algorithm, err := algorithmOf(key)
	if err != nil {
		return nil, err
	}
	return jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: id}}, (&jose.SignerOptions{}).WithType("JWT"))
}

func parseKey(block *pem.Block) (any, error) {
	switch block.Type {
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	}
	return x509.ParsePKCS8PrivateKey(block.Bytes)
}

func algorithmOf(key any) (jose.SignatureAlgorithm, error) {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if k.N.BitLen() < minRSA {
			return "", fmt.Errorf("the RSA key has %d bits, fewer than %d", k.N.BitLen(), minRSA)
		}
		return jose.RS256, nil
	case *ecdsa.PrivateKey:
		algorithm, ok := map[string]jose.SignatureAlgorithm{"P-256": jose.ES256, "P-384": jose.ES384, "P-521": jose.ES512}[k.Curve.Params().Name]
		if !ok {
			return "", errors.New("the curve of the key is not P-256, P-384 or P-521")
		}
		return algorithm, nil
	case ed25519.PrivateKey:
		return jose.EdDSA, nil
	}
	return "", errors.New("the key is not for RSA, ECDSA or Ed25519")
}
