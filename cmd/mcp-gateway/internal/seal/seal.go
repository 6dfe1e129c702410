// Package seal encrypts and authenticates text that clients keep for the gateway:
// ids of sessions, the state of a waiting call.
//
// The law it keeps: text from a client counts only if it opens. A sealed text is
// encrypted and authenticated for one purpose. A text that was changed, made
// elsewhere, or sealed for another purpose does not open.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
)

// KeySize is the size of a key, in bytes.
const KeySize = 32

// ErrSealed means that a text does not open.
var ErrSealed = errors.New("the text was not sealed by this gateway")

// A Key seals and opens. It is safe for concurrent use.
type Key struct{ aead cipher.AEAD }

// New returns a Key of [KeySize] bytes.
func New(secret []byte) (*Key, error) {
	if len(secret) != KeySize {
		return nil, fmt.Errorf("a key has %d bytes, not %d", KeySize, len(secret))
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Key{aead}, nil
}

// Seal returns v, encoded as JSON and encrypted, as visible ASCII.
func (k *Key) Seal(purpose string, v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("seal %s: %w", purpose, err)
	}
	return base64.RawURLEncoding.EncodeToString(k.aead.Seal(nil, nil, text, []byte(purpose))), nil
}

// Open decrypts a text that was sealed for the purpose into v. The error is
// [ErrSealed].
func (k *Key) Open(purpose, sealed string, v any) error {
	box, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil {
		return ErrSealed
	}
	text, err := k.aead.Open(nil, nil, box, []byte(purpose))
	if err != nil {
		return ErrSealed
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return nil
}
