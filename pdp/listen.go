package pdp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

type listeners struct {
	main, admin net.Listener
	tls         *tls.Config // of the main listener; nil for none
}

// listen opens both listeners. It refuses to answer other hosts unless the
// configuration says that this is meant.
func listen(c Config) (*listeners, error) {
	config, err := loadTLS(c.TLSCert, c.TLSKey)
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
	l := &listeners{main, admin, config}
	for _, listener := range []net.Listener{main, admin} {
		if !c.Insecure && !isLoopback(listener.Addr()) {
			l.close()
			return nil, fmt.Errorf("%w: %s (use a loopback address behind a proxy that authenticates, or say --insecure)", ErrInsecure, listener.Addr())
		}
	}
	return l, nil
}

func loadTLS(cert, key string) (*tls.Config, error) {
	switch {
	case cert == "" && key == "":
		return nil, nil
	case cert == "" || key == "":
		return nil, errors.New("a TLS certificate and its key go together: give both or neither")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

func (l *listeners) close() {
	_ = l.main.Close() // closed already after an orderly end
	_ = l.admin.Close()
}

func isLoopback(a net.Addr) bool {
	address, err := netip.ParseAddrPort(a.String())
	return err == nil && address.Addr().Unmap().IsLoopback()
}

func (l *listeners) mainURL() string {
	if l.tls != nil {
		return "https://" + l.main.Addr().String()
	}
	return "http://" + l.main.Addr().String()
}

func (l *listeners) adminURL() string { return "http://" + l.admin.Addr().String() }
