package pdp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/filereload"
	"github.com/policy-service/policy-service/pdp/jwks"
)

type listeners struct {
	main    *connections
	admin   net.Listener
	tls     *tls.Config                // TLS configuration of the main listener; nil for none
	callers atomic.Pointer[tls.Config] // configuration of tls for new connections

	console    *connections // nil for none
	consoleTLS *tls.Config  // nil for none
	consoleURL string       // for browsers; "" without a console
}

// listen opens both listeners. It refuses to serve other hosts without authentication, unless the
// configuration explicitly allows that.
func listen(c Config) (*listeners, error) {
	config, err := loadTLS(c)
	if err != nil {
		return nil, err
	}
	main, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("main listener: %w", err)
	}
	admin, err := net.Listen("tcp", c.AdminListen)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("admin listener: %w", err), main.Close())
	}
	l := &listeners{main: newConnections(smallBufferListener{main}, c.Limits, c.Auth.Known()), admin: admin}
	l.secure(config)
	if err := errors.Join(l.check(c), l.listenConsole(c)); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// maxUnread is the size in bytes of a connection's send buffer; Linux doubles it. The default is
// megabytes, so a client that requests one file a hundred times without reading would hold them all
// in memory.
const maxUnread = 128 << 10

// smallBufferListener limits the send buffer of its connections.
type smallBufferListener struct{ net.Listener }

func (l smallBufferListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, is := conn.(*net.TCPConn); is {
		// On error the connection has ended. Its next read reports that.
		_ = tcp.SetWriteBuffer(maxUnread)
	}
	return conn, err
}

// secure enables TLS on the main listener, if a configuration is given.
func (l *listeners) secure(config *tls.Config) {
	if config == nil {
		return
	}
	l.callers.Store(config)
	l.tls = config.Clone()
	l.tls.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return l.callers.Load(), nil }
}

// renewed reads the issuers of client certificates again. It returns a function that activates them
// for new connections.
func (l *listeners) renewed(auth Auth) (use func(), err error) {
	var now *tls.Config
	if l.tls != nil {
		now = l.callers.Load()
	}
	switch asked := now != nil && now.ClientCAs != nil; {
	case asked != (auth.MTLS != nil):
		return nil, fmt.Errorf("%w: whether callers have certificates", callers.ErrRestart)
	case !asked:
		return func() {}, nil
	}
	issuers, err := readCertificates(auth.MTLS.CA)
	if err != nil {
		return nil, err
	}
	now = now.Clone()
	now.ClientCAs = issuers
	return func() { l.callers.Store(now) }, nil
}

// check refuses to serve other hosts without TLS and authentication. Insecure allows that for the
// main listener. The admin listener has no TLS and always requires authentication for other hosts;
// AdminInsecure allows it without TLS.
func (l *listeners) check(c Config) error {
	safe := l.tls != nil && c.Auth.Known()
	switch {
	case !safe && !c.Insecure && !isLoopback(l.main.Addr()):
		return fmt.Errorf("%w: %s (configure auth and a TLS certificate, use a loopback address behind a proxy that authenticates, or say --insecure)", ErrInsecure, l.main.Addr())
	case !isLoopback(l.admin.Addr()) && !(c.AdminInsecure && c.Auth.Known()):
		return fmt.Errorf("%w: %s (use a loopback address for administration, or configure auth and say --admin-insecure)", ErrInsecure, l.admin.Addr())
	}
	return nil
}

// loadTLS reads the certificate of the main listener and, if callers use certificates, their
// issuers.
func loadTLS(c Config) (*tls.Config, error) {
	switch {
	case c.TLSCert == "" && c.TLSKey == "" && c.Auth.MTLS == nil:
		return nil, nil
	case c.TLSCert == "" && c.TLSKey == "":
		return nil, errors.New("auth: mtls: client certificates need TLS: set a TLS certificate and its key")
	case c.TLSCert == "" || c.TLSKey == "":
		return nil, errors.New("a TLS certificate and its key go together: give both or neither")
	}
	own, err := filereload.NewCertificate(c.TLSCert, c.TLSKey, filereload.Config{Log: c.Log})
	if err != nil {
		return nil, err
	}
	config := serverTLS(own)
	if c.Auth.MTLS != nil {
		config.ClientAuth = tls.VerifyClientCertIfGiven
		config.ClientCAs, err = readCertificates(c.Auth.MTLS.CA)
	}
	return config, err
}

// serverTLS returns the TLS configuration of a listener with a certificate.
func serverTLS(own filereload.Certificate) *tls.Config {
	return &tls.Config{GetCertificate: own.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
}

func readCertificates(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("auth: mtls: ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("auth: mtls: ca: %s has no certificate in PEM", file)
	}
	return pool, nil
}

func (l *listeners) close() {
	_ = l.main.Close() // after a shutdown it is already closed
	_ = l.admin.Close()
	if l.console != nil {
		_ = l.console.Close()
	}
}

func isLoopback(a net.Addr) bool {
	host, _, err := net.SplitHostPort(a.String())
	return err == nil && jwks.IsThisHost(host)
}

func (l *listeners) mainURL() string {
	if l.tls != nil {
		return "https://" + l.main.Addr().String()
	}
	return "http://" + l.main.Addr().String()
}

func (l *listeners) adminURL() string { return "http://" + l.admin.Addr().String() }

// ownAdminURL returns the URL of the admin listener for programs on this host. It replaces an
// unspecified address by the loopback address.
func (l *listeners) ownAdminURL() string {
	address, err := netip.ParseAddrPort(l.admin.Addr().String())
	if err != nil || !address.Addr().IsUnspecified() {
		return l.adminURL()
	}
	return fmt.Sprintf("http://127.0.0.1:%d", address.Port())
}
