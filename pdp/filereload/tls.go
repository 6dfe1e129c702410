package filereload

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// A Certificate is the certificate of a listener.
type Certificate struct{ *Value[*tls.Certificate] }

// NewCertificate reads a certificate and its key, which are PEM files.
func NewCertificate(certFile, keyFile string, cfg Config) (Certificate, error) {
	v, err := New("TLS certificate", func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		return &pair, err
	}, cfg, certFile, keyFile)
	if err != nil {
		return Certificate{}, fmt.Errorf("TLS certificate: %w", err)
	}
	return Certificate{v}, nil
}

// GetCertificate is for a [tls.Config]: new connections use the new certificate.
func (c Certificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.Get(), nil
}

// NewCertPool reads the certificates of a PEM file, of which there is at least one.
func NewCertPool(file string, cfg Config) (*Value[*x509.CertPool], error) {
	return New("certificates of "+file, func() (*x509.CertPool, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", file)
		}
		return pool, nil
	}, cfg, file)
}
