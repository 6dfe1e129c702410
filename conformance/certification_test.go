package conformance_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/conformance"
)

// Behind a proxy that ends TLS, the service is asked by HTTP and describes
// itself by the URL that PEPs use.
func TestCertification(t *testing.T) {
	s := serve(t, "certification", "--public-url", identifier)
	conformance.Run(t, conformance.Target{BaseURL: s.URL, Identifier: identifier})
}

// The service that knows its callers passes the modules about credentials, too.
func TestCertificationWithCredentials(t *testing.T) {
	digest := sha256.Sum256([]byte(strings.TrimPrefix(bearer, "Bearer ")))
	s := serve(t, "certification", "--public-url", identifier, "--auth", fmt.Sprintf("api_keys: [{id: pep, sha256: %x}]", digest))
	conformance.Run(t, conformance.Target{BaseURL: s.URL, Identifier: identifier, Authorization: bearer})
}

// Without a proxy, the service is what it says it is.
func TestCertificationOverTLS(t *testing.T) {
	cert, key, transport := certificate(t)
	s := serve(t, "certification", "--tls-cert", cert, "--tls-key", key)
	conformance.Run(t, conformance.Target{BaseURL: s.URL, Transport: transport})
}

// certificate writes a certificate for the loopback address and returns a
// transport that trusts it and nothing else.
func certificate(t *testing.T) (cert, key string, transport *http.Transport) {
	t.Helper()
	donor := httptest.NewTLSServer(nil)
	defer donor.Close()
	pair := donor.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(donor.Certificate())
	return writePEM(t, "CERTIFICATE", pair.Certificate[0]), writePEM(t, "PRIVATE KEY", private),
		&http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
