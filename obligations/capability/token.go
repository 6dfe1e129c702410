package capability

import (
	"fmt"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// TokenType is the type of tokens. It differs from those of other tokens with the same keys.
const TokenType = "capability+jwt"

// DetailsType is the type of the authorization details (RFC 9396) in a token.
const DetailsType = "urn:policy-service:capability"

// Bounds of tokens: their size in bytes, and how long one is valid. The keys of the service verify for
// that time after they stopped signing.
const (
	maxToken      = 8 << 10
	tokenLifetime = 90 * 24 * time.Hour
)

// A tokenClaims is the payload of a token: the capability in a portable form (RFC 7519).
type tokenClaims struct {
	Issuer    string        `json:"iss"`
	Audience  string        `json:"aud"` // base URL of the tenant
	Subject   string        `json:"sub"` // TYPE:ID of the holder
	IssuedAt  int64         `json:"iat"`
	NotBefore int64         `json:"nbf"`
	Expires   int64         `json:"exp"`
	ID        string        `json:"jti"`
	Granter   string        `json:"act_issuer,omitzero"` // TYPE:ID of the person who granted it
	Key       *confirmation `json:"cnf,omitempty"`
	Session   string        `json:"sid,omitzero"` // digest of the session
	Parent    string        `json:"par,omitzero"` // from which it was handed on
	Details   []details     `json:"authorization_details"`
}

// A confirmation names the key of the holder (RFC 7800).
type confirmation struct {
	JKT string `json:"jkt"`
}

// A details element says what the holder may use (RFC 9396).
type details struct {
	Type        string       `json:"type"`
	Tools       []string     `json:"tools"`
	Constraints *Constraints `json:"constraints,omitempty"`
}

// Token returns the signed form of an active capability, or "". It is no secret: it is good for what its
// id is good for.
func (s *Service) Token(c *Capability) (string, error) {
	if s.config.SignToken == nil || c.State != Active {
		return "", nil
	}
	now := s.now()
	base := s.config.BaseURL(c.Tenant)
	limits := c.Constraints
	limits.ValidFrom, limits.ValidUntil = time.Time{}, time.Time{} // claims of their own
	claims := tokenClaims{
		Issuer: s.config.BaseURL(""), Audience: base, Subject: nameOf(c.Holder), ID: c.ID, Session: c.Session, Parent: c.Parent,
		IssuedAt: now.Unix(), NotBefore: c.Constraints.ValidFrom.Unix(), Expires: earliest(now.Add(tokenLifetime), c.Constraints.ValidUntil).Unix(),
		Details: []details{{Type: DetailsType, Tools: c.Tools}},
	}
	if limits.MaxUses > 0 || limits.Arguments != nil || limits.ArgumentsSchema != nil {
		claims.Details[0].Constraints = &limits
	}
	if c.Issuer != nil {
		claims.Granter = nameOf(*c.Issuer)
	}
	if c.Key != nil {
		claims.Key = &confirmation{c.Key.JKT}
	}
	token, err := s.config.SignToken(TokenType, claims)
	if err != nil {
		return "", fmt.Errorf("sign capability: %w", err)
	}
	return token, nil
}

func nameOf(s authzen.Subject) string { return s.Type + ":" + s.ID }

// parseToken returns the claims of a token for a tenant. It reports false for a token that the service
// has not signed for it.
func (s *Service) parseToken(tenant, token string) (claims tokenClaims, ok bool) {
	if s.config.VerifyToken == nil || len(token) > maxToken || s.config.VerifyToken(TokenType, token, &claims) != nil {
		return claims, false
	}
	return claims, claims.Audience == s.config.BaseURL(tenant) && claims.Issuer == s.config.BaseURL("")
}

// named returns the id of the capability that a claim presents. It reports false if its token is none of
// the tenant, or of another capability.
func (s *Service) named(tenant string, claim *authzen.CapabilityClaim) (id string, expires time.Time, ok bool) {
	if claim.Token == "" {
		return claim.ID, expires, true
	}
	claims, ok := s.parseToken(tenant, claim.Token)
	if !ok || claim.ID != "" && claim.ID != claims.ID {
		return "", expires, false
	}
	return claims.ID, time.Unix(claims.Expires, 0), true
}

// IDOf returns the id of the capability of a token that is valid for a tenant, or ErrUnknown.
func (s *Service) IDOf(tenant, token string) (id string, err error) {
	id, expires, ok := s.named(tenant, &authzen.CapabilityClaim{Token: token})
	if !ok || !s.moment().Before(expires) {
		return "", ErrUnknown
	}
	return id, nil
}
