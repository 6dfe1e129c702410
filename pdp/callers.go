package pdp

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Parts of Config.Auth.
type (
	Auth       = callers.Auth
	APIKey     = callers.APIKey
	Issuer     = callers.Issuer
	MTLS       = callers.MTLS
	MTLSCaller = callers.MTLSCaller
	Grant      = callers.Grant
	Scope      = callers.Scope
)

// Scopes of a credential.
const (
	ScopeEvaluate = callers.ScopeEvaluate
	ScopeSearch   = callers.ScopeSearch
	ScopeRequest  = callers.ScopeRequest
	ScopeLabel    = callers.ScopeLabel
	ScopeApprove  = callers.ScopeApprove
	ScopeAdmin    = callers.ScopeAdmin
	ScopeAudit    = callers.ScopeAudit
)

// An authenticator admits requests with valid credentials. Without a verifier, or with one that has
// no credentials configured, it admits every request.
type authenticator struct{ verifier *callers.Verifier }

// with admits requests whose credential has one of the scopes and is for the tenant that the path
// names. A caller of a single tenant may omit the tenant.
func (g authenticator) with(scopes ...Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			who, known, err := g.caller(c.Request())
			switch {
			case err != nil:
				return err
			case !known:
				return next(c)
			}
			tenant := c.Param(paramTenant)
			if !slices.ContainsFunc(scopes, who.May) || tenant != "" && !who.MayAsk(tenant) {
				return callers.ErrForbidden
			}
			keepConnection(c)
			c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), callerKey{}, who)))
			return next(c)
		}
	}
}

// caller returns the caller of a request. It is not known if callers are not authenticated. The
// console asks in the name of a person who is signed in.
func (g authenticator) caller(r *http.Request) (who callers.Caller, known bool, err error) {
	if person, is := console.IdentityFrom(r.Context()); is {
		return g.verifier.Named(person.Caller), true, nil
	}
	if !g.known() {
		return who, false, nil
	}
	who, err = g.verifier.Verify(r)
	return who, true, err
}

// all admits requests whose credential has one of the scopes and is for every tenant. It protects
// routes that change or show data of all tenants.
func (g authenticator) all(scopes ...Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return g.with(scopes...)(func(c echo.Context) error {
			if callerFrom(c.Request().Context()).Tenants != nil {
				return callers.ErrForbidden
			}
			return next(c)
		})
	}
}

// ofTenant is with for paths below a tenant. It admits every request elsewhere.
func (g authenticator) ofTenant(scopes ...Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		guarded := g.with(scopes...)(next)
		return func(c echo.Context) error {
			if c.Param(paramTenant) == "" {
				return next(c)
			}
			return guarded(c)
		}
	}
}

// errSeveralTenants rejects a request without a tenant from a caller of several tenants.
var errSeveralTenants = errors.New("the credential is for several tenants: name a tenant in the path, as in /tenants/TENANT/access/v1/evaluation")

// oneTenant rejects a request that names no tenant if the caller has several.
func oneTenant(then echo.MiddlewareFunc) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		next = then(next)
		return func(c echo.Context) error {
			if c.Param(paramTenant) == "" && len(callerFrom(c.Request().Context()).Tenants) > 1 {
				return errSeveralTenants
			}
			return next(c)
		}
	}
}

// namesOf returns all names of the people with some names, by the configured aliases.
func (g authenticator) namesOf(names []string) []string {
	if g.verifier == nil {
		return names
	}
	return g.verifier.Named(callers.Caller{Names: names}).Names
}

// known reports whether callers must authenticate.
func (g authenticator) known() bool { return g.verifier != nil && g.verifier.Known() }

// sees reports whether a request may see data of every tenant on a route that does not require
// credentials. The caller must be allowed to read the log or operate the service. If callers are
// not authenticated, everyone may.
func (g authenticator) sees(r *http.Request) bool { return g.view(r).tenants == nil }

// view returns what the caller of such a route may see: its tenants, or the root alone if it may
// neither read the log nor operate the service.
func (g authenticator) view(r *http.Request) view {
	who, known, err := g.caller(r)
	switch {
	case !known:
		return view{}
	case err != nil || !who.May(ScopeAudit) && !who.May(ScopeAdmin):
		return view{[]string{}}
	}
	return view{who.Tenants}
}

type callerKey struct{}

// callerFrom returns the caller of the request in a context.
func callerFrom(ctx context.Context) callers.Caller {
	who, _ := ctx.Value(callerKey{}).(callers.Caller)
	return who
}

// mayLabel reports whether the caller of the request in a context may send labels. If callers are
// not authenticated, everyone may.
func mayLabel(ctx context.Context) bool {
	who, authenticated := ctx.Value(callerKey{}).(callers.Caller)
	return !authenticated || who.May(ScopeLabel)
}

// authorize rejects a request over the rate limit, or about a tenant that is not the caller's.
func authorize(engine *evaluation.Engine, limits *limiter) method[authzen.AuthorizeRequest, authzen.AuthorizeResponse] {
	return func(ctx context.Context, call evaluation.Call, req *authzen.AuthorizeRequest) (*authzen.AuthorizeResponse, error) {
		if err := limits.admit(ctx, req.TenantID); err != nil {
			return nil, err
		}
		return engine.Authorize(ctx, call, req)
	}
}
