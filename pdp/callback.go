package pdp

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
	"syscall"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/pdp/jwks"
)

// Headers of a callback. The signature is "sha256=" and, in hex, the HMAC-SHA-256 of the timestamp,
// a dot and the body.
const (
	headerCallbackTimestamp = "Callback-Timestamp"
	headerCallbackSignature = "Callback-Signature"
)

// callbackTime is the timeout of a callback.
const callbackTime = 10 * time.Second

// errPrivate means that a name resolves to an address that is not public.
var errPrivate = errors.New("the address is not public")

// A notifier sends callbacks to PEPs. It checks the address when it connects: a name may resolve to
// another address the next time.
type notifier struct {
	client http.Client
	secret []byte
	now    func() time.Time
}

// newNotifier returns a notifier for URLs below the allowed ones. It calls an address that is not
// public only if an allowed URL contains that address literally.
func newNotifier(allowed []string, secret []byte, metrics *telemetry) (*notifier, error) {
	if len(allowed) > 0 && len(secret) == 0 {
		return nil, errors.New("callbacks need a secret to be signed with: name its file with --callback-secret")
	}
	var private []netip.AddrPort
	for _, text := range allowed {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("callback URL: %w", err)
		}
		if address, ok := literal(u); ok {
			private = append(private, address)
		}
		if u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !jwks.IsThisHost(u.Hostname())) {
			return nil, fmt.Errorf("callback URL %q: write https://host or https://host/path", text)
		}
	}
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return checkAddress(address, private) }}
	return &notifier{secret: secret, now: time.Now, client: http.Client{
		Timeout:       callbackTime,
		Transport:     metrics.outgoing("call back", &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
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
		return fmt.Errorf("%w: %s", errPrivate, ip)
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

// call posts a signed body to a PEP. It returns an error unless the status is 2xx.
func (c *notifier) call(ctx context.Context, endpoint string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("call back: %w", err)
	}
	timestamp := fmt.Sprint(c.now().Unix())
	request.Header.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	request.Header.Set(headerCallbackTimestamp, timestamp)
	request.Header.Set(headerCallbackSignature, c.sign(timestamp, body))
	response, err := c.client.Do(request)
	if err != nil {
		return fmt.Errorf("call back: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("call back: the PEP answered %s", response.Status)
	}
	return nil
}

func (c *notifier) sign(timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, c.secret)
	fmt.Fprintf(mac, "%s.%s", timestamp, body)
	return fmt.Sprintf("sha256=%x", mac.Sum(nil))
}
