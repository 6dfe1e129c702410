package callers

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// MTLS identifies callers by certificates that CA issued. If Callers is empty, every such
// certificate is valid. Otherwise only the listed ones are.
type MTLS struct {
	CA      string       `yaml:"ca"` // PEM file
	Callers []MTLSCaller `yaml:"callers,omitempty" list:"some"`
	Grant   `yaml:",inline"`
}

// An MTLSCaller is the holder of a certificate.
type MTLSCaller struct {
	Name  string `yaml:"name"` // URI or DNS name in the certificate
	Grant `yaml:",inline"`
}

func (m *MTLS) check() error {
	if m == nil {
		return nil
	}
	var errs []error
	if m.CA == "" {
		errs = append(errs, wrong("is required: the file of the certificates that issue callers'", "ca"))
	}
	if m.Callers != nil && len(m.Callers) == 0 {
		errs = append(errs, wrong("is empty: name some, or leave it out for every certificate that ca has issued", "callers"))
	}
	errs = append(errs, m.Grant.check())
	for n, c := range m.Callers {
		var unnamed error
		if c.Name == "" {
			unnamed = wrong("is required: a URI or DNS name of the certificate", "name")
		}
		errs = append(errs, yamldoc.Below(errors.Join(unnamed, c.Grant.check()), "callers", strconv.Itoa(n)))
	}
	return yamldoc.Below(errors.Join(errs...), "mtls")
}

func (m *MTLS) verify(r *http.Request) (Caller, bool, error) {
	if m == nil || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return Caller{}, false, nil
	}
	names := CertificateNames(r.TLS.PeerCertificates[0])
	for _, name := range names {
		for _, c := range m.Callers {
			if c.Name == name {
				return Caller{ID: name, Names: names, Proof: Proof{Method: MethodMTLS}, Grant: c.Grant}, true, nil
			}
		}
	}
	if len(m.Callers) > 0 || len(names) == 0 {
		return Caller{}, false, fmt.Errorf("%w: no caller has the certificate of %q", ErrUnauthenticated, names)
	}
	return Caller{ID: names[0], Names: names, Proof: Proof{Method: MethodMTLS}, Grant: m.Grant}, true, nil
}

// CertificateNames returns the URIs of a certificate, then its DNS names. It omits a DNS name with
// a colon: that is not valid, and could pass for a URI.
func CertificateNames(certificate *x509.Certificate) (names []string) {
	for _, uri := range certificate.URIs {
		if uri.IsAbs() {
			names = append(names, uri.String())
		}
	}
	return append(names, slices.DeleteFunc(slices.Clone(certificate.DNSNames), func(name string) bool { return strings.Contains(name, ":") })...)
}
