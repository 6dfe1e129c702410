package callers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
)

// An APIKey is a secret of one caller, known by its digest alone. It is sent as
// "Authorization: Bearer ID.SECRET", or as the secret without the id.
type APIKey struct {
	ID     string `yaml:"id"`
	SHA256 string `yaml:"sha256"` // of the key as it is sent, in hexadecimal
	Grant  `yaml:",inline"`
}

// apiKeys are callers by the digest of their key. To find a digest in a map
// tells nobody anything about another: who knows a digest does not know its
// key.
type apiKeys map[[sha256.Size]byte]Caller

func newAPIKeys(keys []APIKey, people people) (apiKeys, error) {
	out := apiKeys{}
	for _, key := range keys {
		raw, err := hex.DecodeString(key.SHA256)
		switch {
		case key.ID == "":
			return nil, errors.New("a key has no id")
		case err != nil || len(raw) != sha256.Size:
			return nil, fmt.Errorf("%s: sha256 is not 64 hexadecimal digits (policy-service keys new makes a key)", key.ID)
		}
		digest := [sha256.Size]byte(raw)
		if other, taken := out[digest]; taken {
			return nil, fmt.Errorf("%s has the key of %s", key.ID, other.ID)
		}
		if err := key.validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", key.ID, err)
		}
		out[digest] = people.of(Caller{ID: key.ID, Names: []string{key.ID}, Grant: key.Grant})
	}
	return out, nil
}

// check knows a key by its digest. A bearer token that is no key may be
// of another kind.
func (k apiKeys) check(r *http.Request) (Caller, bool, error) {
	token := bearer(r)
	if token == "" {
		return Caller{}, false, nil
	}
	who, ok := k[sha256.Sum256([]byte(token))]
	return who, ok, nil
}
