package identity

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/number"
	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Issuer is trusted to say who callers are (RFC 8725, RFC 9068).
type Issuer struct {
	Issuer       string   `yaml:"issuer"`
	JWKSURL      string   `yaml:"jwks_url"`
	Algorithms   []string `yaml:"algorithms"`    // RS256 where there is none
	Audience     string   `yaml:"audience"`      // "" is the gateway's resource
	SubjectType  string   `yaml:"subject_type"`  // "" is identity
	SubjectClaim string   `yaml:"subject_claim"` // "" is sub
	TenantClaim  string   `yaml:"tenant_claim"`  // has the caller's tenant; "" for none
	Tenants      []string `yaml:"tenants"`       // that the issuer may name; empty is every one
}

// Limits of tokens.
const (
	maxToken  = 8 << 10
	notBefore = time.Minute // how far clocks may differ
)

// types are what a token may say that it is. Others are not to call with.
var types = []string{"", "JWT", "AT+JWT", "APPLICATION/AT+JWT"}

type issuer struct {
	Issuer
	verifier *oidc.IDTokenVerifier
	keys     *jwks.Keys
	now      func() time.Time
}

func newIssuer(c Issuer, resource string, now func() time.Time) (*issuer, error) {
	c.Audience = cmp.Or(c.Audience, resource)
	c.SubjectType = cmp.Or(c.SubjectType, subjectType)
	c.SubjectClaim = cmp.Or(c.SubjectClaim, "sub")
	if c.Issuer == "" || c.Audience == "" {
		return nil, errors.New("issuer and audience are required")
	}
	if err := jwks.Check(c.JWKSURL, c.Algorithms); err != nil {
		return nil, err
	}
	for _, name := range c.Tenants {
		if err := checkTenant(name); err != nil {
			return nil, err
		}
	}
	keys := jwks.New(c.JWKSURL, http.DefaultTransport, now)
	return &issuer{c, oidc.NewVerifier(c.Issuer, keys, &oidc.Config{
		ClientID: c.Audience, SupportedSigningAlgs: c.Algorithms, Now: now,
	}), keys, now}, nil
}

// thumbprint returns that of the certificate that the request came with, or "".
func thumbprint(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	digest := sha256.Sum256(r.TLS.PeerCertificates[0].Raw)
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

// token tells the bearer of a token.
func (v *Verifier) token(ctx context.Context, token, thumbprint string) (*Caller, error) {
	name, err := unverified(token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for _, i := range v.issuers {
		if i.Issuer.Issuer != name {
			continue
		}
		caller, err := i.caller(ctx, token, thumbprint)
		if err != nil && !errors.Is(err, ErrUnavailable) {
			err = fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return caller, err
	}
	return nil, fmt.Errorf("%w: no issuer is called %q", ErrInvalid, name)
}

// unverified returns the issuer that a token says it is of, so that no other is
// asked about it.
func unverified(token string) (string, error) {
	if len(token) > maxToken {
		return "", fmt.Errorf("the token has more than %d bytes", maxToken)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("the token is not a JWT")
	}
	var header struct {
		Type string `json:"typ"`
	}
	if err := segment(parts[0], &header); err != nil {
		return "", fmt.Errorf("header: %w", err)
	}
	if !slices.Contains(types, strings.ToUpper(header.Type)) {
		return "", fmt.Errorf("a token of type %q is not to call with", header.Type)
	}
	var payload struct {
		Issuer string `json:"iss"`
	}
	if err := segment(parts[1], &payload); err != nil {
		return "", fmt.Errorf("payload: %w", err)
	}
	return payload.Issuer, nil
}

func segment(text string, into any) error {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// caller verifies a token and returns its bearer.
func (i *issuer) caller(ctx context.Context, token, thumbprint string) (*Caller, error) {
	verified, err := i.verifier.Verify(ctx, token)
	switch {
	case err != nil && i.keys.Failing():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case err != nil:
		return nil, err
	}
	var payload jsontext.Value
	if err := verified.Claims(&payload); err != nil {
		return nil, err
	}
	claims, err := readClaims(payload)
	if err != nil {
		return nil, err
	}
	if err := i.bound(claims, thumbprint); err != nil {
		return nil, err
	}
	id, _ := claims[i.SubjectClaim].(string)
	if id == "" {
		return nil, fmt.Errorf("the token has no %s", i.SubjectClaim)
	}
	tenant, err := i.tenant(claims)
	if err != nil {
		return nil, err
	}
	return &Caller{Subject: authzen.Subject{Type: i.SubjectType, ID: id}, Claims: claims, Tenant: tenant}, nil
}

// readClaims reads a payload strictly, and leaves numbers as they are.
func readClaims(payload jsontext.Value) (map[string]any, error) {
	v, err := number.Read(payload, func(text string) (any, error) { return jsontext.Value(text), nil })
	if err != nil {
		return nil, err
	}
	claims, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("the payload is not an object")
	}
	return claims, nil
}

// bound reports claims that another reader of the token may have read
// otherwise, a token that is not valid yet, and one that is for a holder who
// has proved to be none: it is no bearer's (RFC 9449 7.1, RFC 8705 3).
func (i *issuer) bound(claims map[string]any, thumbprint string) error {
	if claims["iss"] != i.Issuer.Issuer || !names(claims["aud"], i.Audience) {
		return errors.New("the token is not of the issuer for this audience")
	}
	if since, there := claims["nbf"]; there {
		text, _ := since.(jsontext.Value)
		seconds, err := strconv.ParseFloat(string(text), 64)
		if err != nil || i.now().Add(notBefore).Unix() < int64(seconds) {
			return errors.New("the token is not valid yet")
		}
	}
	confirmation, there := claims["cnf"]
	if !there {
		return nil
	}
	methods, ok := confirmation.(map[string]any)
	if of, certificate := methods["x5t#S256"].(string); !ok || len(methods) != 1 || !certificate || thumbprint == "" || of != thumbprint {
		return errors.New("the token is bound to a key that the caller has not proved to hold")
	}
	return nil
}

// names reports whether a claim is the name or lists it.
func names(claim any, name string) bool {
	list, ok := claim.([]any)
	if !ok {
		list = []any{claim}
	}
	return slices.Contains(list, any(name))
}

// tenant returns the one tenant that the claims name.
func (i *issuer) tenant(claims map[string]any) (string, error) {
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
