package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"strings"

	"github.com/policy-service/policy-service/pdp/filereload"
)

// A serverTLS has the files for connections to a server.
type serverTLS struct {
	Cert string `yaml:"cert"` // of the gateway
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"` // authorities of the server; "" is those of the system
}

// configs returns what has the configuration of each new connection, which follows
// the files; nil without settings.
func (s *serverTLS) configs(log *slog.Logger) (func() *tls.Config, error) {
	if s == nil {
		return nil, nil
	}
	files := filereload.Config{Log: log}
	var own filereload.Certificate
	var authorities *filereload.Value[*x509.CertPool]
	var err error
	if s.Cert != "" {
		if own, err = filereload.NewCertificate(s.Cert, s.Key, files); err != nil {
			return nil, err
		}
	}
	if s.CA != "" {
		if authorities, err = filereload.NewCertPool(s.CA, files); err != nil {
			return nil, err
		}
	}
	return func() *tls.Config {
		config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
		if own.Value != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.Get(), nil }
		}
		if authorities != nil {
			config.RootCAs = authorities.Get()
		}
		return config
	}, nil
}

// check reports what is wrong with the settings of a server at a path.
func (s *serverTLS) check(f *faults, url, at string) {
	if s == nil {
		return
	}
	if *s == (serverTLS{}) {
		f.fault(at+".tls", "is empty: name cert and key, or ca")
	}
	if !strings.HasPrefix(url, "https://") {
		f.fault(at+".tls", "needs an https url of the server")
	}
	f.needs(s.Cert == "" || s.Key != "", at+".tls.key", at+".tls.cert", "the file of its key")
	f.needs(s.Key == "" || s.Cert != "", at+".tls.cert", at+".tls.key", "the file of its certificate")
}

// checkFiles reports files that cannot be used.
func (s *serverTLS) checkFiles(f *faults, at string) {
	if s == nil {
		return
	}
	if s.Cert != "" && s.Key != "" {
		if _, err := tls.LoadX509KeyPair(s.Cert, s.Key); err != nil {
			f.fault(at+".tls.cert", "cannot be used: %v", err)
		}
	}
	if s.CA != "" {
		if _, err := filereload.NewCertPool(s.CA, filereload.Config{}); err != nil {
			f.fault(at+".tls.ca", "cannot be used: %v", err)
		}
	}
}
