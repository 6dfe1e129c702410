package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

var (
	// ErrNone means that a request has no credential.
	ErrNone = errors.New("the request has no credential")
	// ErrInvalid means that a credential is not valid at this endpoint.
	ErrInvalid = errors.New("the credential is not valid")
	// ErrUnavailable means that the keys of an issuer cannot be read, so that no token
	// of it can be verified.
	ErrUnavailable = errors.New("the keys of the issuer cannot be read")
)

// A Config configures a [Verifier].
type Config struct {
	// Resource is the URL of the gateway for its clients: the audience of tokens and
	// the resource of the metadata. [Verifier.At] sets it for an endpoint.
	Resource string   `yaml:"resource"`
	Issuers  []Issuer `yaml:"issuers" list:"some"`
	MTLS     *MTLS    `yaml:"mtls"`
	Process  *Process `yaml:"process"`
	Scopes   []string `yaml:"scopes"` // to advertise; the PDP decides what a caller may do
	DPoP     DPoP     `yaml:"dpop"`   // "" is DPoPOff
	// DPoPNonce has proofs carry a nonce of this process, so that no proof from before
	// its start is valid.
	DPoPNonce bool `yaml:"dpop_nonce"`

	Proofs *Proofs          `yaml:"-"` // those that were used before; nil is none
	Now    func() time.Time `yaml:"-"` // nil is time.Now
}

// MTLS authenticates callers by certificates that the listener has verified. Callers
// must name the certificate.
type MTLS struct {
	Callers []CertificateCaller `yaml:"callers" list:"some"`
}

// A CertificateCaller is the holder of a certificate.
type CertificateCaller struct {
	Name   string `yaml:"name"` // a URI or DNS name of the certificate
	Type   string `yaml:"type"` // of the subject; "" is identity
	Tenant string `yaml:"tenant"`
}

// A Process is the caller of a gateway that is a child process of its client and has
// no token in its environment: the person at this computer.
type Process struct {
	Type   string `yaml:"type"` // of the subject; "" is identity
	ID     string `yaml:"id"`
	Tenant string `yaml:"tenant"`
}

// A Caller is an authenticated caller.
type Caller struct {
	Subject authzen.Subject // type and id
	// Claims are the claims of the token, with numbers as jsontext.Values. For a
	// certificate or a process they are sub and aud.
	Claims map[string]any
	Tenant string // of the PDP, or ""
	Token  string // the verified token; "" for a certificate or a process
	// JKT is the thumbprint (RFC 7638) of the key that the caller has proved to hold
	// and that the token is bound to, or "".
	JKT string
}

// subjectType is the default type of subjects.
const subjectType = "identity"

// TokenVariable is the environment variable with the token of the caller of a gateway
// that is a child process.
const TokenVariable = "MCP_GATEWAY_TOKEN"

// A Verifier authenticates callers. It is safe for concurrent use.
type Verifier struct {
	Config
	issuers  []Issuer
	tokens   *callers.Tokens
	metadata metadata
}

// New returns a Verifier. A configuration without issuers, certificates and a process
// is an error, because no caller could authenticate.
func New(c Config) (*Verifier, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Proofs == nil {
		c.Proofs = NewProofs()
	}
	v := &Verifier{Config: c}
	if len(c.Issuers) == 0 && c.MTLS == nil && c.Process == nil {
		return nil, errors.New("no caller can authenticate: configure identity.issuers, identity.mtls or identity.local")
	}
	var errs []error
	issuers, tokens, err := newIssuers(c)
	if err != nil {
		errs = append(errs, err)
	}
	v.issuers, v.tokens = issuers, tokens
	if c.Resource != "" || len(c.Issuers) > 0 {
		var err error
		if v.metadata, err = newMetadata(c); err != nil {
			errs = append(errs, yamldoc.Below(err, "resource"))
		}
	}
	return v, errors.Join(append(errs, c.validate())...)
}

// At returns the verifier of the endpoint with the URL resource. Tokens for other
// endpoints are not valid there, unless their issuer has an audience of its own. The
// verifiers share the keys of issuers.
func (v *Verifier) At(resource string) (*Verifier, error) {
	at := *v
	at.Resource = resource
	var err error
	if at.metadata, err = newMetadata(at.Config); err != nil {
		return nil, err
	}
	at.issuers = slices.Clone(v.issuers)
	audiences := make([]string, len(v.issuers))
	for n, i := range v.Issuers {
		at.issuers[n] = i.withDefaults(resource)
		audiences[n] = at.issuers[n].Audience
	}
	at.tokens = v.tokens.WithAudiences(audiences)
	return &at, nil
}

func (c Config) validate() error {
	errs := []error{c.validateDPoP()}
	if c.MTLS != nil {
		if len(c.MTLS.Callers) == 0 {
			errs = append(errs, settingError("is required: callers by the names of their certificates", "mtls", "callers"))
		}
		for i, caller := range c.MTLS.Callers {
			at := []string{"mtls", "callers", strconv.Itoa(i)}
			if caller.Name == "" {
				errs = append(errs, yamldoc.Below(settingError("is required: a URI or DNS name of a certificate", "name"), at...))
			}
			errs = append(errs, yamldoc.Below(checkTenant(caller.Tenant), append(at, "tenant")...))
		}
	}
	if c.Process != nil {
		if c.Process.ID == "" {
			errs = append(errs, settingError("is required: the id of who starts the gateway", "process", "id"))
		}
		errs = append(errs, yamldoc.Below(checkTenant(c.Process.Tenant), "process", "tenant"))
	}
	return errors.Join(errs...)
}

// settingError returns a fault of a setting with its path of keys.
func settingError(reason string, path ...string) error {
	return &yamldoc.SettingError{Path: path, Reason: reason}
}

func checkTenant(name string) error {
	if name != "" && !authzen.ValidTenant(name) {
		return fmt.Errorf("%q is not a valid name of a tenant", name)
	}
	return nil
}

// Verify returns the sender of a request. The error is [ErrNone], [ErrInvalid],
// [ErrProof], [ErrNonce], [ErrTooManyProofs] or [ErrUnavailable]. A token has precedence over a certificate.
func (v *Verifier) Verify(r *http.Request) (*Caller, error) {
	headers := r.Header.Values("Authorization")
	switch {
	case len(headers) == 1:
		scheme, token, _ := strings.Cut(headers[0], " ")
		token = strings.TrimSpace(token)
		switch {
		case v.DPoP.isOn() && strings.EqualFold(scheme, schemeDPoP):
			return v.proved(r, token)
		case !strings.EqualFold(scheme, "Bearer"):
			return nil, fmt.Errorf("%w: the scheme is %q, not Bearer", ErrInvalid, scheme)
		case v.DPoP == DPoPRequired:
			return nil, fmt.Errorf("%w: a bearer token, and identity.dpop is required", ErrInvalid)
		}
		return v.token(r.Context(), token, callers.Held{Certificate: callers.Thumbprint(r)})
	case len(headers) > 1:
		return nil, fmt.Errorf("%w: there are %d Authorization headers", ErrInvalid, len(headers))
	case v.MTLS != nil:
		return v.certificate(r)
	}
	return nil, ErrNone
}

// Environment returns the caller that started the gateway as a child process: the
// bearer of the token in [TokenVariable] or, without one, the configured process.
func (v *Verifier) Environment(ctx context.Context, getenv func(string) string) (*Caller, error) {
	if token := getenv(TokenVariable); token != "" {
		if v.DPoP == DPoPRequired {
			return nil, fmt.Errorf("%w: a token of the environment comes without a proof, and identity.dpop is required", ErrInvalid)
		}
		return v.token(ctx, token, callers.Held{})
	}
	if v.Process == nil {
		return nil, ErrNone
	}
	return v.caller(v.Process.Type, v.Process.ID, v.Process.Tenant), nil
}

// certificate returns the caller of a verified certificate.
func (v *Verifier) certificate(r *http.Request) (*Caller, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, ErrNone
	}
	if len(r.TLS.VerifiedChains) == 0 {
		return nil, fmt.Errorf("%w: the certificate was not verified", ErrInvalid)
	}
	names := callers.CertificateNames(r.TLS.PeerCertificates[0])
	for _, c := range v.MTLS.Callers {
		if slices.Contains(names, c.Name) {
			return v.caller(c.Type, c.Name, c.Tenant), nil
		}
	}
	return nil, fmt.Errorf("%w: no caller has the certificate of %q", ErrInvalid, names)
}

// caller returns a caller without a token.
func (v *Verifier) caller(kind, id, tenant string) *Caller {
	if kind == "" {
		kind = subjectType
	}
	claims := map[string]any{"sub": id}
	if v.Resource != "" {
		claims["aud"] = v.Resource
	}
	return &Caller{Subject: authzen.Subject{Type: kind, ID: id}, Claims: claims, Tenant: tenant}
}
