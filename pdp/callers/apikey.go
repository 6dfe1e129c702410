package callers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// An APIKey is a secret of one caller, known by its digest alone. It is sent as
// "Authorization: Bearer ID.SECRET", or as the secret without the id.
type APIKey struct {
	ID string `yaml:"id"`
	// SHA256 is of the key as it is sent, in hexadecimal.
	SHA256 string `yaml:"sha256" pattern:"^[0-9a-fA-F]{64}$" instead:"key api_key hash digest secret token value" hint:"the digest of the key: policy-service keys new ID makes both, printf %s KEY | sha256sum makes that of a key there is"`
	Grant  `yaml:",inline"`
}

// digestHint says how the digest of a key is made.
const digestHint = "the digest of the key (policy-service keys new ID makes both)"

// apiKeys are callers by the digest of their key. To find a digest in a map
// tells nobody anything about another: who knows a digest does not know its
// key.
type apiKeys map[[sha256.Size]byte]Caller

// checkAPIKeys reports everything that is wrong with keys.
func checkAPIKeys(keys []APIKey) error {
	var errs []error
	holders := map[[sha256.Size]byte]string{}
	for n, key := range keys {
		err := key.check()
		if digest := key.digest(); err == nil {
			if other, taken := holders[digest]; taken {
				err = wrong("must be another: "+key.ID+" has the key of "+other, "sha256")
			}
			holders[digest] = key.ID
		}
		errs = append(errs, yamldoc.Below(err, "api_keys", strconv.Itoa(n)))
	}
	return errors.Join(errs...)
}

func (k APIKey) check() error {
	errs := []error{k.Grant.check()}
	if k.ID == "" {
		errs = append(errs, wrong("is required: the name of the caller", "id"))
	}
	if raw, err := hex.DecodeString(k.SHA256); err != nil || len(raw) != sha256.Size {
		be := "64 hexadecimal digits, " + digestHint
		if k.SHA256 == "" {
			errs = append(errs, wrong("is required: "+be, "sha256"))
		} else {
			errs = append(errs, wrong("must be "+be, "sha256"))
		}
	}
	return errors.Join(errs...)
}

// digest is that of the key of an APIKey with which nothing is wrong.
func (k APIKey) digest() (digest [sha256.Size]byte) {
	raw, _ := hex.DecodeString(k.SHA256)
	copy(digest[:], raw)
	return digest
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
