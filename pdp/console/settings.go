package console

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// DefaultListen is the default address of the console. If its port is taken, the console uses the
// next free one.
const DefaultListen = "127.0.0.1:8082"

// nextPorts is how many ports after that of [DefaultListen] are tried.
const nextPorts = 100

// Settings configure the console. The zero value is no console.
type Settings struct {
	Listen      string        // address, host:port; "" means no console
	URL         string        // base URL for browsers; "" means the address, which must then be of this host
	TLSCert     string        // PEM files; both or neither
	TLSKey      string        //
	BehindProxy bool          // a proxy in front of the console terminates TLS
	SessionIdle time.Duration // after which an unused session ends; 0 means 15 minutes
	SessionMost time.Duration // after which every session ends; 0 means 8 hours
	OIDC        *OIDC         // signing in at an identity provider; nil for none
	Links       *bool         // signing in by a link from the command line; nil means without OIDC
}

// ErrInsecure means that the settings would let people sign in over a network without TLS.
var ErrInsecure = errors.New("console: other hosts can reach it without TLS")

// Check returns a [yamldoc.SettingError] for each setting that is invalid.
func (s *Settings) Check() error {
	wrong := func(key, reason string) error {
		return &yamldoc.SettingError{Path: []string{"console", key}, Reason: reason}
	}
	var errs []error
	if (s.TLSCert == "") != (s.TLSKey == "") {
		errs = append(errs, wrong("tls_key", "goes together with tls_cert: give both or neither"))
	}
	if s.BehindProxy && s.TLSCert != "" {
		errs = append(errs, wrong("behind_proxy", "excludes tls_cert: either the proxy terminates TLS or the console does"))
	}
	if s.BehindProxy && s.URL == "" {
		errs = append(errs, wrong("url", "is required behind a proxy: it is the address that browsers see"))
	}
	if s.URL != "" {
		if reason := s.checkURL(); reason != "" {
			errs = append(errs, wrong("url", reason))
		}
	}
	if s.SessionIdle < 0 || s.SessionMost < 0 {
		errs = append(errs, wrong("session_idle", "and session_most cannot be negative"))
	}
	if s.Links != nil && *s.Links && (s.BehindProxy || s.beyondHost()) {
		errs = append(errs, wrong("links", "works only on a console that listens on this host alone, without a proxy before it"))
	}
	if s.OIDC != nil {
		if s.URL == "" {
			errs = append(errs, wrong("oidc", "needs console.url: the provider leads browsers back to it"))
		}
		errs = append(errs, yamldoc.Below(s.OIDC.Check(), "console", "oidc"))
	}
	return errors.Join(errs...)
}

// beyondHost reports whether the address of the console is one that other hosts may reach.
func (s *Settings) beyondHost() bool {
	host, _, err := net.SplitHostPort(s.Listen)
	return err == nil && !jwks.IsThisHost(host)
}

// checkURL returns what is wrong with the base URL, or "".
func (s *Settings) checkURL() string {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil:
		return err.Error()
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return "must be scheme and host alone, as in https://console.example.com"
	case u.Scheme == "https", u.Scheme == "http" && jwks.IsThisHost(u.Hostname()):
		return ""
	}
	return "must begin with https://: a session must not cross a network in clear"
}

// ListenTCP opens the console's listener. It refuses an address that other hosts can reach, unless
// the console has TLS or a proxy that terminates it.
func (s *Settings) ListenTCP() (net.Listener, error) {
	l, err := net.Listen("tcp", s.Listen)
	if err != nil && s.Listen == DefaultListen {
		l, err = listenNext()
	}
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	host, _, _ := net.SplitHostPort(l.Addr().String()) // of a TCP address
	if !jwks.IsThisHost(host) && s.TLSCert == "" && !s.BehindProxy {
		return nil, errors.Join(fmt.Errorf("%w: %s (set console.tls_cert and console.tls_key, or console.behind_proxy if a proxy terminates TLS)", ErrInsecure, l.Addr()), l.Close())
	}
	return l, nil
}

// listenNext listens on the first free port after that of [DefaultListen].
func listenNext() (net.Listener, error) {
	first := netip.MustParseAddrPort(DefaultListen)
	for n := 1; ; n++ {
		l, err := net.Listen("tcp", net.JoinHostPort(first.Addr().String(), strconv.Itoa(int(first.Port())+n)))
		if err == nil || n == nextPorts {
			return l, err
		}
	}
}

// BaseURL returns the URL of the console that listens at an address.
func (s *Settings) BaseURL(at net.Addr) string {
	if s.URL != "" {
		u, _ := url.Parse(s.URL) // checked
		return u.Scheme + "://" + u.Host
	}
	scheme := "http"
	if s.TLSCert != "" {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(at.String())
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
