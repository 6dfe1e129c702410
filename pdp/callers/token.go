package callers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/policy-service/policy-service/pdp/jwks"
)

// An Issuer is trusted to say who callers are, in JSON Web Tokens (RFC 8725). A
// token's header chooses neither the keys that verify it nor, beyond
// Algorithms, how.
type Issuer struct {
	Issuer      string   `yaml:"issuer"`
	Audience    string   `yaml:"audience"`
	JWKSURL     string   `yaml:"jwks_url"`
	Algorithms  []string `yaml:"algorithms"`   // RS256 where there is none
	TenantClaim string   `yaml:"tenant_claim"` // has the caller's tenant or a list of them
	Grant       `yaml:",inline"`
}

// Limits of tokens.
const (
	maxToken  = 8 << 10
	notBefore = time.Minute // how far clocks may differ
)

// tokens knows callers by their tokens.
type tokens []*verifier

type verifier struct {
	*oidc.IDTokenVerifier
	issuer Issuer
	keys   *jwks.Keys
}

func newTokens(issuers []Issuer, transport http.RoundTripper) (tokens, error) {
	var out tokens
	for _, issuer := range issuers {
		if err := issuer.validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", issuer.Issuer, err)
		}
		keys := jwks.New(issuer.JWKSURL, transport, time.Now)
		out = append(out, &verifier{oidc.NewVerifier(issuer.Issuer, keys, &oidc.Config{
			ClientID: issuer.Audience, SupportedSigningAlgs: issuer.Algorithms,
		}), issuer, keys})
	}
	return out, nil
}

func (i Issuer) validate() error {
	if i.Issuer == "" || i.Audience == "" {
		return errors.New("issuer and audience are required")
	}
	if err := jwks.Check(i.JWKSURL, i.Algorithms); err != nil {
		return err
	}
	return i.Grant.validate()
}

// check knows the bearer of a token that one of the issuers has made.
func (t tokens) check(r *http.Request) (Caller, bool, error) {
	token := bearer(r)
	if strings.Count(token, ".") != 2 {
		return Caller{}, false, nil
	}
	if len(token) > maxToken {
		return Caller{}, false, fmt.Errorf("%w: a token has more than %d bytes", ErrUnauthenticated, maxToken)
	}
	var errs []error
	for _, v := range t {
		who, err := v.caller(r.Context(), token)
		if err == nil || errors.Is(err, jwks.ErrUnavailable) {
			return who, err == nil, err
		}
		errs = append(errs, err)
	}
	return Caller{}, false, fmt.Errorf("%w: %w", ErrUnauthenticated, errors.Join(errs...))
}

// caller returns who a token says its bearer is.
func (v *verifier) caller(ctx context.Context, token string) (Caller, error) {
	verified, err := v.Verify(ctx, token)
	switch {
	case err != nil && v.keys.Failing():
		return Caller{}, fmt.Errorf("%w: %w", jwks.ErrUnavailable, err)
	case err != nil:
		return Caller{}, err
	case verified.Subject == "":
		return Caller{}, errors.New("the token has no sub")
	}
	claims := map[string]any{}
	if err := verified.Claims(&claims); err != nil {
		return Caller{}, err
	}
	if since, ok := claims["nbf"].(float64); ok && time.Until(time.Unix(int64(since), 0)) > notBefore {
		return Caller{}, errors.New("the token is not valid yet")
	}
	full := v.issuer.Issuer + "#" + verified.Subject
	who := Caller{full, []string{full, verified.Subject}, v.issuer.Grant}
	if v.issuer.TenantClaim != "" {
		who.Tenants, err = tenantsIn(claims[v.issuer.TenantClaim], v.issuer.Tenants)
	}
	return who, err
}

// tenantsIn returns the tenants that a claim names, of those that its issuer may
// name. A token without one is for no tenant.
func tenantsIn(claim any, allowed []string) ([]string, error) {
	var named []string
	switch c := claim.(type) {
	case string:
		named = []string{c}
	case []any:
		for _, element := range c {
			if name, ok := element.(string); ok {
				named = append(named, name)
			}
		}
	}
	if len(allowed) > 0 {
		named = slices.DeleteFunc(named, func(name string) bool { return !slices.Contains(allowed, name) })
	}
	if len(named) == 0 {
		return nil, errors.New("the token names no tenant")
	}
	return named, nil
}
