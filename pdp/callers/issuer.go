package callers

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// An Issuer is trusted to say who callers are, in JSON Web Tokens (RFC 8725). A
// token's header chooses neither the keys that verify it nor, beyond
// Algorithms, how.
type Issuer struct {
	Issuer      string   `yaml:"issuer"`
	Audience    string   `yaml:"audience"`
	JWKSURL     string   `yaml:"jwks_url"`
	Algorithms  []string `yaml:"algorithms,omitempty" list:"some"`   // RS256 where there is none
	TenantClaim string   `yaml:"tenant_claim,omitempty"`             // has the caller's tenant or a list of them
	IDClaim     string   `yaml:"id_claim,omitempty"`                 // has the caller's id; FullID is ISSUER#SUB; "" is sub for the only issuer of approvers, else FullID
	AliasClaims []string `yaml:"alias_claims,omitempty" list:"some"` // have further names of the same person
	Grant       `yaml:",inline"`
}

const (
	// FullID is the id_claim for a caller's id of issuer and subject, ISSUER#SUB.
	FullID = "iss#sub"
	// separator is between the two.
	separator = "#"

	claimSubject = "sub"
)

// checkIssuers reports everything that is wrong with issuers, each by itself and
// beside one another.
func checkIssuers(issuers []Issuer) error {
	var errs []error
	for n, i := range issuers {
		if i.Algorithms != nil && len(i.Algorithms) == 0 {
			errs = append(errs, wrong("is empty: name some, or leave it out for RS256", strconv.Itoa(n), "algorithms"))
		}
		errs = append(errs, yamldoc.Below(i.Grant.check(), strconv.Itoa(n)))
	}
	return yamldoc.Below(errors.Join(append(errs, checkTrusted(trusted(issuers)))...), "jwt")
}

func trusted(issuers []Issuer) (all []Trust) {
	for _, i := range issuers {
		all = append(all, Trust{Issuer: i.Issuer, Audience: i.Audience, JWKSURL: i.JWKSURL, Algorithms: i.Algorithms})
	}
	return all
}

// approves reports whether the issuer's tokens let people decide on requests.
func (i Issuer) approves() bool {
	return slices.Contains(i.Scopes, ScopeApprove) || slices.Contains(i.Scopes, ScopeAdmin)
}

// onlyApprovers returns the only issuer whose tokens let people decide on
// requests, "" if there are several or none.
func onlyApprovers(issuers []Issuer) (only string) {
	for _, i := range issuers {
		switch {
		case !i.approves() || i.Issuer == only:
		case only != "":
			return ""
		default:
			only = i.Issuer
		}
	}
	return only
}

// bearers knows callers by their tokens.
type bearers struct {
	tokens   *Tokens
	issuers  []Issuer // with their id claims
	warnings []string
}

func newBearers(issuers []Issuer, transport http.RoundTripper, now func() time.Time) (*bearers, error) {
	b := &bearers{issuers: slices.Clone(issuers)}
	only := onlyApprovers(issuers)
	for n, i := range issuers {
		if i.IDClaim != "" {
			continue
		}
		id, warning := idOf(i, only)
		b.issuers[n].IDClaim = id
		if warning != "" {
			b.warnings = append(b.warnings, fmt.Sprintf("auth: jwt: %s: %s", i.Issuer, warning))
		}
	}
	var err error
	b.tokens, err = NewTokens(trusted(issuers), transport, now)
	return b, err
}

// idOf returns the id_claim of an issuer that has none, and what an operator has
// to know of it: PEPs name people by their sub, so that the only issuer of
// approvers names them so, too.
func idOf(i Issuer, onlyApprovers string) (claim, warning string) {
	switch {
	case !i.approves():
		return FullID, ""
	case i.Issuer == onlyApprovers:
		return claimSubject, fmt.Sprintf("callers, approvers among them, are known as SUB, no longer as ISSUER#SUB: policies and entities have to name them so. Set id_claim: sub to agree, or id_claim: %q to keep ISSUER#SUB", FullID)
	}
	return FullID, fmt.Sprintf("there are several issuers of approvers, so that callers are known as ISSUER#SUB, which PEPs hardly send: set id_claim to the claim by which PEPs know people, or to %q to agree", FullID)
}

// check knows the bearer of a token that one of the issuers has made.
func (b *bearers) check(r *http.Request) (Caller, bool, error) {
	token := bearer(r)
	if len(b.issuers) == 0 || strings.Count(token, ".") != 2 {
		return Caller{}, false, nil
	}
	n, claims, err := b.tokens.Verify(r.Context(), token, Thumbprint(r))
	if err != nil {
		return Caller{}, false, err
	}
	who, err := b.caller(b.issuers[n], claims)
	if err != nil {
		return Caller{}, false, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	return who, true, nil
}

// caller returns who the claims of an issuer say that their bearer is.
func (b *bearers) caller(i Issuer, claims Claims) (who Caller, err error) {
	subject, err := claims.Text(claimSubject)
	if err != nil {
		return Caller{}, err
	}
	full := i.Issuer + separator + subject
	who = Caller{ID: full, Names: []string{full, subject}, Grant: i.Grant}
	if i.IDClaim != FullID {
		if who.ID, err = b.id(i, claims); err != nil {
			return Caller{}, err
		}
		who.Names = append(who.Names, who.ID)
	}
	for _, claim := range i.AliasClaims {
		if claims[claim] == nil {
			continue
		}
		name, err := claims.ID(claim)
		if err != nil {
			return Caller{}, err
		}
		who.Names = append(who.Names, name)
	}
	if who, err = who.with(i, claims); err != nil {
		return Caller{}, err
	}
	if i.TenantClaim != "" {
		who.Tenants, err = tenantsIn(claims, i.TenantClaim, i.Tenants)
	}
	return who, err
}

// id returns the id that a claim has. It is nobody's full id: one issuer does
// not speak for another.
func (b *bearers) id(i Issuer, claims Claims) (string, error) {
	id, err := claims.ID(i.IDClaim)
	if err != nil {
		return "", err
	}
	for _, other := range b.issuers {
		if strings.HasPrefix(id, other.Issuer+separator) {
			return "", fmt.Errorf("%s of the token is an id of %s", i.IDClaim, other.Issuer)
		}
	}
	return id, nil
}

// tenantsIn returns the tenants that a claim names, of those that its issuer may
// name; all where none are listed. A token without one is for no tenant.
func tenantsIn(claims Claims, claim string, allowed []string) ([]string, error) {
	named, err := claims.texts(claim)
	if err != nil {
		return nil, err
	}
	named = slices.DeleteFunc(named, func(name string) bool {
		return !authzen.ValidTenant(name) || len(allowed) > 0 && !slices.Contains(allowed, name)
	})
	if len(named) == 0 {
		return nil, fmt.Errorf("%s of the token names no tenant", claim)
	}
	return named, nil
}
