package callers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// An APIKey is a secret of one caller. The service has only its digest. A caller sends
// "Authorization: Bearer ID.SECRET", or the secret without the id.
type APIKey struct {
	ID string `yaml:"id"`
	// SHA256 is the digest of the key as it is sent, in hexadecimal.
	SHA256 string `yaml:"sha256" pattern:"^[0-9a-fA-F]{64}$" instead:"key api_key hash digest secret token value" hint:"the digest of the key: policy-service keys new ID makes both, printf %s KEY | sha256sum makes that of a key there is"`
	Grant  `yaml:",inline"`
}

// digestHint explains how to create the digest of a key.
const digestHint = "the digest of the key (policy-service keys new ID makes both)"

// apiKeys maps the digest of a key to its caller. A lookup need not take constant time: a digest
// does not reveal the key.
type apiKeys map[[sha256.Size]byte]Caller

// checkAPIKeys reports all faults in keys.
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

// digest returns the digest of a valid APIKey.
func (k APIKey) digest() (digest [sha256.Size]byte) {
	raw, _ := hex.DecodeString(k.SHA256)
	copy(digest[:], raw)
	return digest
}

// check identifies the caller of a key. It leaves an unknown bearer token to the other checks.
func (k apiKeys) check(r *http.Request) (Caller, bool, error) {
	token := bearer(r)
	if token == "" {
		return Caller{}, false, nil
	}
	who, ok := k[sha256.Sum256([]byte(token))]
	return who, ok, nil
}
