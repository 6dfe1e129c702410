package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/policy-service/policy-service/pdp/callers"
)

// DPoP says whether callers prove that they hold the key of their token (RFC 9449).
type DPoP string

const (
	DPoPOff      DPoP = "off"      // no caller can; tokens that are bound to a key are refused
	DPoPOptional DPoP = "optional" // those do whose token is bound to a key
	DPoPRequired DPoP = "required" // every caller with a token does
)

var (
	// ErrProof means that a proof is missing or not valid for the request.
	ErrProof = errors.New("the DPoP proof is not valid")
	// ErrNonce means that a proof has no nonce of this process, or an old one.
	ErrNonce = errors.New("the DPoP proof lacks a current nonce")
	// ErrTooManyProofs means that no more proofs can be remembered.
	ErrTooManyProofs = errors.New("too many DPoP proofs in a short time")
)

const (
	schemeDPoP = "DPoP"
	headerDPoP = "DPoP"
)

func (d DPoP) isOn() bool { return d == DPoPOptional || d == DPoPRequired }

func (c Config) validateDPoP() error {
	var errs []error
	switch c.DPoP {
	case "", DPoPOff:
		if c.DPoPNonce {
			errs = append(errs, settingError("needs identity.dpop: optional or required", "dpop_nonce"))
		}
		return errors.Join(errs...)
	case DPoPOptional, DPoPRequired:
	default:
		return settingError(fmt.Sprintf("must be %s, %s or %s, not %q", DPoPOff, DPoPOptional, DPoPRequired, string(c.DPoP)), "dpop")
	}
	if c.Resource == "" {
		errs = append(errs, settingError("needs identity.resource: proofs name the URL that they are for", "dpop"))
	}
	if len(c.Issuers) == 0 {
		errs = append(errs, settingError("needs identity.issuers: proofs are of the keys of their tokens", "dpop"))
	}
	return errors.Join(errs...)
}

// proved returns the bearer of a token that is bound to a key, who proves with this
// request to hold the key (RFC 9449, section 4.3).
func (v *Verifier) proved(r *http.Request, token string) (*Caller, error) {
	p, err := v.readProof(r, token)
	if err != nil {
		return nil, err
	}
	caller, err := v.token(r.Context(), token, callers.Held{Certificate: callers.Thumbprint(r), Key: p.thumbprint})
	if err != nil {
		return nil, err
	}
	if bound, _ := caller.Claims["cnf"].(map[string]any); bound["jkt"] == nil {
		return nil, fmt.Errorf("%w: the token of a DPoP proof is bound to no key", ErrInvalid)
	}
	caller.JKT = p.thumbprint
	return caller, v.Proofs.use(p, caller, v.Now())
}

// readProof returns the proof of a request, once it is valid for the request and for
// the token.
func (v *Verifier) readProof(r *http.Request, token string) (*proof, error) {
	headers := r.Header.Values(headerDPoP)
	if len(headers) != 1 {
		return nil, fmt.Errorf("%w: there are %d DPoP headers, not 1", ErrProof, len(headers))
	}
	p, err := parseProof(headers[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProof, err)
	}
	return p, v.checkProof(p, r.Method, token)
}

// proofAge is the greatest difference between the time of a proof and the present.
const proofAge = 5 * time.Minute

// checkProof compares a proof with the request that it came with.
func (v *Verifier) checkProof(p *proof, method, token string) error {
	digest := sha256.Sum256([]byte(token))
	switch age := v.Now().Sub(p.issued()); {
	case p.Method != method:
		return fmt.Errorf("%w: htm is not the method of the request", ErrProof)
	case !sameURL(p.URL, v.Resource):
		return fmt.Errorf("%w: htu is not %s", ErrProof, v.Resource)
	case v.DPoPNonce && !v.Proofs.isCurrent(p.Nonce, v.Now()):
		return ErrNonce
	case age > proofAge || age < -proofAge:
		return fmt.Errorf("%w: iat is %s from now", ErrProof, age.Abs())
	case p.TokenDigest != base64.RawURLEncoding.EncodeToString(digest[:]):
		return fmt.Errorf("%w: ath is not the digest of the token", ErrProof)
	}
	return nil
}

// sameURL reports whether htu is the URL of a resource, apart from a query and a
// fragment (RFC 9449, section 4.3; RFC 3986, sections 6.2.2 and 6.2.3).
func sameURL(htu, resource string) bool {
	a, errA := url.Parse(htu)
	b, errB := url.Parse(resource)
	return errA == nil && errB == nil && a.User == nil && a.Host != "" && normalURL(a) == normalURL(b)
}

func normalURL(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == map[string]string{"https": "443", "http": "80"}[scheme] {
		port = ""
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port + path
}
