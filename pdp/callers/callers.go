package callers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A Scope is a permission of a caller.
type Scope string

// Scopes. A credential without a list of scopes has the first three.
const (
	ScopeEvaluate Scope = "evaluate" // request decisions
	ScopeSearch   Scope = "search"   // search for subjects, resources and actions
	ScopeRequest  Scope = "request"  // submit Access Requests
	ScopeLabel    Scope = "label"    // send what a gateway's callers have read, at context.session.labels
	ScopeApprove  Scope = "approve"  // list Access Requests, decide on them, revoke approvals
	ScopeAdmin    Scope = "admin"    // reload policies and settings, rotate keys
	ScopeAudit    Scope = "audit"    // read the decision log
)

// Scopes lists all scopes.
func Scopes() []Scope {
	return []Scope{ScopeEvaluate, ScopeSearch, ScopeRequest, ScopeLabel, ScopeApprove, ScopeAdmin, ScopeAudit}
}

// UnmarshalText parses the name of a scope.
func (s *Scope) UnmarshalText(text []byte) error {
	*s = Scope(text)
	return s.validate()
}

func (s Scope) validate() error {
	if !slices.Contains(Scopes(), s) {
		hint := yamldoc.DidYouMean(string(s), scopeNames())
		if hint != "" {
			hint = " (" + hint + ")"
		}
		return fmt.Errorf("there is no scope %q: write some of %v%s", string(s), Scopes(), hint)
	}
	return nil
}

func scopeNames() (names []string) {
	for _, s := range Scopes() {
		names = append(names, string(s))
	}
	return names
}

// defaultScopes are the scopes of a credential without a list.
var defaultScopes = Scopes()[:3]

var (
	// ErrUnauthenticated means that a request has no valid credential.
	ErrUnauthenticated = errors.New("missing or invalid credential")
	// ErrForbidden means that the credential does not permit the request.
	ErrForbidden = errors.New("the credential lacks the required scope or tenant")
)

// A Grant is what a credential permits.
type Grant struct {
	Tenants []string `yaml:"tenants,omitempty" list:"some"` // allowed tenants; nil means all
	Scopes  []Scope  `yaml:"scopes,omitempty" list:"some"`  // nil means evaluate, search and request
}

// check reports invalid scopes and tenants. An empty list is a fault, because it could be mistaken
// for all tenants.
func (g Grant) check() error {
	var errs []error
	if g.Tenants != nil && len(g.Tenants) == 0 {
		errs = append(errs, wrong("is empty: name some, or leave it out for every tenant", "tenants"))
	}
	if g.Scopes != nil && len(g.Scopes) == 0 {
		errs = append(errs, wrong(fmt.Sprintf("is empty: name some, or leave it out for %v", defaultScopes), "scopes"))
	}
	for n, s := range g.Scopes {
		errs = append(errs, yamldoc.Below(s.validate(), "scopes", strconv.Itoa(n)))
	}
	for n, tenant := range g.Tenants {
		if !authzen.ValidTenant(tenant) {
			errs = append(errs, wrong(fmt.Sprintf("no tenant can be called %q", tenant), "tenants", strconv.Itoa(n)))
		}
	}
	return errors.Join(errs...)
}

// A TenantSetting is a tenant of a credential, with its keys in the configuration.
type TenantSetting struct {
	Tenant string
	Path   string
}

// TenantSettings lists the tenants of all credentials.
func (a Auth) TenantSettings() (all []TenantSetting) {
	add := func(g Grant, path string) {
		for n, tenant := range g.Tenants {
			all = append(all, TenantSetting{tenant, fmt.Sprintf("auth.%s.tenants.%d", path, n)})
		}
	}
	for n, key := range a.APIKeys {
		add(key.Grant, fmt.Sprintf("api_keys.%d", n))
	}
	for n, issuer := range a.JWT {
		add(issuer.Grant, fmt.Sprintf("jwt.%d", n))
	}
	if a.MTLS != nil {
		add(a.MTLS.Grant, "mtls")
		for n, caller := range a.MTLS.Callers {
			add(caller.Grant, fmt.Sprintf("mtls.callers.%d", n))
		}
	}
	return all
}

// A Caller is the sender of a request. The zero value is an unauthenticated caller.
type Caller struct {
	ID    string   // name of the caller in policies and in the decision log
	Names []string // all verified names of the same person, including ID; sorted

	Clients []string // names of the token's client, which many people may share; sorted
	Unclear error    // ErrActors if the actors of the token are not known
	Proof   Proof    // how the caller proved who it is
	Grant
}

// Methods of a proof. The zero method is that of a caller who is not authenticated.
const (
	MethodAPIKey = "api_key"
	MethodJWT    = "jwt"
	MethodMTLS   = "mtls"
)

// A Proof says how a caller proved who it is. All but the method are claims of a token, if the
// token has them.
type Proof struct {
	Method  string
	Issuer  string
	Subject string
	ACR     string    // authentication context
	AMR     []string  // authentication methods (RFC 8176)
	Time    time.Time // when the person authenticated to the issuer
}

// May reports whether the credential has a scope.
func (c Caller) May(s Scope) bool {
	return slices.Contains(c.Scopes, s) || len(c.Scopes) == 0 && slices.Contains(defaultScopes, s)
}

// MayAsk reports whether the caller may send requests about a tenant.
func (c Caller) MayAsk(tenant string) bool {
	return len(c.Tenants) == 0 || slices.Contains(c.Tenants, tenant)
}
