package callers

import (
	"crypto/sha256"
	"crypto/x509"
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

func newAPIKeys(keys []APIKey) (apiKeys, error) {
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
		out[digest] = Caller{key.ID, []string{key.ID}, key.Grant}
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

// MTLS knows callers by their certificates, which CA has issued. A certificate
// that Callers do not name is not let in; without Callers each is.
type MTLS struct {
	CA      string       `yaml:"ca"` // PEM file
	Callers []MTLSCaller `yaml:"callers"`
	Grant   `yaml:",inline"`
}

// An MTLSCaller is the holder of a certificate.
type MTLSCaller struct {
	Name  string `yaml:"name"` // a URI or DNS name of the certificate
	Grant `yaml:",inline"`
}

func (m *MTLS) validate() error {
	if m.CA == "" {
		return errors.New("there is no ca, the file of the certificates that issue callers'")
	}
	errs := []error{m.Grant.validate()}
	for _, c := range m.Callers {
		errs = append(errs, c.validate())
	}
	return errors.Join(errs...)
}

func (m *MTLS) check(r *http.Request) (Caller, bool, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return Caller{}, false, nil
	}
	names := namesOf(r.TLS.PeerCertificates[0])
	for _, name := range names {
		for _, c := range m.Callers {
			if c.Name == name {
				return Caller{name, names, c.Grant}, true, nil
			}
		}
	}
	if len(m.Callers) > 0 || len(names) == 0 {
		return Caller{}, false, fmt.Errorf("%w: no caller has the certificate of %q", ErrUnauthenticated, names)
	}
	return Caller{names[0], names, m.Grant}, true, nil
}

// namesOf lists the names of a certificate's holder: URIs, then DNS names.
func namesOf(certificate *x509.Certificate) []string {
	var names []string
	for _, uri := range certificate.URIs {
		names = append(names, uri.String())
	}
	return append(names, certificate.DNSNames...)
}
