package gateway

import (
	"slices"
	"strconv"
	"strings"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/union"
)

// An endpointConfig is an endpoint over several servers.
type endpointConfig struct {
	Path      string   `yaml:"path"`
	Servers   []string `yaml:"servers" list:"some"` // by name
	PublicURL string   `yaml:"public_url"`          // "" is below the gateway's
	Wait      duration `yaml:"wait"`                // of lists for a server; 0 is union's
	// AccessTools is that of [serverConfig].
	AccessTools bool `yaml:"access_tools"`
}

// checkEndpoints reports what is wrong with the endpoints over several servers.
// Paths are those of the servers, with what has them.
func (c *Config) checkEndpoints(f *faults, paths map[string]string) {
	for i := range c.Endpoints {
		e, at := &c.Endpoints[i], "endpoints."+strconv.Itoa(i)
		f.must(isPath(e.Path), at+".path", e.Path, "a path, such as /mcp")
		if first, taken := paths[e.Path]; taken {
			f.fault(at+".path", "must be another: %s has %s, too", first, e.Path)
		}
		paths[e.Path] = at
		if e.Servers == nil {
			f.fault(at+".servers", "is required: a list of names of servers")
		}
		for n, name := range e.Servers {
			c.checkMember(f, e, at+".servers."+strconv.Itoa(n), n, name)
		}
	}
}

// checkMember reports what keeps a server from being one of an endpoint.
func (c *Config) checkMember(f *faults, e *endpointConfig, at string, n int, name string) {
	i := slices.IndexFunc(c.Servers, func(s serverConfig) bool { return s.Name == name })
	switch fault := union.CheckName(name); {
	case i < 0:
		f.fault(at, "must be the name of one of the servers, not %q", name)
	case slices.Index(e.Servers, name) < n:
		f.fault(at, "must be another: %q is in the list before", name)
	case !c.Servers[i].isServed():
		f.fault(at, "must be a server with a url or a command, which %q does not have", name)
	case fault != "":
		f.fault(at, "%s", fault)
	}
}

func isPath(text string) bool {
	return strings.HasPrefix(text, "/") && !strings.ContainsAny(text, "{} ")
}

// newUnion returns an endpoint over several servers.
func (g *gateway) newUnion(e *endpointConfig, members []*proxy.Handler, callers endpoint.Callers, address string) *union.Handler {
	of, path := make([]union.Server, len(e.Servers)), e.Path
	for n, name := range e.Servers {
		of[n] = union.Server{Name: name, Endpoint: members[n]}
	}
	return union.New(union.Config{
		Name: e.Path, Servers: of, Seal: g.seal, Log: g.log, Wait: e.Wait, MaxReply: g.cfg.MaxReply,
		Front: &endpoint.Front{
			Name: e.Path, Callers: callers, Hosts: hosts(g.cfg.Hosts, address), Origins: g.cfg.Origins, MaxBody: g.cfg.MaxBody, Log: g.log,
		},
		Access: g.access, OffersAccess: func() bool { return g.rules.offersAccess(path) },
		Refuse: g.gate.Refuse, Conceal: g.cfg.Denial.Conceal, ToolNames: g.tools.names,
	})
}

// names lists the tools of a server that have a pin.
func (t *tools) names(server string) (names []string) {
	pins, err := t.Pins(server)
	if err != nil {
		t.log.Error("read the pinned tools", "server", server, "error", err)
	}
	for i := range pins {
		names = append(names, pins[i].Tool)
	}
	return names
}
