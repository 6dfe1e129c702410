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

// An Issuer is a trusted issuer of JSON Web Tokens (RFC 8725). The header of a token never chooses
// the key, and chooses the algorithm only among Algorithms.
type Issuer struct {
	Issuer      string   `yaml:"issuer"`
	Audience    string   `yaml:"audience"`
	JWKSURL     string   `yaml:"jwks_url"`
	Algorithms  []string `yaml:"algorithms,omitempty" list:"some"`   // default RS256
	TenantClaim string   `yaml:"tenant_claim,omitempty"`             // claim with the caller's tenants, a string or a list
	IDClaim     string   `yaml:"id_claim,omitempty"`                 // claim with the caller's id, or FullID; "" means sub for the only issuer of approvers, else FullID
	AliasClaims []string `yaml:"alias_claims,omitempty" list:"some"` // claims with further names of the same person
	Grant       `yaml:",inline"`
}

const (
	// FullID is the id_claim for an id of the form ISSUER#SUB.
	FullID = "iss#sub"
	// separator separates issuer and subject.
	separator = "#"

	claimSubject = "sub"
)

// checkIssuers reports all faults of issuers, alone and in combination.
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

// approves reports whether the issuer's tokens may have the scope approve.
func (i Issuer) approves() bool {
	return slices.Contains(i.Scopes, ScopeApprove) || slices.Contains(i.Scopes, ScopeAdmin)
}

// onlyApprovers returns the only issuer of approvers, or "" if there is not exactly one.
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

// bearers identifies callers by their tokens.
type bearers struct {
	tokens   *Tokens
	issuers  []Issuer // with id claims set
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

// idOf returns the effective id_claim of an issuer without one, and a warning for the operator.
// PEPs name people by sub. So the default for the only issuer of approvers is sub.
func idOf(i Issuer, onlyApprovers string) (claim, warning string) {
	switch {
	case !i.approves():
		return FullID, ""
	case i.Issuer == onlyApprovers:
		return claimSubject, fmt.Sprintf("callers, approvers among them, are known as SUB, no longer as ISSUER#SUB: policies and entities have to name them so. Set id_claim: sub to agree, or id_claim: %q to keep ISSUER#SUB", FullID)
	}
	return FullID, fmt.Sprintf("there are several issuers of approvers, so that callers are known as ISSUER#SUB, which PEPs hardly send: set id_claim to the claim by which PEPs know people, or to %q to agree", FullID)
}

// check identifies the bearer of a token of one of the issuers.
func (b *bearers) check(r *http.Request) (Caller, bool, error) {
	token := bearer(r)
	if len(b.issuers) == 0 || strings.Count(token, ".") != 2 {
		return Caller{}, false, nil
	}
	n, claims, err := b.tokens.Verify(r.Context(), token, Held{Certificate: Thumbprint(r)})
	if err != nil {
		return Caller{}, false, err
	}
	who, err := b.caller(b.issuers[n], claims)
	if err != nil {
		return Caller{}, false, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	return who, true, nil
}

// caller returns the bearer according to the claims.
func (b *bearers) caller(i Issuer, claims Claims) (who Caller, err error) {
	subject, err := claims.Text(claimSubject)
	if err != nil {
		return Caller{}, err
	}
	full := i.Issuer + separator + subject
	who = Caller{ID: full, Names: []string{full, subject}, Proof: claims.Proof(i.Issuer, subject), Grant: i.Grant}
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

// id returns the id in a claim. It refuses a full id: an issuer must not name subjects of another
// issuer.
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

// tenantsIn returns the tenants in a claim that its issuer may name. Without a list of allowed
// tenants all are allowed. A token without the claim has no tenant.
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
