package pdp

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

var (
	// errHost rejects a request whose Host is not a name of the listener. A page sends such a
	// request after DNS rebinding: its name resolves to this host after the first answer.
	errHost = errors.New("the Host is not one of this listener's")
	// errCrossSite rejects a request that a browser sends for a page of another site.
	errCrossSite = errors.New("a page of another site must not send this request")
)

// hostNames are host names in lower case. A name that begins with "*." matches every name below it.
type hostNames []string

// hostName matches a DNS name or an IP address without a port. The name may begin with a wildcard.
var hostName = regexp.MustCompile(`^(\*\.)?[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$`)

// newHostNames parses a setting with host names.
func newHostNames(setting string, names []string) (hostNames, error) {
	all := make(hostNames, len(names))
	for i, name := range names {
		all[i] = plainHost(name)
		if _, err := netip.ParseAddr(all[i]); err != nil && !hostName.MatchString(all[i]) {
			return nil, &yamldoc.SettingError{
				Path:   []string{setting, strconv.Itoa(i)},
				Reason: fmt.Sprintf("%q is not the name or address of a host: write it without scheme and port, or *.NAME for all names below", name),
			}
		}
	}
	return all, nil
}

// plainHost returns a host in lower case, without brackets and without a trailing dot.
func plainHost(host string) string {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// has reports whether a host matches one of the names.
func (n hostNames) has(host string) bool {
	for _, name := range n {
		if below, ok := strings.CutPrefix(name, "*"); host == name || ok && strings.HasSuffix(host, below) {
			return true
		}
	}
	return false
}

// serves reports whether the Host of a request names this listener: its address, a name or an
// address of this host, or one of the names. An HTTP/1.0 request without Host is allowed: probes
// send them and browsers do not.
func (n hostNames) serves(r *http.Request) bool {
	if r.Host == "" && !r.ProtoAtLeast(1, 1) {
		return true
	}
	host := plainHost(r.Host)
	if name, _, err := net.SplitHostPort(r.Host); err == nil {
		host = plainHost(name)
	}
	if jwks.IsThisHost(host) || n.has(host) {
		return true
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	named, err := netip.ParseAddr(host)
	own, ownErr := netip.ParseAddrPort(local.String())
	return err == nil && ownErr == nil && named.Unmap() == own.Addr().Unmap().WithZone("")
}

// refuseNames rejects requests whose Host is not a name of this listener. The error names the
// setting that allows further names.
func refuseNames(setting string, hosts hostNames) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !hosts.serves(c.Request()) {
				return fmt.Errorf("%w: list it in %s", errHost, setting)
			}
			return next(c)
		}
	}
}

// refuseBrowsers rejects requests that a browser sends for a page of another site. It runs before
// authentication, because a browser adds credentials of its own.
func refuseBrowsers() echo.MiddlewareFunc {
	protection := http.NewCrossOriginProtection()
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			if r.Method != http.MethodPost { // a GET from another site is rejected as well
				r = r.WithContext(r.Context())
				r.Method = http.MethodPost
			}
			if protection.Check(r) != nil {
				return errCrossSite
			}
			return next(c)
		}
	}
}

// browserRules returns the rules of the main listener for unauthenticated callers. Without them a
// page could send requests in the name of anyone. On a loopback listener a page needs DNS
// rebinding, so the Host is checked. Other listeners have names that this program does not know.
func browserRules(c Config, l *listeners, metadata authzen.Metadata) ([]echo.MiddlewareFunc, error) {
	names, err := newHostNames("hosts", c.Hosts)
	if err != nil || c.Auth.Known() {
		return nil, err
	}
	refuse := []echo.MiddlewareFunc{refuseBrowsers()}
	if isLoopback(l.main.Addr()) {
		public, err := url.Parse(metadata.PolicyDecisionPoint)
		if err != nil {
			return nil, fmt.Errorf("public URL: %w", err)
		}
		refuse = append(refuse, refuseNames("hosts", append(names, plainHost(public.Hostname()))))
	}
	return refuse, nil
}
