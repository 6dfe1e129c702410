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
	// errHost is a request to a listener under a name that is not the listener's: a page whose name leads here after its first answer (DNS
	// rebinding) sends that.
	errHost = errors.New("the Host is not one of this listener's")
	// errCrossSite is a request that another site's page has a browser send.
	errCrossSite = errors.New("a page of another site may not do this")
)

// hostNames are names of hosts, in lower case. One that begins with "*." is
// every name below.
type hostNames []string

// hostName is a DNS name or an IP address, perhaps with a wildcard, and no port.
var hostName = regexp.MustCompile(`^(\*\.)?[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$`)

// newHostNames reads a setting of such names.
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

// plainHost is a host without brackets, the dot of the root, and capitals.
func plainHost(host string) string {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// has reports whether a host is one of the names.
func (n hostNames) has(host string) bool {
	for _, name := range n {
		if below, ok := strings.CutPrefix(name, "*"); host == name || ok && strings.HasSuffix(host, below) {
			return true
		}
	}
	return false
}

// serves reports whether a request names this listener: by the address that it
// came to, by a name or an address of this host, or by one of the names. HTTP/1.0
// knows requests without a Host: probes send them, and no browser does.
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

// refuseNames refuses what comes under a name that is not this listener's; the
// setting has further names.
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

// refuseBrowsers refuses what a browser sends for a page of another site, before
// anybody is asked who they are, for a browser has credentials of its own.
func refuseBrowsers() echo.MiddlewareFunc {
	protection := http.NewCrossOriginProtection()
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			if r.Method != http.MethodPost { // what is read here is no more for another site than what changes
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

// browserRules returns what the main listener refuses where callers are not
// authenticated, so that a page could ask and submit in anybody's name. A page
// reaches a listener of this host alone by a name that was led there; what is
// reached from elsewhere has names that others give it.
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
