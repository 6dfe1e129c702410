// Package webhook posts to URLs of others: callbacks of PEPs, and services that notify people.
//
// # Guarantees
//
// A request goes to a public address, or to one that the operator names. The check applies to the
// address of the connection, because a name may resolve to another address the next time. The client
// follows no redirect. Errors do not have the URL, whose path may be a secret.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/policy-service/policy-service/pdp/jwks"
)

// Headers of a signed request. The signature is "sha256=" and, in hex, the HMAC-SHA-256 of the
// timestamp, a dot and the body.
const (
	HeaderTimestamp = "Callback-Timestamp"
	HeaderSignature = "Callback-Signature"
)

// timeout is the time limit of a request.
const timeout = 10 * time.Second

// ErrPrivate means that a name resolves to an address that is not public.
var ErrPrivate = errors.New("the address is not public")

// Config configures a Client. Its zero value works.
type Config struct {
	// Allowed lists URLs. If one has a literal address, that address and port may be private.
	Allowed []string
	// PrivateHosts lists names of hosts whose address may be private.
	PrivateHosts []string
	// Transport wraps the transport, for example to measure. If it is nil, nothing does.
	Transport func(http.RoundTripper) http.RoundTripper
	// Now is the clock of signatures. nil means time.Now.
	Now func() time.Time
}

// A Client posts. It is safe for concurrent use.
type Client struct {
	http http.Client
	now  func() time.Time
}

// New returns a client. The error names the URL of Config.Allowed that is invalid.
func New(c Config) (*Client, error) {
	var private []netip.AddrPort
	for _, text := range c.Allowed {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		if address, ok := literal(u); ok {
			private = append(private, address)
		}
		if !secure(u) {
			return nil, fmt.Errorf("%q: write https://host or https://host/path", text)
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	var transport http.RoundTripper = &http.Transport{DialContext: dial(private, c.PrivateHosts), DisableKeepAlives: true}
	if c.Transport != nil {
		transport = c.Transport(transport)
	}
	return &Client{now: c.Now, http: http.Client{
		Timeout:       timeout,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// CheckURL refuses a URL that is not https, or http to this host. The error does not have the URL.
func CheckURL(text string) error {
	if u, err := url.Parse(text); err != nil || !secure(u) {
		return errors.New("is not a URL of the form https://host/path")
	}
	return nil
}

// secure reports whether a URL is https, or http to this host.
func secure(u *url.URL) bool {
	return u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && jwks.IsThisHost(u.Hostname()))
}

// dial returns a dialer for public addresses, private ones, and any address of hosts.
func dial(private []netip.AddrPort, hosts []string) func(ctx context.Context, network, address string) (net.Conn, error) {
	public := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return checkAddress(address, private) }}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err == nil && slices.ContainsFunc(hosts, func(name string) bool { return strings.EqualFold(name, host) }) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		return public.DialContext(ctx, network, address)
	}
}

// literal returns the address and port of a URL with a literal address.
func literal(u *url.URL) (netip.AddrPort, bool) {
	ip, err := netip.ParseAddr(u.Hostname())
	port, errPort := strconv.ParseUint(cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme]), 10, 16)
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)), err == nil && errPort == nil
}

// checkAddress refuses an address that is not public, unless address and port are allowed.
func checkAddress(address string, allowed []netip.AddrPort) error {
	found, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	ip := found.Addr().Unmap()
	if !isPublic(ip) && !slices.Contains(allowed, netip.AddrPortFrom(ip, found.Port())) {
		return fmt.Errorf("%w: %s", ErrPrivate, ip)
	}
	return nil
}

// special lists special-purpose addresses that netip does not classify (RFC 6890): shared,
// protocol, benchmarking, reserved and site-local addresses, and IPv6 addresses that embed an IPv4
// address.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("::/96"),
}

func isPublic(ip netip.Addr) bool {
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.Zone() != "" {
		return false
	}
	for _, p := range special {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}

// Post posts a body. It returns an error unless the status is 2xx.
func (c *Client) Post(ctx context.Context, endpoint string, header http.Header, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL is invalid")
	}
	request.Header = header
	response, err := c.http.Do(request)
	if failed := new(url.Error); errors.As(err, &failed) {
		err = failed.Err
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the server answered %s", response.Status)
	}
	return nil
}

// PostSigned posts a JSON body with a signature.
func (c *Client) PostSigned(ctx context.Context, endpoint string, secret, body []byte) error {
	timestamp := strconv.FormatInt(c.now().Unix(), 10)
	return c.Post(ctx, endpoint, http.Header{
		"Content-Type":  {"application/json"},
		HeaderTimestamp: {timestamp},
		HeaderSignature: {sign(secret, timestamp, body)},
	}, body)
}

func sign(secret []byte, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s", timestamp, body)
	return fmt.Sprintf("sha256=%x", mac.Sum(nil))
}
