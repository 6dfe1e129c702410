package pdp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Scope is something that a caller may do.
type Scope string

// The scopes. A credential that lists none has the first three.
const (
	ScopeEvaluate Scope = "evaluate" // ask for decisions
	ScopeSearch   Scope = "search"   // search for who and what may
	ScopeRequest  Scope = "request"  // ask for access, and for its approval
	ScopeAdmin    Scope = "admin"    // reload policies; decide on requests
	ScopeAudit    Scope = "audit"    // read the decision log
)

var (
	scopes        = []Scope{ScopeEvaluate, ScopeSearch, ScopeRequest, ScopeAdmin, ScopeAudit}
	defaultScopes = scopes[:3]
)

// Auth says who may ask. Its zero value lets everybody ask who can connect.
type Auth struct {
	APIKeys []APIKey `yaml:"api_keys"`
	JWT     []Issuer `yaml:"jwt"`
	MTLS    *MTLS    `yaml:"mtls"`
}

// known reports whether callers have to say who they are.
func (a Auth) known() bool { return len(a.APIKeys) > 0 || len(a.JWT) > 0 || a.MTLS != nil }

// A Grant is what a credential lets its holder do.
type Grant struct {
	Tenants []string `yaml:"tenants"` // that it may ask about; empty is every one
	Scopes  []Scope  `yaml:"scopes"`
}

var (
	// errUnauthenticated is a request without a credential that is known here.
	errUnauthenticated = errors.New("who asks is not known: send a valid credential")
	// errForbidden is a request that its caller may not make.
	errForbidden = errors.New("the credential is not for this")
)

// A caller is who asks. The zero value is anybody, where nobody is asked who
// they are.
type caller struct {
	id string // in the decision log
	Grant
}

// mayAsk reports whether requests about a tenant are the caller's to make.
func (c caller) mayAsk(tenant string) bool {
	return len(c.Tenants) == 0 || slices.Contains(c.Tenants, tenant)
}

func (c caller) may(s Scope) bool {
	return slices.Contains(c.Scopes, s) || len(c.Scopes) == 0 && slices.Contains(defaultScopes, s)
}

// validate reports scopes and tenants that there cannot be.
func (g Grant) validate() error {
	for _, s := range g.Scopes {
		if !slices.Contains(scopes, s) {
			return fmt.Errorf("there is no scope %q: write some of %v", s, scopes)
		}
	}
	for _, tenant := range g.Tenants {
		if !evaluation.ValidTenant(tenant) {
			return fmt.Errorf("no tenant can be called %q", tenant)
		}
	}
	return nil
}

// An authenticator tells who sent a request. It is not ok for one that has no
// credential of its kind; a credential that is not good is an error.
type authenticator func(*http.Request) (c caller, ok bool, err error)

// callers tell who asks, if anybody has to say so.
type callers struct {
	known          bool              // whether they have to, which does not change
	transport      http.RoundTripper // to who has their keys
	authenticators atomic.Pointer[[]authenticator]

	renewing sync.Mutex // guards what follows
	auth     Auth
	tokens   tokens
}

// newCallers prepares to tell the callers that auth knows.
func newCallers(auth Auth, transport http.RoundTripper) (*callers, error) {
	a := &callers{known: auth.known(), transport: transport}
	return a, a.renew(auth)
}

// renew has other callers be known from now on. Those that there are already
// stay if there is anything wrong with the others.
func (a *callers) renew(auth Auth) (err error) {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	var all []authenticator
	if auth.known() != a.known {
		return fmt.Errorf("%w: whether callers have to say who they are", errRestart)
	}
	if len(auth.APIKeys) > 0 {
		keys, err := newAPIKeys(auth.APIKeys)
		if err != nil {
			return fmt.Errorf("auth: api_keys: %w", err)
		}
		all = append(all, keys.authenticate)
	}
	tokens := a.tokens
	if len(auth.JWT) > 0 {
		if !reflect.DeepEqual(auth.JWT, a.auth.JWT) { // whose keys are known else
			if tokens, err = newTokens(auth.JWT, a.transport); err != nil {
				return fmt.Errorf("auth: jwt: %w", err)
			}
		}
		all = append(all, tokens.authenticate)
	}
	if auth.MTLS != nil {
		if err := auth.MTLS.validate(); err != nil {
			return fmt.Errorf("auth: mtls: %w", err)
		}
		all = append(all, auth.MTLS.authenticate)
	}
	a.auth, a.tokens = auth, tokens
	a.authenticators.Store(&all)
	return nil
}

// with lets those through whose credential has the scope, and is for the tenant
// that the path names. A caller of a single tenant need not name it.
func (a *callers) with(s Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		if !a.known {
			return next
		}
		return func(c echo.Context) error {
			who, err := a.authenticate(c.Request())
			if err != nil {
				return err
			}
			tenant := c.Param(paramTenant)
			if !who.may(s) || tenant != "" && !who.mayAsk(tenant) {
				return errForbidden
			}
			c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), callerKey{}, who)))
			return next(c)
		}
	}
}

type callerKey struct{}

// callerFrom returns who makes the request of a context.
func callerFrom(ctx context.Context) caller {
	who, _ := ctx.Value(callerKey{}).(caller)
	return who
}

// authorize refuses a request about a tenant that is not the caller's, or that
// asks too often.
func authorize(engine *evaluation.Engine, limits *limiter) func(context.Context, *authzen.AuthorizeRequest) (*authzen.AuthorizeResponse, error) {
	return func(ctx context.Context, req *authzen.AuthorizeRequest) (*authzen.AuthorizeResponse, error) {
		if err := limits.admit(ctx, req.TenantID); err != nil {
			return nil, err
		}
		return engine.Authorize(ctx, req)
	}
}

func (a *callers) authenticate(r *http.Request) (caller, error) {
	for _, authenticate := range *a.authenticators.Load() {
		who, ok, err := authenticate(r)
		if err != nil || ok {
			return who, err
		}
	}
	return caller{}, errUnauthenticated
}

// bearer returns the token of an Authorization header (RFC 6750).
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
