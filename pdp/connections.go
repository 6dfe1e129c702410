package pdp

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
)

// connections is a listener with a maximum number of connections. At the maximum
// it closes an idle connection to accept another: first one without a good
// credential, then the one idle for longest. If all are busy, the new connection
// waits.
type connections struct {
	net.Listener
	most          int
	perAddress    int  // maximum from one address; 0 for no limit
	local         bool // perAddress also applies to this host
	authenticated bool // callers must authenticate; other connections count as unauthenticated

	closed chan struct{}
	mu     sync.Mutex
	open   map[*connection]struct{}
	from   map[netip.Prefix]int
}

// A connection is a counted connection.
type connection struct {
	net.Conn
	of    *connections
	from  netip.Prefix // network prefix that counts as its address
	came  time.Time
	idle  atomic.Int64 // start of the idle time, in nanoseconds of the clock; 0 while busy
	known atomic.Bool  // a request over it had a good credential
	once  sync.Once
}

const (
	// unauthenticatedTime is how long an unauthenticated connection may be busy when the maximum is reached.
	unauthenticatedTime = 250 * time.Millisecond
	// roomLook is the interval at which a waiting connection checks for a free
	// place.
	roomLook = 20 * time.Millisecond
)

func newConnections(l net.Listener, limits Limits, authenticated bool) *connections {
	c := &connections{
		Listener:      l,
		most:          cmp.Or(limits.Connections, defaultConnections),
		authenticated: authenticated,
		closed:        make(chan struct{}),
		open:          map[*connection]struct{}{},
		from:          map[netip.Prefix]int{},
	}
	c.perAddress, c.local = limits.PerAddress, limits.PerAddress > 0
	if !c.local {
		c.perAddress = max(1, c.most/2)
	}
	return c
}

func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		mine := &connection{Conn: conn, of: c, from: addressOf(conn), came: time.Now()}
		mine.idle.Store(mine.came.UnixNano())
		if c.admit(mine) {
			return mine, nil
		}
		_ = conn.Close() // the listener is closed, or the address has too many connections
	}
}

func (c *connections) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return c.Listener.Close()
}

// admit waits until a connection is allowed, and reports whether it is.
func (c *connections) admit(mine *connection) bool {
	look := time.NewTicker(roomLook)
	defer look.Stop()
	for {
		switch victim, room := c.enter(mine); {
		case room:
			return true
		case victim != nil:
			_ = victim.Close()
			continue
		case c.tooMany(mine.from):
			return false
		}
		select {
		case <-look.C:
		case <-c.closed:
			return false
		}
	}
}

// enter counts a connection if the maximum allows it. Otherwise it returns a
// connection that may be closed.
func (c *connections) enter(mine *connection) (victim *connection, room bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := c.bounded(mine.from) && c.from[mine.from] >= c.perAddress
	if !full && len(c.open) < c.most {
		c.open[mine] = struct{}{}
		c.from[mine.from]++
		return nil, true
	}
	now, evictable := time.Now(), false
	for other := range c.open {
		evictable = evictable || other.unauthenticated()
		if (!full || other.from == mine.from) && other.spare(now) && (victim == nil || other.before(victim)) {
			victim = other
		}
	}
	if victim != nil && !victim.unauthenticated() && evictable && !full {
		return nil, false // an unauthenticated connection may soon be closed
	}
	return victim, false
}

// tooMany reports whether an address has the maximum number of connections.
func (c *connections) tooMany(from netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bounded(from) && c.from[from] >= c.perAddress
}

// bounded reports whether connections from an address are counted. A proxy on
// this host may have all of them.
func (c *connections) bounded(from netip.Prefix) bool { return c.local || !from.Addr().IsLoopback() }

// unauthenticated reports whether a connection lacks a required credential.
func (c *connection) unauthenticated() bool { return c.of.authenticated && !c.known.Load() }

// spare reports whether a connection may be closed to admit another.
func (c *connection) spare(now time.Time) bool {
	return c.idle.Load() != 0 || c.unauthenticated() && now.Sub(c.came) > unauthenticatedTime
}

// before reports whether a connection is closed before another: unauthenticated first,
// then idle connections, then the one idle for longest.
func (c *connection) before(other *connection) bool {
	order := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	mine, its := c.idle.Load(), other.idle.Load()
	return cmp.Or(
		order(!c.known.Load(), !other.known.Load()),
		order(mine != 0, its != 0),
		cmp.Compare(mine, its),
		c.came.Compare(other.came),
	) < 0
}

func (c *connection) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		delete(c.of.open, c)
		if c.of.from[c.from]--; c.of.from[c.from] == 0 {
			delete(c.of.from, c.from)
		}
	})
	return c.Conn.Close()
}

// addressOf returns the prefix that a connection counts for. An IPv6 network of
// 64 bits counts as one host.
func addressOf(conn net.Conn) netip.Prefix {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{}
	}
	address := at.Addr().Unmap().WithZone("")
	if address.Is6() && !address.IsLoopback() {
		network, _ := address.Prefix(64)
		return network
	}
	return netip.PrefixFrom(address, address.BitLen())
}

// follow makes a server report the state of its connections.
func (c *connections) follow(s *http.Server) {
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if mine := connectionOf(conn); mine != nil && state == http.StateIdle {
			mine.idle.Store(time.Now().UnixNano())
		} else if mine != nil && state == http.StateActive {
			mine.idle.Store(0)
		}
	}
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, connectionOf(conn))
	}
}

// connectionOf returns the connection below TLS, or nil.
func connectionOf(conn net.Conn) *connection {
	if secured, is := conn.(interface{ NetConn() net.Conn }); is {
		conn = secured.NetConn()
	}
	mine, _ := conn.(*connection)
	return mine
}

type connectionKey struct{}

// keepConnection records that a request has a valid credential and keeps its connection open. An
// ambiguous request ends its connection in any case.
func keepConnection(c echo.Context) {
	if mine, _ := c.Request().Context().Value(connectionKey{}).(*connection); mine != nil {
		mine.known.Store(true)
	}
	if !isAmbiguous(c.Request()) {
		c.Response().Header().Del(echo.HeaderConnection)
	}
}

// closeUnauthenticated closes connections after the answer, unless a request on them has a valid
// credential.
func closeUnauthenticated(auth authenticator) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if r := c.Request(); auth.known() && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
				c.Response().Header().Set(echo.HeaderConnection, "close")
			}
			return next(c)
		}
	}
}
