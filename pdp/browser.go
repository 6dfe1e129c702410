package pdp

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/pdp/jwks"
)

var (
	// errHost is a request to the admin listener under a name that is not the
	// listener's: a page whose name leads here after its first answer (DNS
	// rebinding) sends that.
	errHost = errors.New("the Host is not one of this listener's: list it in admin_hosts")
	// errCrossSite is a request that another site's page has a browser send.
	errCrossSite = errors.New("a page of another site may not do this")
)

// hostNames are names of hosts, in lower case. One that begins with "*." is
// every name below.
type hostNames []string

// hostName is a DNS name or an IP address, perhaps with a wildcard, and no port.
var hostName = regexp.MustCompile(`^(\*\.)?[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$`)

// newHostNames reads the setting admin_hosts.
func newHostNames(names []string) (hostNames, error) {
	all := make(hostNames, len(names))
	for i, name := range names {
		all[i] = plainHost(name)
		if _, err := netip.ParseAddr(all[i]); err != nil && !hostName.MatchString(all[i]) {
			return nil, fmt.Errorf("admin_hosts: %q is not the name or address of a host: write it without scheme and port, or *.NAME for all names below", name)
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
// came to, by a name or an address of this host, or by one of the names.
func (n hostNames) serves(r *http.Request) bool {
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

// refuseBrowsers refuses what a browser sends for a page of another site, and
// what comes under a name that is not this listener's. Both are refused before
// anybody is asked who they are, for a browser has credentials of its own.
func refuseBrowsers(hosts hostNames) echo.MiddlewareFunc {
	protection := http.NewCrossOriginProtection()
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			if !hosts.serves(r) {
				return errHost
			}
			read := r.WithContext(r.Context())
			read.Method = http.MethodPost // what is read here is no more for another site than what changes
			if protection.Check(read) != nil {
				return errCrossSite
			}
			return next(c)
		}
	}
}
