package callers

import (
	"bytes"
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

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A Trust is the configured knowledge about an issuer. RFC 8725 requires that the token determines
// none of it.
type Trust struct {
	Issuer     string // exact iss of its tokens
	Audience   string // required aud of its tokens
	JWKSURL    string
	Algorithms []string // default RS256
}

// check reports missing and insecure values.
func (t Trust) check() error {
	var errs []error
	switch {
	case t.Issuer == "":
		errs = append(errs, wrong("is required: iss of the tokens, exactly", "issuer"))
	case strings.Contains(t.Issuer, separator):
		errs = append(errs, wrong("the issuer must not have a "+separator, "issuer"))
	}
	if t.Audience == "" {
		errs = append(errs, wrong("is required: what the tokens name in aud", "audience"))
	}
	errs = append(errs, yamldoc.Below(jwks.CheckURL(t.JWKSURL), "jwks_url"))
	for n, algorithm := range t.Algorithms {
		errs = append(errs, yamldoc.Below(jwks.CheckAlgorithm(algorithm), "algorithms", strconv.Itoa(n)))
	}
	return errors.Join(errs...)
}

// checkTrusted reports all faults of issuers, with their indexes.
func checkTrusted(trusted []Trust) error {
	var errs []error
	for n, trust := range trusted {
		err := trust.check()
		if slices.ContainsFunc(trusted[:n], func(o Trust) bool { return o.Issuer == trust.Issuer && o.Audience == trust.Audience }) {
			err = errors.Join(err, wrong("the issuer is there twice for the audience "+trust.Audience, "issuer"))
		}
		errs = append(errs, yamldoc.Below(err, strconv.Itoa(n)))
	}
	return errors.Join(errs...)
}

// maxToken is the maximum size of a token in bytes.
const maxToken = 8 << 10

// types lists valid values of typ (RFC 8725, section 3.11; RFC 9068, section 2.1). Tokens of other
// types, such as logout tokens, are not credentials.
var types = []string{"", "JWT", "AT+JWT", "APPLICATION/JWT", "APPLICATION/AT+JWT"}

// Tokens verifies the tokens of several issuers.
type Tokens struct {
	issuers []issuer
	now     func() time.Time
}

type issuer struct {
	Trust
	algorithms []jose.SignatureAlgorithm
	keys       *jwks.Keys
}

// NewTokens returns a verifier for the tokens of trusted issuers. It fetches their keys through
// transport when it verifies the first token. The error has all faults of the issuers, with their
// indexes ([yamldoc.SettingError]).
func NewTokens(trusted []Trust, transport http.RoundTripper, now func() time.Time) (*Tokens, error) {
	t := &Tokens{now: now}
	if err := checkTrusted(trusted); err != nil {
		return nil, err
	}
	for _, trust := range trusted {
		i := issuer{Trust: trust, keys: jwks.New(trust.JWKSURL, transport, now)}
		for _, algorithm := range trust.Algorithms {
			i.algorithms = append(i.algorithms, jose.SignatureAlgorithm(algorithm))
		}
		if i.algorithms == nil {
			i.algorithms = []jose.SignatureAlgorithm{jose.RS256}
		}
		t.issuers = append(t.issuers, i)
	}
	return t, nil
}

// WithAudiences returns a verifier of the tokens of the same issuers that name other
// audiences, one for each issuer. Both verifiers read and keep the keys together.
func (t *Tokens) WithAudiences(audiences []string) *Tokens {
	other := &Tokens{issuers: slices.Clone(t.issuers), now: t.now}
	for n := range other.issuers {
		other.issuers[n].Audience = audiences[n]
	}
	return other
}

// Verify returns the claims of a token and the index of its issuer. The error
// is ErrUnauthenticated, or jwks.ErrUnavailable if the issuer's keys cannot be fetched.
//
// Verify fetches keys only of the issuer that the token names, and only if all other checks pass.
// So a slow or unavailable issuer affects no other.
func (t *Tokens) Verify(ctx context.Context, token string, held Held) (int, Claims, error) {
	n, claims, err := t.verify(ctx, token, held)
	if err != nil && !errors.Is(err, jwks.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	return n, claims, err
}

func (t *Tokens) verify(ctx context.Context, token string, held Held) (int, Claims, error) {
	payload, err := parse(token)
	if err != nil {
		return 0, nil, err
	}
	claims, err := readClaims(payload)
	if err != nil {
		return 0, nil, fmt.Errorf("claims: %w", err)
	}
	n, err := t.issuerOf(claims)
	if err != nil {
		return 0, nil, err
	}
	if err := claims.check(t.now(), held); err != nil {
		return 0, nil, err
	}
	signed, err := jose.ParseSignedCompact(token, t.issuers[n].algorithms)
	if err != nil {
		return 0, nil, err
	}
	verified, err := t.issuers[n].keys.Verify(ctx, signed)
	switch {
	case err != nil:
		return 0, nil, err
	case !bytes.Equal(verified, payload): // claims must be those of the signed bytes
		return 0, nil, errors.New("the token has two payloads")
	}
	return n, claims, nil
}

// parse returns the unverified payload of a token, after it has checked the header.
func parse(token string) (payload []byte, err error) {
	if len(token) > maxToken {
		return nil, fmt.Errorf("a token has more than %d bytes", maxToken)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errors.New("the token is not a JWT")
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(parts[0])
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	var header struct {
		Type     string `json:"typ"`
		Critical any    `json:"crit"`
	}
	if err := json.Unmarshal(text, &header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if !slices.Contains(types, strings.ToUpper(header.Type)) || header.Critical != nil {
		return nil, fmt.Errorf("a token of type %q, or with extensions, is not to call with", header.Type)
	}
	if payload, err = base64.RawURLEncoding.Strict().DecodeString(parts[1]); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	return payload, nil
}

// issuerOf returns the index of the issuer that iss and aud name.
func (t *Tokens) issuerOf(claims Claims) (int, error) {
	known := false
	for n, i := range t.issuers {
		if claims["iss"] != i.Issuer {
			continue
		}
		if known = true; claims.listed("aud", i.Audience) {
			return n, nil
		}
	}
	if known {
		return 0, errors.New("the token is for another audience")
	}
	return 0, errors.New("the issuer of the token is unknown")
}

// Held are the thumbprints of the keys that a caller has proved to hold.
type Held struct {
	Certificate string // of the client certificate (RFC 8705, section 3.1), or ""
	Key         string // of the key of a DPoP proof (RFC 7638; RFC 9449, section 6.1), or ""
}

// confirms reports whether the caller holds each key that a token is bound to.
func (h Held) confirms(methods map[string]any) bool {
	held := map[string]string{"x5t#S256": h.Certificate, "jkt": h.Key}
	for method, thumbprint := range methods {
		if held[method] == "" || thumbprint != held[method] {
			return false
		}
	}
	return len(methods) > 0
}

// Thumbprint returns the thumbprint of a request's client certificate (RFC 8705, section 3.1), or
// "".
func Thumbprint(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	digest := sha256.Sum256(r.TLS.PeerCertificates[0].Raw)
	return base64.RawURLEncoding.EncodeToString(digest[:])
}
