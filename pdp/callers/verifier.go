package callers

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// Auth configures authentication. Its zero value admits everyone who can connect.
type Auth struct {
	APIKeys []APIKey   `yaml:"api_keys,omitempty" list:"some"`
	JWT     []Issuer   `yaml:"jwt,omitempty" list:"some"`
	MTLS    *MTLS      `yaml:"mtls,omitempty"`
	Aliases [][]string `yaml:"aliases,omitempty" list:"some"` // each element lists the names of one person, in credentials and in requests of PEPs
}

// Known reports whether callers have to authenticate.
func (a Auth) Known() bool { return len(a.APIKeys) > 0 || len(a.JWT) > 0 || a.MTLS != nil }

// Check reports all faults of the configuration, each as a [yamldoc.SettingError]. It accesses
// neither files nor the network.
func (a Auth) Check() error {
	var errs []error
	if a.Aliases != nil && !a.Known() {
		errs = append(errs, wrong("there are no credentials whose holders could have them", "aliases"))
	}
	return errors.Join(append(errs, checkAPIKeys(a.APIKeys), checkIssuers(a.JWT), a.MTLS.check(), checkAliases(a.Aliases))...)
}

// wrong returns a fault of the setting at path.
func wrong(reason string, path ...string) error {
	return &yamldoc.SettingError{Path: path, Reason: reason}
}

// ErrRestart means that a running verifier cannot apply the change.
var ErrRestart = errors.New("this needs a restart")

// A check identifies the caller of a request. ok is false if the request has no credential of the
// check's kind. An invalid credential is an error.
type check func(*http.Request) (c Caller, ok bool, err error)

// A Verifier identifies the callers of requests. It is safe for concurrent use.
type Verifier struct {
	known     bool              // callers must authenticate; never changes
	transport http.RoundTripper // for fetching keys
	now       func() time.Time
	checks    atomic.Pointer[[]check]
	people    atomic.Pointer[aliasIndex]

	renewing sync.Mutex // guards the fields below
	auth     Auth
	bearers  *bearers
}

// New returns a verifier for the credentials in auth. It fetches issuers' keys through transport
// when it verifies the first token.
func New(auth Auth, transport http.RoundTripper, now func() time.Time) (*Verifier, error) {
	v := &Verifier{known: auth.Known(), transport: transport, now: now}
	return v, v.Renew(auth)
}

// Known reports whether callers have to authenticate.
func (v *Verifier) Known() bool { return v.known }

// Renew replaces the credentials. After an error the previous ones remain. If the issuers are the
// same, their cached keys remain.
func (v *Verifier) Renew(auth Auth) error {
	v.renewing.Lock()
	defer v.renewing.Unlock()
	if auth.Known() != v.known {
		return fmt.Errorf("%w: whether callers have to say who they are", ErrRestart)
	}
	if err := auth.Check(); err != nil {
		return yamldoc.Below(err, "auth")
	}
	people, keys := newAliasIndex(auth.Aliases), apiKeys{}
	for _, key := range auth.APIKeys {
		keys[key.digest()] = people.of(Caller{ID: key.ID, Names: []string{key.ID}, Proof: Proof{Method: MethodAPIKey}, Grant: key.Grant})
	}
	bearers, err := v.bearersOf(auth)
	if err != nil {
		return yamldoc.Below(err, "auth", "jwt")
	}
	v.auth, v.bearers = auth, bearers
	checks := []check{keys.check, people.named(bearers.check)}
	if len(auth.APIKeys) > 0 || len(auth.JWT) > 0 { // without bearer credentials, ignore the header
		checks = append(checks, refuseBearers)
	}
	checks = append(checks, people.named(auth.MTLS.verify))
	v.checks.Store(&checks)
	v.people.Store(&people)
	return nil
}

// bearersOf returns the existing bearers if the issuers are the same, to keep cached keys.
func (v *Verifier) bearersOf(auth Auth) (*bearers, error) {
	if v.bearers != nil && reflect.DeepEqual(auth.JWT, v.auth.JWT) {
		return v.bearers, nil
	}
	return newBearers(auth.JWT, v.transport, v.now)
}

// Warnings returns warnings about the credentials for the operator.
func (v *Verifier) Warnings() []string {
	v.renewing.Lock()
	defer v.renewing.Unlock()
	return v.bearers.warnings
}

// Verify returns the caller of a request, identified by the API key or token, or, without these, by
// the certificate. A valid certificate does not make up for an invalid key or token. The error is
// [ErrUnauthenticated], or jwks.ErrUnavailable if the issuer's keys cannot be fetched.
func (v *Verifier) Verify(r *http.Request) (Caller, error) {
	if len(r.Header["Authorization"]) > 1 {
		return Caller{}, fmt.Errorf("%w: there are several Authorization headers", ErrUnauthenticated)
	}
	for _, check := range *v.checks.Load() {
		who, ok, err := check(r)
		if err != nil || ok {
			return who, err
		}
	}
	return Caller{}, ErrUnauthenticated
}

// refuseBearers refuses a key or token that no earlier check recognized.
func refuseBearers(r *http.Request) (Caller, bool, error) {
	if bearer(r) != "" {
		return Caller{}, false, fmt.Errorf("%w: the key or token is not known", ErrUnauthenticated)
	}
	return Caller{}, false, nil
}

// bearer returns the token of an Authorization header (RFC 6750, section 2.1).
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
