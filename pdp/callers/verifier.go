package callers

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
)

// Auth says who may ask. Its zero value lets everybody ask who can connect.
type Auth struct {
	APIKeys []APIKey `yaml:"api_keys"`
	JWT     []Issuer `yaml:"jwt"`
	MTLS    *MTLS    `yaml:"mtls"`
}

// Known reports whether callers have to authenticate.
func (a Auth) Known() bool { return len(a.APIKeys) > 0 || len(a.JWT) > 0 || a.MTLS != nil }

// ErrRestart is a change that a running verifier cannot follow.
var ErrRestart = errors.New("this needs a restart")

// A check tells who sent a request. It is not ok for one that has no credential
// of its kind; a credential that is not good is an error.
type check func(*http.Request) (c Caller, ok bool, err error)

// A Verifier tells who sends requests. It is safe for concurrent use.
type Verifier struct {
	known     bool              // whether callers have to authenticate, which does not change
	transport http.RoundTripper // to the issuers' keys
	checks    atomic.Pointer[[]check]

	renewing sync.Mutex // guards what follows
	auth     Auth
	tokens   tokens
}

// New returns the verifier of the credentials that auth names. It reads issuers'
// keys by transport, once a token is to be verified.
func New(auth Auth, transport http.RoundTripper) (*Verifier, error) {
	v := &Verifier{known: auth.Known(), transport: transport}
	return v, v.Renew(auth)
}

// Known reports whether callers have to authenticate.
func (v *Verifier) Known() bool { return v.known }

// Renew replaces the credentials that are known. If anything is wrong with the
// new ones, the last ones stay. Issuers that do not change keep their keys.
func (v *Verifier) Renew(auth Auth) (err error) {
	v.renewing.Lock()
	defer v.renewing.Unlock()
	var all []check
	if auth.Known() != v.known {
		return fmt.Errorf("%w: whether callers have to say who they are", ErrRestart)
	}
	if len(auth.APIKeys) > 0 {
		keys, err := newAPIKeys(auth.APIKeys)
		if err != nil {
			return fmt.Errorf("auth: api_keys: %w", err)
		}
		all = append(all, keys.check)
	}
	tokens := v.tokens
	if len(auth.JWT) > 0 {
		if !reflect.DeepEqual(auth.JWT, v.auth.JWT) { // whose keys are known else
			if tokens, err = newTokens(auth.JWT, v.transport); err != nil {
				return fmt.Errorf("auth: jwt: %w", err)
			}
		}
		all = append(all, tokens.check)
	}
	if auth.MTLS != nil {
		if err := auth.MTLS.validate(); err != nil {
			return fmt.Errorf("auth: mtls: %w", err)
		}
		all = append(all, auth.MTLS.check)
	}
	v.auth, v.tokens = auth, tokens
	v.checks.Store(&all)
	return nil
}

// Verify tells who sent a request: by the first of an API key, a token and a
// certificate that it has. The error is [ErrUnauthenticated], or
// jwks.ErrUnavailable where an issuer's keys cannot be read.
func (v *Verifier) Verify(r *http.Request) (Caller, error) {
	for _, check := range *v.checks.Load() {
		who, ok, err := check(r)
		if err != nil || ok {
			return who, err
		}
	}
	return Caller{}, ErrUnauthenticated
}

// bearer returns the token of an Authorization header (RFC 6750).
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
