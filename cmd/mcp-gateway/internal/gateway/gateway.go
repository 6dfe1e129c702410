package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/access"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/approval"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/audit"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/observation"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/process"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/tasks"
	"github.com/policy-service/policy-service/pdp/client"
)

// catalogFile is the catalog in the state directory.
const catalogFile = "catalog.db"

// trailDir is the audit trail in the state directory.
const trailDir = "trail"

// OpenCatalog opens the catalog of pinned tools in the state directory, also
// while gateways use it.
func (c *Config) OpenCatalog() (*catalog.Catalog, error) {
	if err := os.MkdirAll(c.State, 0o700); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return catalog.Open(catalog.Config{Path: filepath.Join(c.State, catalogFile)})
}

// A gateway is what serve and stdio have in common. Its parts are joined here
// and nowhere else.
type gateway struct {
	cfg       *Config
	own       *ownState
	log       *slog.Logger
	seal      *seal.Key
	rules     currentRules
	reloaded  atomic.Pointer[configRead]
	callers   *callers
	proofs    *identity.Proofs
	tools     *tools
	trail     *audit.Trail
	telemetry *telemetry
	approvals *approval.Service
	owners    *tasks.Owners
	gate      *enforce.Gate
	access    *access.Service
	pdp       *enforce.PDP
	health    *health
	observed  atomic.Pointer[observation.Summary] // nil before the first server in observe mode
	routing   atomic.Pointer[routing]
	pools     map[*process.Pool]bool // of the servers that serve runs, also of former ones
	people    *people                // who let the gateway act for them; nil without a server for that
}

// join opens what is kept in the state directory. Own selects the files of this
// process, see [ownState]. The caller closes the gateway.
func join(cfg *Config, own *ownState) (g *gateway, err error) {
	log := cfg.Log
	g = &gateway{cfg: cfg, log: log, own: own, health: newHealth(), pools: make(map[*process.Pool]bool), proofs: identity.NewProofs()}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	pdpKey, err := bearerOf("pdp.key_file", cfg.PDP.KeyFile, log)
	if err != nil {
		return g, err
	}
	serviceKey, err := bearerOf("pdp.service_key_file", cfg.PDP.ServiceKeyFile, log)
	if err != nil {
		return g, err
	}
	if g.callers, err = newCallers(&cfg.Identity, g.proofs); err != nil {
		return g, err
	}
	if err := os.MkdirAll(cfg.State, 0o700); err != nil {
		return g, fmt.Errorf("state: %w", err)
	}
	if g.seal, err = openKey(filepath.Join(cfg.State, "seal.key")); err != nil {
		return g, fmt.Errorf("state: %w", err)
	}
	if g.trail, err = own.open(); err != nil {
		return g, err
	}
	g.warnUnknown(g.trail)
	initial, err := newRules(context.Background(), cfg, g.trail, log)
	if err != nil {
		return g, err
	}
	g.rules.Store(initial)
	g.reloaded.Store(&configRead{at: time.Now()})
	if g.telemetry, err = newTelemetry(cfg.Version); err != nil {
		return g, fmt.Errorf("telemetry: %w", err)
	}
	decides := enforce.NewPDP(enforce.PDPConfig{
		URL: cfg.PDP.URL, Client: client.Config{Timeout: time.Duration(cfg.PDP.Timeout), Header: pdpKey, ServiceHeader: serviceKey},
		Failures: cfg.PDP.Failures, Capabilities: cfg.PDP.capabilities(), Pause: time.Duration(cfg.PDP.Pause),
		OnBreak: func(tenant, state, most string) {
			log.Warn("circuit breaker of the PDP", "state", state, "tenant", tenant)
			g.telemetry.breakerChanged(most)
		},
		Asked: g.telemetry.pdpAnswered,
	})
	g.pdp = decides
	return g, g.decide(decides)
}

// bearerOf returns what adds the key in a file to requests. The key follows its file.
// Without a file there is none.
func bearerOf(name, file string, log *slog.Logger) (func(context.Context, http.Header) error, error) {
	if file == "" {
		return nil, nil
	}
	key, err := openSecret(name, file, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return func(_ context.Context, header http.Header) error {
		header.Set("Authorization", "Bearer "+key.Get())
		return nil
	}, nil
}

// checkPDPKey logs an error if the PDP refuses the gateway's key, because every
// call would then fail without an obvious reason. If the PDP does not answer in
// time, the first call finds out.
func (g *gateway) checkPDPKey(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, min(g.cfg.PDP.Timeout, 2*time.Second))
	defer cancel()
	err := g.pdp.Refusal(ctx)
	if err == nil {
		return
	}
	hint := "make a key with policy-service keys new, list it in auth.api_keys of the PDP, and name its file in pdp.key_file"
	switch {
	case enforce.RefusesLabels(err):
		hint = "the credential of the gateway in auth of the PDP needs the scopes evaluate, request and label"
	case g.cfg.PDP.KeyFile != "":
		hint = "pdp.key_file has to hold a key of auth.api_keys of the PDP with the scope evaluate"
	}
	g.log.Error("the PDP refuses the key of the gateway: it decides on no call", "pdp", g.cfg.PDP.URL, "error", err, "hint", hint)
}

// decide joins what asks the PDP.
func (g *gateway) decide(pdp *enforce.PDP) (err error) {
	cfg, own := g.cfg, g.own
	pins, err := catalog.Open(catalog.Config{
		Path: filepath.Join(cfg.State, catalogFile), Accepted: cfg.Catalog.Accepted, Operator: cfg.Catalog.File,
		Superseded: func(c catalog.Change) {
			if c.Was == "" {
				g.log.Warn("a definition is not used until it is accepted", "server", c.Server, "tool", c.Tool, "is", c.Is)
				return
			}
			g.log.Warn("a definition has changed: it is not used until it is accepted", "server", c.Server, "tool", c.Tool, "was", c.Was, "is", c.Is)
		},
	})
	if err != nil {
		return err
	}
	if g.owners, err = tasks.Open(tasks.Config{File: filepath.Join(own.dir(), "tasks.db")}); err != nil {
		return err
	}
	g.tools = newTools(pins, &g.rules, cfg, g.health, g.log)
	if err := g.openSummary(cfg); err != nil {
		return err
	}
	kept := &counted{&trail{g.trail, g.log, &g.rules, &g.observed}, g.telemetry, g.health}
	labels, err := newCallerLabels(cfg)
	if err != nil {
		return err
	}
	handlers := cfg.Obligations.handlers()
	denial := enforce.Denial{Codes: cfg.Denial.Codes, Code: cfg.Denial.Code, OlderCode: cfg.Denial.OlderCode, Status: cfg.Denial.HTTPStatus, Conceal: cfg.Denial.Conceal, TellReason: cfg.Denial.TellReason, CapabilityCode: cfg.Denial.CapabilityCode}
	g.approvals, err = approval.Open(approval.Config{
		File: filepath.Join(cfg.State, "approvals.db"), Holder: own.name, PDP: pdp, Seal: g.seal, Checker: enforce.NewChecker(handlers, denial), Trail: resumed{kept, &g.rules}, Log: g.log,
		Definition: g.tools.digest, Mask: g.trail.Mask, Edited: g.edited,
		Results:  lateResults{g},
		Settings: cfg.Approval.settings(), PassingMeta: cfg.Approval.PassingMeta, Tasks: cfg.Approval.Tasks,
	})
	if err != nil {
		return err
	}
	known := g.tools.known
	if cfg.Denial.Conceal { // that a tool does not exist is told to nobody
		known = nil
	}
	g.access = access.New(access.Config{
		Tools: known,
		PDP:   pdp, Holder: g.rules.holder, Servers: g.rules.serverNames, OffersTools: g.rules.offersAccess, HasTool: g.tools.has, Log: g.log,
		Requests: g.approvals, PerMinute: cfg.Access.PerMinute,
		MayFulfil: func(ctx context.Context, c *enforce.Call, all []*enforce.Request) ([]bool, error) {
			return g.gate.MayFulfil(ctx, c, all)
		},
		Welcome: cfg.Access.Welcome,
		Level: func(ctx context.Context, c *enforce.Call, server string) (enforce.Level, error) {
			names := g.tools.names(server)
			return g.gate.Level(ctx, c, server, names[:min(len(names), maxLevelTools)])
		},
	})
	g.tools.access = g.access
	g.gate = enforce.New(enforce.Config{
		Requests: g.approvals, MapRequest: g.rules.Request, MapFulfil: g.rules.Fulfil, MapLevel: g.rules.Level,
		Access: g.access, Arguments: g.rules.sentArguments, HandsOn: g.rules.handsOn,
		PDP: pdp, Map: g.rules.Question, MapServerRequest: g.rules.ServerRequest, Tools: g.tools, Tasks: &taskGuard{g.approvals, g.owners, g}, Trail: kept, Log: g.log,
		Obligations: handlers, Limits: &g.rules, Labels: labels,
		Approvals:   &countedApprovals{g.approvals, g.telemetry},
		PassingMeta: cfg.Approval.PassingMeta,
		Denial:      denial, Tells: g.rules.tells, Observes: g.rules.observes, Tracer: g.telemetry.tracer,
	})
	g.warnTaken()
	return g.telemetry.observe(g)
}

// maxLevelTools is the number of tools in which the level of a caller shows.
const maxLevelTools = 20

// edited makes a call one with arguments that its approver has changed.
func (g *gateway) edited(ctx context.Context, c *enforce.Call, arguments jsontext.Value) (*enforce.Question, string, error) {
	return g.gate.Edited(ctx, c, arguments)
}

// close closes what join has opened.
func (g *gateway) close() error {
	var errs []error
	if g.owners != nil {
		errs = append(errs, g.owners.Close())
	}
	if g.trail != nil {
		errs = append(errs, g.trail.Close())
	}
	if g.telemetry != nil {
		g.telemetry.close(g.log)
	}
	return errors.Join(errs...)
}

// openKey reads the key that seals what clients are given, and makes it at the
// first start. Of several processes that make it, all get the same key.
func openKey(file string) (*seal.Key, error) {
	secret, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(file); err != nil {
			return nil, err
		}
		secret, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	return seal.New(secret)
}

// makeKey makes the key, unless another process does.
func makeKey(file string) error {
	secret := make([]byte, seal.KeySize)
	_, _ = rand.Read(secret) // it does not fail
	whole := file + "." + rand.Text()
	if err := os.WriteFile(whole, secret, 0o600); err != nil {
		return err
	}
	err := os.Link(whole, file)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(whole))
}
