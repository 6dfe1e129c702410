package callers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A Scope is something that a caller may do.
type Scope string

// The scopes. A credential that lists none has the first three.
const (
	ScopeEvaluate Scope = "evaluate" // ask for decisions
	ScopeSearch   Scope = "search"   // search for who and what may
	ScopeRequest  Scope = "request"  // ask for access, and for its approval
	ScopeApprove  Scope = "approve"  // list requests, decide on them, revoke approvals
	ScopeAdmin    Scope = "admin"    // reload policies and settings, rotate keys
	ScopeAudit    Scope = "audit"    // read the decision log
)

// Scopes lists all scopes.
func Scopes() []Scope {
	return []Scope{ScopeEvaluate, ScopeSearch, ScopeRequest, ScopeApprove, ScopeAdmin, ScopeAudit}
}

// UnmarshalText reads the name of a scope.
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

// defaultScopes are those of a credential that lists none.
var defaultScopes = Scopes()[:3]

var (
	// ErrUnauthenticated is a request without a credential that is known here.
	ErrUnauthenticated = errors.New("missing or invalid credential")
	// ErrForbidden is a request that its caller may not make.
	ErrForbidden = errors.New("the credential lacks the required scope or tenant")
)

// A Grant is what a credential lets its holder do.
type Grant struct {
	Tenants []string `yaml:"tenants,omitempty" list:"some"` // that it may ask about; nil is every one
	Scopes  []Scope  `yaml:"scopes,omitempty" list:"some"`  // nil is evaluate, search and request
}

// check reports scopes and tenants that there cannot be. A list that is present
// and empty is a fault: nobody means every tenant by it.
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

// A TenantSetting is a tenant that credentials are for, by the keys that lead to it.
type TenantSetting struct {
	Tenant string
	Path   string
}

// TenantSettings lists the tenants that credentials name.
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

// A Caller is who sends a request. The zero value is anybody, where callers are
// not authenticated.
type Caller struct {
	ID    string   // by which policies and the decision log know the caller
	Names []string // every verified name of the same person, ID among them; sorted

	Clients []string // names of the client that the token was made for, which may be that of many people; sorted
	Unclear error    // ErrActors where nobody can say who acts by the token
	Grant
}

// May reports whether the credential has a scope.
func (c Caller) May(s Scope) bool {
	return slices.Contains(c.Scopes, s) || len(c.Scopes) == 0 && slices.Contains(defaultScopes, s)
}

// MayAsk reports whether requests about a tenant are the caller's to make.
func (c Caller) MayAsk(tenant string) bool {
	return len(c.Tenants) == 0 || slices.Contains(c.Tenants, tenant)
}
