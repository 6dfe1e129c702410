package identity

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp/jwks"
)

// wellKnown precedes the path of the resource (RFC 9728 3.1).
const wellKnown = "/.well-known/oauth-protected-resource"

// metadata is the protected resource metadata, for clients without a token (RFC 9728
// 2).
type metadata struct {
	path, url string
	body      []byte
}

func newMetadata(c Config) (metadata, error) {
	u, err := url.Parse(c.Resource)
	switch {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return metadata{}, fmt.Errorf("must be a URL without query and fragment, not %q", c.Resource)
	case u.Scheme != "https" && (u.Scheme != "http" || !jwks.IsThisHost(u.Hostname())):
		return metadata{}, fmt.Errorf("must be an https URL, not %q", c.Resource)
	}
	document := struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		DPoP     []string `json:"dpop_signing_alg_values_supported,omitempty"`
		Bound    bool     `json:"dpop_bound_access_tokens_required,omitzero"`
	}{Resource: c.Resource, Methods: []string{"header"}, Scopes: c.Scopes, Bound: c.DPoP == DPoPRequired}
	if c.DPoP.isOn() {
		document.DPoP = proofAlgorithmNames()
	}
	for _, i := range c.Issuers {
		document.Servers = append(document.Servers, i.Issuer)
	}
	body, err := json.Marshal(document)
	path := wellKnown + strings.TrimSuffix(u.EscapedPath(), "/")
	return metadata{path, u.Scheme + "://" + u.Host + path, body}, err
}

// MetadataPath returns the path of the metadata.
func (v *Verifier) MetadataPath() string { return v.metadata.path }

// ServeMetadata answers with the metadata of the protected resource, which do not
// depend on the request.
func (v *Verifier) ServeMetadata(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Access-Control-Allow-Origin", "*") // for clients in browsers
	w.Write(v.metadata.body)
}

// Refuse answers a request without a valid credential with the URL of the metadata
// (RFC 6750 3, RFC 9449 7.1, RFC 9728 5.1). It does not say what is wrong with the
// credential.
func (v *Verifier) Refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrTooManyProofs) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if v.DPoP != DPoPRequired {
		w.Header().Add("WWW-Authenticate", v.challenge("Bearer", "", err))
	}
	if v.DPoP.isOn() {
		w.Header().Add("WWW-Authenticate", v.challenge(schemeDPoP, strings.Join(proofAlgorithmNames(), " "), err))
	}
	if v.DPoPNonce {
		w.Header().Set("DPoP-Nonce", v.Proofs.nonce(v.Now()))
	}
	w.WriteHeader(http.StatusUnauthorized)
}

// challenge returns the challenge of a scheme after an error. Faults of proofs belong
// to the scheme of proofs.
func (v *Verifier) challenge(scheme, algorithms string, err error) string {
	var parameters []string
	add := func(name, value string) { parameters = append(parameters, fmt.Sprintf("%s=%q", name, value)) }
	if algorithms != "" {
		add("algs", algorithms)
	}
	if v.metadata.url != "" {
		add("resource_metadata", v.metadata.url)
	}
	ofProof := errors.Is(err, ErrProof) || errors.Is(err, ErrNonce)
	switch {
	case errors.Is(err, ErrNone), ofProof && algorithms == "":
	case errors.Is(err, ErrNonce):
		add("error", "use_dpop_nonce")
	case ofProof:
		add("error", "invalid_dpop_proof")
	default:
		add("error", "invalid_token")
	}
	return strings.TrimSpace(scheme + " " + strings.Join(parameters, ", "))
}
