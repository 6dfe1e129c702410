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

// Auth says who may ask. Its zero value lets everybody ask who can connect.
type Auth struct {
	APIKeys []APIKey   `yaml:"api_keys,omitempty" list:"some"`
	JWT     []Issuer   `yaml:"jwt,omitempty" list:"some"`
	MTLS    *MTLS      `yaml:"mtls,omitempty"`
	Aliases [][]string `yaml:"aliases,omitempty" list:"some"` // each element has the names of one person, in credentials and as PEPs send them
}

// Known reports whether callers have to authenticate.
func (a Auth) Known() bool { return len(a.APIKeys) > 0 || len(a.JWT) > 0 || a.MTLS != nil }

// Check reports everything that is wrong with credentials, each a
// [yamldoc.SettingError]. It reads no file and asks nobody.
func (a Auth) Check() error {
	var errs []error
	if a.Aliases != nil && !a.Known() {
		errs = append(errs, wrong("there are no credentials whose holders could have them", "aliases"))
	}
	return errors.Join(append(errs, checkAPIKeys(a.APIKeys), checkIssuers(a.JWT), a.MTLS.check(), checkPeople(a.Aliases))...)
}

// wrong is a fault of a setting, by the keys that lead to it.
func wrong(reason string, path ...string) error {
	return &yamldoc.SettingError{Path: path, Reason: reason}
}

// ErrRestart is a change that a running verifier cannot follow.
var ErrRestart = errors.New("this needs a restart")

// A check tells who sent a request. It is not ok for one that has no credential
// of its kind; a credential that is not good is an error.
type check func(*http.Request) (c Caller, ok bool, err error)

// A Verifier tells who sends requests. It is safe for concurrent use.
type Verifier struct {
	known     bool              // whether callers have to authenticate, which does not change
	transport http.RoundTripper // to the issuers' keys
	now       func() time.Time
	checks    atomic.Pointer[[]check]

	renewing sync.Mutex // guards what follows
	auth     Auth
	bearers  *bearers
}

// New returns the verifier of the credentials that auth names. It reads issuers'
// keys by transport, once a token is to be verified.
func New(auth Auth, transport http.RoundTripper, now func() time.Time) (*Verifier, error) {
	v := &Verifier{known: auth.Known(), transport: transport, now: now}
	return v, v.Renew(auth)
}

// Known reports whether callers have to authenticate.
func (v *Verifier) Known() bool { return v.known }

// Renew replaces the credentials that are known. If anything is wrong with the
// new ones, the last ones stay. Where no issuer changes, their keys stay, too.
func (v *Verifier) Renew(auth Auth) error {
	v.renewing.Lock()
	defer v.renewing.Unlock()
	if auth.Known() != v.known {
		return fmt.Errorf("%w: whether callers have to say who they are", ErrRestart)
	}
	if err := auth.Check(); err != nil {
		return yamldoc.Below(err, "auth")
	}
	people, keys := newPeople(auth.Aliases), apiKeys{}
	for _, key := range auth.APIKeys {
		keys[key.digest()] = people.of(Caller{ID: key.ID, Names: []string{key.ID}, Grant: key.Grant})
	}
	bearers, err := v.bearersOf(auth)
	if err != nil {
		return yamldoc.Below(err, "auth", "jwt")
	}
	v.auth, v.bearers = auth, bearers
	checks := []check{keys.check, people.named(bearers.check)}
	if len(auth.APIKeys) > 0 || len(auth.JWT) > 0 { // nobody's bearer is ours to judge else
		checks = append(checks, refuseBearers)
	}
	checks = append(checks, people.named(auth.MTLS.verify))
	v.checks.Store(&checks)
	return nil
}

// bearersOf returns those that there are already if the issuers are the same:
// their keys are known.
func (v *Verifier) bearersOf(auth Auth) (*bearers, error) {
	if v.bearers != nil && reflect.DeepEqual(auth.JWT, v.auth.JWT) {
		return v.bearers, nil
	}
	return newBearers(auth.JWT, v.transport, v.now)
}

// Warnings say what an operator has to know of the credentials that are known.
func (v *Verifier) Warnings() []string {
	v.renewing.Lock()
	defer v.renewing.Unlock()
	return v.bearers.warnings
}

// Verify tells who sent a request: by the API key or the token that it has or, if
// it has neither, by its certificate. A key or token that is not good is not made
// good by a certificate. The error is [ErrUnauthenticated], or
// jwks.ErrUnavailable where an issuer's keys cannot be read.
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

// refuseBearers refuses who has a key or token that no check before knew.
func refuseBearers(r *http.Request) (Caller, bool, error) {
	if bearer(r) != "" {
		return Caller{}, false, fmt.Errorf("%w: the key or token is not known", ErrUnauthenticated)
	}
	return Caller{}, false, nil
}

// bearer returns the token of an Authorization header (RFC 6750).
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
