package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/audit"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// rules are the settings that a running gateway replaces. They apply to calls that
// begin afterwards.
type rules struct {
	cfg       *Config
	mapper    *mapper
	requests  map[string]*requestPolicy // by server
	arguments map[string]argumentPolicy // by server
	tells     map[string]bool           // by server, or path of an endpoint
	observes  map[string]bool           // by server
	access    map[string]bool           // by server, or path of an endpoint: it offers the gateway's tools
	ignores   map[string]bool           // by server: what tools declare of their authorization
	handsOn   map[string]bool           // by server: it gets the capability and the proof of a call
	limits    *callLimits
}

func newRules(ctx context.Context, cfg *Config, trail *audit.Trail, log *slog.Logger) (r *rules, err error) {
	r = &rules{cfg: cfg, requests: make(map[string]*requestPolicy), arguments: cfg.argumentPolicies(), tells: make(map[string]bool), observes: cfg.observes(), access: make(map[string]bool), ignores: make(map[string]bool), handsOn: make(map[string]bool)}
	for i, s := range cfg.Servers {
		r.requests[s.Name] = &cfg.Servers[i].RequestPolicy
		r.access[s.Name], r.handsOn[s.Name] = s.AccessTools, s.Proof
		r.ignores[s.Name] = cmp.Or(s.Arguments.Authorization, cfg.ToolAuthorization) == authorizationIgnore
	}
	for server, policy := range r.arguments {
		r.tells[server] = policy.Mode != argumentsEnforce
	}
	for _, e := range cfg.Endpoints {
		r.tells[e.Path] = cfg.Catalog.Arguments != argumentsEnforce
		r.access[e.Path] = e.AccessTools
	}
	if r.mapper, err = newMapper(cfg, log); err != nil {
		return nil, err
	}
	r.limits, err = newCallLimits(ctx, cfg.Limits, trail)
	return r, err
}

// requestPolicy returns that of a server. A server that the configuration has no more
// requests nothing of clients: calls may still be under way there.
func (r *rules) requestPolicy(server string) *requestPolicy {
	if policy := r.requests[server]; policy != nil {
		return policy
	}
	return &requestPolicy{Requests: []string{}}
}

// currentRules are the rules that apply now.
type currentRules struct{ atomic.Pointer[rules] }

// Question implements [enforce.Config.Map].
func (c *currentRules) Question(call *enforce.Call) (*enforce.Question, error) {
	return c.Load().mapper.question(call)
}

// Request implements [enforce.Config.MapRequest].
func (c *currentRules) Request(call *enforce.Call) (*enforce.Question, error) {
	return c.Load().mapper.request(call)
}

// Fulfil implements [enforce.Config.MapFulfil].
func (c *currentRules) Fulfil(call *enforce.Call, r *enforce.Request) (*authzen.EvaluationRequest, error) {
	return c.Load().mapper.fulfil(call, r)
}

// Level implements [enforce.Config.MapLevel].
func (c *currentRules) Level(call *enforce.Call, server, tool string) (calls, requests *authzen.EvaluationRequest, err error) {
	return c.Load().mapper.level(call, server, tool)
}

// ServerRequest implements [enforce.Config.MapServerRequest].
func (c *currentRules) ServerRequest(of *enforce.Call, request *wire.Message) (*enforce.Question, error) {
	return c.Load().mapper.serverRequest(of, request)
}

// Take implements [enforce.Limits].
func (c *currentRules) Take(call *enforce.Call) (release func(), err error) {
	return c.Load().limits.Take(call)
}

func (c *currentRules) tells(server string) bool    { return c.Load().tells[server] }
func (c *currentRules) observes(server string) bool { return c.Load().observes[server] }
func (c *currentRules) handsOn(server string) bool  { return c.Load().handsOn[server] }

func (c *currentRules) serverNames() []string           { return c.Load().cfg.ServerNames() }
func (c *currentRules) offersAccess(server string) bool { return c.Load().access[server] }

func (c *currentRules) sentArguments(server string) enforce.Arguments {
	return c.Load().arguments[server].sent()
}

func (c *currentRules) ignoresAuthorization(server string) bool { return c.Load().ignores[server] }

// A Reload says how a running gateway reads its configuration again.
type Reload struct {
	Requested <-chan os.Signal
	Read      func() (*Config, error)
}

// followConfig reads the configuration again on request, until ctx ends. A
// configuration that is not valid, or that needs a restart, changes nothing.
func (g *gateway) followConfig(ctx context.Context, group *errgroup.Group) {
	for {
		select {
		case <-g.cfg.Reload.Requested:
		case <-ctx.Done():
			return
		}
		err := g.reload(ctx, group)
		g.reloaded.Store(&configRead{time.Now(), err})
		if err != nil {
			g.log.Error("the configuration is not read again: the settings stay as they were", "error", err)
		}
	}
}

// A configRead is the latest reading of the configuration.
type configRead struct {
	at  time.Time
	err error // why the settings stayed as they were, or nil
}

// reload reads the configuration again. All of it comes into force, or nothing.
func (g *gateway) reload(ctx context.Context, group *errgroup.Group) error {
	cfg, err := g.cfg.Reload.Read()
	if err != nil {
		return err
	}
	if keys := g.cfg.needRestart(cfg); len(keys) > 0 {
		return fmt.Errorf("a restart is needed for %s", strings.Join(keys, ", "))
	}
	if len(cfg.Servers) > cap(g.tools.announced) {
		return fmt.Errorf("a restart is needed for more than %d servers", cap(g.tools.announced))
	}
	next, err := newRules(ctx, cfg, g.trail, g.log)
	if err != nil {
		return err
	}
	before := g.routing.Load()
	routing, err := g.newRouting(cfg, before.address, before)
	if err != nil {
		return err
	}
	if g.observed.Load() == nil {
		if err := g.openSummary(cfg); err != nil {
			return err
		}
		g.summarize(ctx, group)
	}
	if before := g.rules.Load(); reflect.DeepEqual(before.cfg.Limits, cfg.Limits) {
		next.limits = before.limits // which knows the calls of this moment, too
	}
	g.rules.Store(next)
	g.approvals.Configure(cfg.Approval.settings())
	g.route(routing)
	g.log.Info("configuration read again")
	g.warnObserved(cfg.ServerNames())
	return nil
}

// needRestart returns the keys that differ and that a running gateway does not
// follow, sorted.
func (c *Config) needRestart(other *Config) (keys []string) {
	before, after := reflect.ValueOf(c.fixed()), reflect.ValueOf(other.fixed())
	for i := range before.NumField() {
		key := before.Type().Field(i).Tag.Get("yaml")
		if key != "-" && !reflect.DeepEqual(before.Field(i).Interface(), after.Field(i).Interface()) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// fixed returns the configuration without the settings that a running gateway
// follows.
func (c *Config) fixed() Config {
	fixed := *c
	fixed.Mode, fixed.ToolAuthorization, fixed.Limits = "", "", nil
	fixed.Catalog.Refresh, fixed.Catalog.TTL, fixed.Catalog.Arguments = 0, 0, ""
	fixed.Endpoints, fixed.Identity = nil, identityConfig{}
	fixed.Approval = approvalConfig{Tasks: c.Approval.Tasks, PassingMeta: c.Approval.PassingMeta}
	if fixed.Servers = c.grantedServers(); len(fixed.Servers) > 0 { // grants are of these servers and callers
		fixed.Identity, fixed.Approval.Hold = c.Identity, c.Approval.Hold
	}
	return fixed
}
