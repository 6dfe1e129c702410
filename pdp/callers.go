package pdp

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// What Config.Auth is made of.
type (
	Auth       = callers.Auth
	APIKey     = callers.APIKey
	Issuer     = callers.Issuer
	MTLS       = callers.MTLS
	MTLSCaller = callers.MTLSCaller
	Grant      = callers.Grant
	Scope      = callers.Scope
)

// The scopes of a credential.
const (
	ScopeEvaluate = callers.ScopeEvaluate
	ScopeSearch   = callers.ScopeSearch
	ScopeRequest  = callers.ScopeRequest
	ScopeApprove  = callers.ScopeApprove
	ScopeAdmin    = callers.ScopeAdmin
	ScopeAudit    = callers.ScopeAudit
)

// A guard lets those through whose credentials are good. Without a verifier, or
// with one that knows no credentials, it lets everybody through.
type authenticator struct{ verifier *callers.Verifier }

// with lets those through whose credential has one of the scopes, and is for the
// tenant that the path names. A caller of a single tenant need not name it.
func (g authenticator) with(scopes ...Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		if !g.known() {
			return next
		}
		return func(c echo.Context) error {
			who, err := g.verifier.Verify(c.Request())
			if err != nil {
				return err
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

// all lets those through whose credential has one of the scopes and is for every
// tenant: what they do is done to all, or shows all.
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

// ofTenant is with below a tenant's path, and lets everybody through elsewhere.
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

// errSeveralTenants is a request about no tenant of a caller that has several. It
// is not about all of them, and not about none.
var errSeveralTenants = errors.New("the credential is for several tenants: name a tenant in the path, as in /tenants/TENANT/access/v1/evaluation")

// oneTenant refuses a request that names no tenant and whose caller has several.
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

// known reports whether callers have to say who they are.
func (g authenticator) known() bool { return g.verifier != nil && g.verifier.Known() }

// sees reports whether a request may see what is about every tenant, on a route
// that is open to strangers, too: who may read the log or operate the service,
// or anybody where callers are not authenticated.
func (g authenticator) sees(r *http.Request) bool {
	if !g.known() {
		return true
	}
	who, err := g.verifier.Verify(r)
	return err == nil && who.Tenants == nil && (who.May(ScopeAudit) || who.May(ScopeAdmin))
}

type callerKey struct{}

// callerFrom returns who makes the request of a context.
func callerFrom(ctx context.Context) callers.Caller {
	who, _ := ctx.Value(callerKey{}).(callers.Caller)
	return who
}

// authorize refuses a request about a tenant that is not the caller's, or that
// asks too often.
func authorize(engine *evaluation.Engine, limits *limiter) method[authzen.AuthorizeRequest, authzen.AuthorizeResponse] {
	return func(ctx context.Context, call evaluation.Call, req *authzen.AuthorizeRequest) (*authzen.AuthorizeResponse, error) {
		if err := limits.admit(ctx, req.TenantID); err != nil {
			return nil, err
		}
		return engine.Authorize(ctx, call, req)
	}
}
