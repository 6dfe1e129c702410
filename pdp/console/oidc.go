package console

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// OIDC configures signing in at an OpenID provider (OpenID Connect Core 1.0, authorization code flow).
type OIDC struct {
	Issuer           string `yaml:"issuer"`                       // exact iss of its ID tokens; its metadata are found below
	ClientID         string `yaml:"client_id"`                    // of the console at the provider
	ClientSecretFile string `yaml:"client_secret_file,omitempty"` // "" for a public client

	IDClaim              string   `yaml:"id_claim,omitempty"`               // claim with the id by which policies and PEPs know the person; "" means email
	RequireVerifiedEmail *bool    `yaml:"require_verified_email,omitempty"` // refuse an email without email_verified; nil means true
	AliasClaims          []string `yaml:"alias_claims,omitempty" list:"some"`
	TenantClaim          string   `yaml:"tenant_claim,omitempty"`               // claim with the person's tenants; "" means all tenants
	Tenants              []string `yaml:"tenants,omitempty" list:"some"`        // tenants that the claim may name; nil means any
	RequestScopes        []string `yaml:"request_scopes,omitempty" list:"some"` // OAuth scopes beside openid; nil means email and profile

	ScopeClaim string                     `yaml:"scope_claim,omitempty"` // claim with the person's groups; "" means groups
	Scopes     map[string][]callers.Scope `yaml:"scopes"`                // what each group may do

	AllTenantsGroups []string `yaml:"all_tenants_groups,omitempty" list:"some"` // groups whose scopes are for every tenant, whatever TenantClaim says

	StepUp    string   `yaml:"step_up,omitempty" enum:"always,templates,never"` // when approving requires signing in again; "" means always
	ACRValues []string `yaml:"acr_values,omitempty" list:"some"`                // authentication contexts of which an approval requires one
}

// Values of OIDC.StepUp.
const (
	StepUpAlways    = "always"
	StepUpTemplates = "templates" // where the template of the approval requires it
	StepUpNever     = "never"
)

// Claims that a person is known by if the settings name no others.
const (
	claimEmail  = "email"
	claimGroups = "groups"
)

// consoleScopes are the scopes that people can have at the console.
var consoleScopes = []callers.Scope{scopeApprove, scopeAudit, scopeAdmin}

// Check returns a [yamldoc.SettingError] for each setting that is invalid.
func (o *OIDC) Check() error {
	var errs []error
	wrong := func(reason string, path ...string) {
		errs = append(errs, &yamldoc.SettingError{Path: path, Reason: reason})
	}
	if o.Issuer == "" {
		wrong("is required: iss of the provider's ID tokens, exactly", "issuer")
	} else if err := jwks.CheckURL(o.Issuer); err != nil {
		wrong(err.Error(), "issuer")
	}
	if strings.ContainsAny(o.Issuer, "#?") {
		wrong("must not have a query or a fragment", "issuer")
	}
	if o.ClientID == "" {
		wrong("is required: the id of the console at the provider", "client_id")
	}
	if !slices.Contains([]string{"", StepUpAlways, StepUpTemplates, StepUpNever}, o.StepUp) {
		wrong(fmt.Sprintf("must be %s, %s or %s, not %q", StepUpAlways, StepUpTemplates, StepUpNever, o.StepUp), "step_up")
	}
	if o.StepUp == StepUpNever && o.ACRValues != nil {
		wrong("has no effect with step_up: never", "acr_values")
	}
	for _, list := range []struct {
		key    string
		values []string
	}{{"alias_claims", o.AliasClaims}, {"tenants", o.Tenants}, {"request_scopes", o.RequestScopes}, {"acr_values", o.ACRValues}} {
		if list.values != nil && len(list.values) == 0 {
			wrong("is empty: name some, or leave it out", list.key)
		}
		for n, value := range list.values {
			if value == "" || strings.ContainsAny(value, " \t\n") {
				wrong(fmt.Sprintf("must be a name without spaces, not %q", value), list.key, strconv.Itoa(n))
			}
		}
	}
	if o.Tenants != nil && o.TenantClaim == "" {
		wrong("goes together with tenant_claim, which names the tenants of a person", "tenants")
	}
	for n, tenant := range o.Tenants {
		if !authzen.ValidTenant(tenant) {
			wrong(fmt.Sprintf("no tenant can be called %q", tenant), "tenants", strconv.Itoa(n))
		}
	}
	return errors.Join(append(errs, o.checkScopes(), o.checkAllTenants())...)
}

// checkAllTenants reports what is wrong with the groups that see every tenant. A group without scopes is
// refused, because it is a group that somebody misspelled.
func (o *OIDC) checkAllTenants() error {
	const key = "all_tenants_groups"
	switch {
	case o.AllTenantsGroups == nil:
		return nil
	case o.TenantClaim == "":
		return &yamldoc.SettingError{Path: []string{key}, Reason: "goes together with tenant_claim: without it, every group sees every tenant"}
	case len(o.AllTenantsGroups) == 0:
		return &yamldoc.SettingError{Path: []string{key}, Reason: "is empty: name some, or leave it out"}
	}
	known := slices.Sorted(maps.Keys(o.Scopes))
	var errs []error
	for n, group := range o.AllTenantsGroups {
		if !slices.Contains(known, group) {
			reason := strings.TrimSpace(fmt.Sprintf("must be a group of scopes, and %q is none: %s", group, yamldoc.DidYouMean(group, known)))
			errs = append(errs, &yamldoc.SettingError{Path: []string{key, strconv.Itoa(n)}, Reason: strings.TrimSuffix(reason, ":")})
		}
	}
	return errors.Join(errs...)
}

// checkScopes reports what is wrong with the scopes of groups.
func (o *OIDC) checkScopes() error {
	if len(o.Scopes) == 0 {
		return &yamldoc.SettingError{Path: []string{"scopes"}, Reason: "is required: what each group may do, as in {approvers: [approve]}"}
	}
	var errs []error
	for _, group := range slices.Sorted(maps.Keys(o.Scopes)) {
		if group == "" || len(o.Scopes[group]) == 0 {
			errs = append(errs, &yamldoc.SettingError{Path: []string{"scopes", group}, Reason: "must be a group with some of the scopes approve, audit and admin"})
		}
		for n, scope := range o.Scopes[group] {
			if !slices.Contains(consoleScopes, scope) {
				reason := fmt.Sprintf("must be one of %v: people at the console have no scope %q", consoleScopes, scope)
				errs = append(errs, &yamldoc.SettingError{Path: []string{"scopes", group, strconv.Itoa(n)}, Reason: reason})
			}
		}
	}
	return errors.Join(errs...)
}

// errNoScope means that a person has no group that may do something.
var errNoScope = errors.New("your groups do not let you see this")

// forTenants returns how the claims of a person of some groups are read, and the groups whose scopes the
// person has. Scopes are for every tenant or for the person's own, so a person of a group of every tenant has
// the scopes of such groups alone.
func (o *OIDC) forTenants(groups []string) (callers.Issuer, []string) {
	issuer := callers.Issuer{Issuer: o.Issuer, IDClaim: cmp.Or(o.IDClaim, claimEmail), AliasClaims: o.AliasClaims}
	var all []string
	for _, group := range groups {
		if slices.Contains(o.AllTenantsGroups, group) {
			all = append(all, group)
		}
	}
	if len(all) > 0 {
		return issuer, all
	}
	issuer.TenantClaim, issuer.Tenants = o.TenantClaim, o.Tenants
	return issuer, groups
}

// person returns who the claims of a verified ID token describe, and what the person may do. The error
// is errNoScope if that is nothing.
func (o *OIDC) person(claims callers.Claims) (callers.Caller, error) {
	if o.RequireVerifiedEmail != nil && !*o.RequireVerifiedEmail {
		claims = maps.Clone(claims)
		claims["email_verified"] = true
	}
	groups, unread := claims.Texts(cmp.Or(o.ScopeClaim, claimGroups))
	issuer, groups := o.forTenants(groups)
	who, err := callers.Person(issuer, claims)
	if err != nil {
		return who, err
	}
	if unread != nil {
		return who, errNoScope
	}
	for _, group := range groups {
		who.Scopes = append(who.Scopes, o.Scopes[group]...)
	}
	if len(who.Scopes) == 0 { // not the scopes of a credential without a list
		return who, errNoScope
	}
	slices.Sort(who.Scopes)
	who.Scopes = slices.Compact(who.Scopes)
	return who, nil
}
