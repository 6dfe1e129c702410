package gateway

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/process"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A routing has the endpoints of one configuration. The next one takes over the
// endpoints that stay as they are, with their streams and sessions.
type routing struct {
	address  string // of the listener
	cfg      *Config
	callers  *callers
	mux      *http.ServeMux
	patterns map[string]bool
	servers  map[string]*served // by name
	unions   map[string]*served // by path
	commit   []func()           // changes to endpoints that the previous routing has, too
}

// A served is an endpoint that answers.
type served struct {
	settings any // of which it was made
	handler  http.Handler
	server   *proxy.Handler // handler, for a server
	callers  *currentCallers
	pool     *process.Pool   // of the server that serve runs, or nil
	retired  context.Context // ends once the endpoint is replaced
	retire   context.CancelFunc
}

func newServed(settings any, callers *currentCallers) *served {
	s := &served{settings: settings, callers: callers}
	s.retired, s.retire = context.WithCancel(context.Background())
	return s
}

// drainTimeout is how long requests at an endpoint may take that is replaced.
const drainTimeout = 10 * time.Minute

// ServeHTTP implements [http.Handler]. Once the endpoint is replaced, a stream that
// the client has asked for ends, so that the client asks for another. Calls may end
// by themselves.
func (s *served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.retired, func() {
		if r.Method != http.MethodGet {
			select {
			case <-time.After(drainTimeout):
			case <-ctx.Done():
			}
		}
		cancel()
	})()
	s.handler.ServeHTTP(w, r.WithContext(ctx))
}

// drain ends the endpoint and its processes once nothing uses them.
func (s *served) drain() {
	s.retire()
	if s.pool != nil {
		s.pool.Drain()
	}
}

// currentCallers are the callers of an endpoint, which a running gateway replaces.
type currentCallers struct{ atomic.Pointer[callers] }

// Identify implements [endpoint.Callers].
func (c *currentCallers) Identify(r *http.Request) (*enforce.Caller, error) {
	return c.Load().Identify(r)
}

// Refuse implements [endpoint.Callers].
func (c *currentCallers) Refuse(w http.ResponseWriter, err error) { c.Load().Refuse(w, err) }

// newRouting returns the endpoints of a configuration. Before, nil at the start, is
// the routing whose endpoints it takes over. Nothing changes until [gateway.route].
func (g *gateway) newRouting(cfg *Config, address string, before *routing) (*routing, error) {
	r := &routing{
		address: address, cfg: cfg, mux: http.NewServeMux(), patterns: make(map[string]bool),
		servers: make(map[string]*served), unions: make(map[string]*served),
	}
	if before == nil {
		before, r.callers = &routing{}, g.callers
	} else if r.callers = before.callers; !reflect.DeepEqual(before.cfg.Identity, cfg.Identity) {
		var err error
		if r.callers, err = newCallers(&cfg.Identity, g.proofs); err != nil {
			return nil, fmt.Errorf("identity: %w", err)
		}
	}
	for pattern, handler := range map[string]http.HandlerFunc{"GET /livez": livez, "GET /readyz": g.readyz} {
		if err := r.handle(pattern, handler); err != nil {
			return nil, err
		}
	}
	if err := g.routePeople(r); err != nil {
		return nil, err
	}
	for i := range cfg.Servers {
		if err := g.serveServer(r, &cfg.Servers[i], before); err != nil {
			return nil, fmt.Errorf("servers: %s: %w", cfg.Servers[i].Name, err)
		}
	}
	for i := range cfg.Endpoints {
		if err := g.serveUnion(r, &cfg.Endpoints[i], before); err != nil {
			return nil, fmt.Errorf("endpoints: %s: %w", cfg.Endpoints[i].Path, err)
		}
	}
	return r, nil
}

// handle adds a route. A second one of the same pattern is an error.
func (r *routing) handle(pattern string, h http.Handler) error {
	if r.patterns[pattern] {
		return fmt.Errorf("two endpoints have the path %s", pattern)
	}
	r.patterns[pattern] = true
	r.mux.Handle(pattern, h)
	return nil
}

// place adds the route of an endpoint and of its metadata. Url is that of the endpoint
// for its callers.
func (r *routing) place(s *served, path, url string) error {
	callers, err := r.callers.at(url)
	if err != nil {
		return err
	}
	if s.callers.Load() == nil {
		s.callers.Store(callers)
	}
	r.commit = append(r.commit, func() { s.callers.Store(callers) })
	if callers.Verifier != nil && callers.MetadataPath() != "" {
		if err := r.handle(callers.MetadataPath(), http.HandlerFunc(callers.ServeMetadata)); err != nil {
			return err
		}
	}
	return r.handle(path, s)
}

// ofEndpoint returns the settings by which the endpoint of a server is made. The
// others are read for each call, or are of its route.
func (s *serverConfig) ofEndpoint() serverConfig {
	fixed := *s
	fixed.Mode, fixed.Upstream, fixed.RequestPolicy, fixed.Arguments = "", coaz.Upstream{}, requestPolicy{}, argumentPolicy{}
	fixed.Path, fixed.PublicURL, fixed.AccessTools, fixed.Proof = "", "", false, false
	return fixed
}

// serveServer adds the endpoint of a server.
func (g *gateway) serveServer(r *routing, s *serverConfig, before *routing) error {
	if !s.isServed() {
		return nil
	}
	settings := s.ofEndpoint()
	at := before.servers[s.Name]
	if at == nil || !reflect.DeepEqual(at.settings, settings) {
		at = newServed(settings, new(currentCallers))
		if err := g.connect(at, s, r); err != nil {
			return err
		}
	}
	r.servers[s.Name] = at
	return r.place(at, s.Endpoint(), s.resource(r.cfg.Identity.Resource))
}

// unionSettings are those of which an endpoint over several servers is made.
type unionSettings struct {
	endpointConfig
	members []*proxy.Handler
}

// serveUnion adds an endpoint over several servers.
func (g *gateway) serveUnion(r *routing, e *endpointConfig, before *routing) error {
	settings := unionSettings{endpointConfig: *e}
	settings.PublicURL, settings.AccessTools = "", false
	for _, name := range e.Servers {
		settings.members = append(settings.members, r.servers[name].server)
	}
	at := before.unions[e.Path]
	if at == nil || !at.unites(settings) {
		at = newServed(settings, new(currentCallers))
		at.handler = g.newUnion(e, settings.members, at.callers, r.address)
	}
	r.unions[e.Path] = at
	return r.place(at, e.Path, resourceAt(e.PublicURL, r.cfg.Identity.Resource, e.Path))
}

// unites reports whether the endpoint is made of these settings, and over the same
// endpoints of servers.
func (s *served) unites(settings unionSettings) bool {
	own, is := s.settings.(unionSettings)
	return is && reflect.DeepEqual(own.endpointConfig, settings.endpointConfig) && sameHandlers(own.members, settings.members)
}

func sameHandlers(a, b []*proxy.Handler) bool {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// route has clients use a routing, and drains the endpoints that it does not have.
func (g *gateway) route(next *routing) {
	for _, change := range next.commit {
		change()
	}
	next.commit = nil
	before := g.routing.Swap(next)
	if before == nil {
		return
	}
	for name, s := range before.servers {
		if next.servers[name] != s {
			s.drain()
		}
	}
	for path, s := range before.unions {
		if next.unions[path] != s {
			s.drain()
		}
	}
}

// ServeHTTP implements [http.Handler] by the current routing.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.routing.Load().mux.ServeHTTP(w, r)
}

// execute sends a call to its server. It is an [approval.Execute].
func (g *gateway) execute(ctx context.Context, c *enforce.Call, m *wire.Message) (*wire.Message, error) {
	at := g.routing.Load().servers[c.Server]
	if at == nil {
		return nil, fmt.Errorf("the server %q has neither url nor command", c.Server)
	}
	return at.server.Execute(ctx, m, c.Caller, g.tools.called(c.Server, m))
}

var _ endpoint.Callers = (*currentCallers)(nil)
