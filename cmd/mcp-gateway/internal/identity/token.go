package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// An Issuer issues tokens of callers (RFC 8725, RFC 9068).
type Issuer struct {
	Issuer       string   `yaml:"issuer"`
	JWKSURL      string   `yaml:"jwks_url"`
	Algorithms   []string `yaml:"algorithms" list:"some"` // default RS256
	Audience     string   `yaml:"audience"`               // of its tokens at every endpoint; "" is the resource of the endpoint
	SubjectType  string   `yaml:"subject_type"`           // "" is identity
	SubjectClaim string   `yaml:"subject_claim"`          // "" is sub
	TenantClaim  string   `yaml:"tenant_claim"`           // has the caller's tenant; "" for none
	Tenants      []string `yaml:"tenants" list:"some"`    // that the issuer may name; nil allows all
}

// withDefaults returns the issuer with its defaults.
func (i Issuer) withDefaults(resource string) Issuer {
	i.Audience = cmp.Or(i.Audience, resource)
	i.SubjectType = cmp.Or(i.SubjectType, subjectType)
	i.SubjectClaim = cmp.Or(i.SubjectClaim, "sub")
	return i
}

func (i Issuer) validate() error {
	errs := []error{checkList("tenants", i.Tenants, "every tenant"), checkList("algorithms", i.Algorithms, "RS256")}
	for _, name := range i.Tenants {
		errs = append(errs, checkTenant(name))
	}
	return errors.Join(errs...)
}

// checkList reports an empty list: it could be mistaken for an absent one.
func checkList(name string, list []string, absent string) error {
	if list != nil && len(list) == 0 {
		return settingError(fmt.Sprintf("is empty: name some, or leave it out for %s", absent), name)
	}
	return nil
}

// newIssuers returns what verifies tokens of the issuers.
func newIssuers(c Config) ([]Issuer, *callers.Tokens, error) {
	var issuers []Issuer
	var trusted []callers.Trust
	var errs []error
	for n, config := range c.Issuers {
		i := config.withDefaults(c.Resource)
		issuers = append(issuers, i)
		trusted = append(trusted, callers.Trust{Issuer: i.Issuer, Audience: i.Audience, JWKSURL: i.JWKSURL, Algorithms: i.Algorithms})
		errs = append(errs, yamldoc.Below(i.validate(), "issuers", strconv.Itoa(n)))
	}
	tokens, err := callers.NewTokens(trusted, http.DefaultTransport, c.Now)
	return issuers, tokens, errors.Join(append(errs, yamldoc.Below(err, "issuers"))...)
}

// Token returns the bearer of a token that did not come with a request, such as an ID
// token. The errors are those of [Verifier.Verify].
func (v *Verifier) Token(ctx context.Context, token string) (*Caller, error) {
	return v.token(ctx, token, callers.Held{})
}

// token returns the bearer of a token.
func (v *Verifier) token(ctx context.Context, token string, held callers.Held) (*Caller, error) {
	n, claims, err := v.tokens.Verify(ctx, token, held)
	switch {
	case errors.Is(err, jwks.ErrUnavailable):
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	i := v.issuers[n]
	id, err := claims.ID(i.SubjectClaim)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	tenant, err := i.tenant(claims)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return &Caller{Subject: authzen.Subject{Type: i.SubjectType, ID: id}, Claims: claims, Tenant: tenant, Token: token}, nil
}

// tenant returns the tenant in the claims.
func (i Issuer) tenant(claims callers.Claims) (string, error) {
	if i.TenantClaim == "" {
		return "", nil
	}
	claim := claims[i.TenantClaim]
	if list, ok := claim.([]any); ok && len(list) == 1 {
		claim = list[0]
	}
	name, _ := claim.(string)
	switch {
	case name == "":
		return "", fmt.Errorf("%s of the token does not name one tenant", i.TenantClaim)
	case len(i.Tenants) > 0 && !slices.Contains(i.Tenants, name):
		return "", fmt.Errorf("the issuer may not name the tenant %q", name)
	}
	return name, checkTenant(name)
}
