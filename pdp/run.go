package pdp

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/labstack/echo/v4"
	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/lint"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/pdp/notify"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// Config configures the service. PolicyDir or Policies, State, Listen, AdminListen and Log are
// required.
type Config struct {
	PolicyDir       string            // directory of the policy store, watched for changes
	RequireManifest bool              // the store must have a manifest
	ManifestKey     ed25519.PublicKey // key that verifies the manifest's signature; nil for none
	GuardShrink     bool              // refuse a reload that loses all forbids or half the policies
	Policies        fs.FS             // policy store that does not change, instead of PolicyDir
	ShadowDir       string            // directory of the shadow policies, whose decisions are only logged; "" for none

	Reload   <-chan os.Signal          // each signal reloads policies and settings
	Settings func() (*Settings, error) // returns the current settings; nil if they cannot change

	State          string // directory of the decision log
	Listen         string // address of the main listener, host:port
	AdminListen    string // address of the admin listener, host:port
	PublicURL      string // base URL for PEPs; "" means the address of the main listener
	TLSCert        string // PEM files of the main listener; both or neither
	TLSKey         string
	Auth           Auth
	Insecure       bool     // allow other hosts on the main listener without authentication
	AdminInsecure  bool     // allow other hosts on the admin listener without TLS; requires Auth
	AdminHosts     []string // further names of the admin listener; its address and this host's names are included; "*.NAME" matches all names below
	Hosts          []string // further names of the main listener, if it is on loopback without authentication; the host of PublicURL is included
	MaxBody        int64    // maximum size of a request body in bytes; 0 means 1 MiB
	MaxEvaluations int      // maximum items of a batch; 0 means 1,000
	MaxResults     int      // maximum results of a search in one answer; 0 means 10,000
	PageKey        string   // key that signs page tokens; "" means a random one
	Durability     decisionlog.Durability
	DecisionLog    LogConfig
	Console        console.Settings // listener of the pages for people; the zero value is no console
	Notify         notify.Settings  // notifications of those who may decide; the zero value is none
	Callbacks      []string         // prefixes of URLs for callbacks to PEPs; none disables callbacks
	CallbackSecret []byte           // key that signs callbacks
	ApproverType   string           // entity type of authenticated approvers; "" means user
	Limits         Limits
	Telemetry      Telemetry
	Log            *slog.Logger
	Ready          func(Addresses) // called when the listeners accept requests
}

// Addresses are the URLs of the listeners.
type Addresses struct {
	Main, Admin  string
	Console      string // "" without a console
	ConsoleLinks bool   // people sign in to the console by a link from the command line
}

const (
	defaultMaxBody      = 1 << 20
	defaultApproverType = "user"
	drainTime           = 20 * time.Second
)

// noDeadline removes a deadline.
var noDeadline time.Time

// ErrInsecure means that the configuration would expose decisions to the network without
// authentication.
var ErrInsecure = errors.New("refusing to listen beyond this host without caller authentication and TLS")

// Run serves until ctx ends, then finishes running requests and returns nil. It returns an
// [evaluation.Faults] for Policies that do not compile, a [yamldoc.SettingError] for each invalid
// setting, and decisionlog.ErrFailed after the log has failed. If the policies of PolicyDir do not
// compile, the service runs but is not ready until they do.
func Run(ctx context.Context, c Config) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	metrics, err := newTelemetry(c.Telemetry)
	if err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	verifier, err := callers.New(c.Auth, metrics.outgoing("read keys", http.DefaultTransport), time.Now)
	if err != nil {
		return err
	}
	warn(c.Log, verifier)
	s := &server{config: c, metrics: metrics, auth: authenticator{verifier}, limits: newLimiter(c.Limits)}
	if s.listeners, err = listen(c); err != nil {
		return err
	}
	defer s.listeners.close()
	s.feed = newFeed()
	if s.log, err = openLog(c, metrics, s.feed.readable); err != nil {
		return err
	}
	s.feed.log = s.log
	defer func() {
		if closing := s.log.Close(); s.log.Err() == nil { // a failed log was already reported
			err = errors.Join(err, closing)
		}
	}()
	s.publicURL = cmp.Or(c.PublicURL, s.listeners.mainURL())
	if err := s.openEngine(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.capabilities.store.Close(), s.approvals.Close()) }()
	if err := s.loadPolicies(ctx); err != nil {
		return err
	}
	if err := metrics.observe(s.engine, s.log, s.limits, s.approvals, s.capabilities.store, s.policies); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	s.credentials.Store(&c.Auth)
	s.warnPolicies()
	s.policies.loaded = s.warnPolicies
	return s.serve(ctx)
}

// A server assembles the handlers of the two listeners.
type server struct {
	config    Config
	publicURL string // base URL of the main listener

	metrics      *telemetry
	auth         authenticator
	credentials  atomic.Pointer[Auth]   // the settings that auth follows
	warned       atomic.Pointer[string] // the revision whose warnings are in the program's log
	limits       *limiter
	listeners    *listeners
	log          *decisionlog.Log
	feed         *feed
	sinks        []*sink
	operator     *operatorHandlers // shared by the admin listener and the console
	engine       *evaluation.Engine
	approvals    *approval.Service
	capabilities *capabilityIssuer
	policies     *policyLoader
	shadow       *policyLoader
}

// loadPolicies loads the active policies and the shadow policies.
func (s *server) loadPolicies(ctx context.Context) (err error) {
	if s.policies, err = newPolicyLoader(ctx, s.engine, s.config); err != nil {
		return err
	}
	s.shadow, err = newShadowLoader(ctx, s.engine, s.config)
	s.limits.known = hasPolicies(s.engine)
	return err
}

// check reports settings that are invalid, alone or in combination. Each error is a
// [yamldoc.SettingError] with the key of the configuration file.
func (c Config) check() error {
	_, errHosts := newHostNames("hosts", c.Hosts)
	_, errAdminHosts := newHostNames("admin_hosts", c.AdminHosts)
	return errors.Join(errHosts, errAdminHosts, c.Console.Check(), c.Limits.checkBody(cmp.Or(c.MaxBody, defaultMaxBody)))
}

// warn logs warnings about credentials.
func warn(log *slog.Logger, verifier *callers.Verifier) {
	for _, warning := range verifier.Warnings() {
		log.Warn(warning)
	}
}

// warnTenants logs tenants of credentials that the policy store lacks. Requests of such a
// credential fail because the tenant is unknown.
func warnTenants(log *slog.Logger, auth Auth, engine *evaluation.Engine) {
	store := engine.Snapshots()
	if store == nil {
		return // reported as not ready
	}
	for _, named := range auth.TenantSettings() {
		if _, err := store.For(named.Tenant); errors.Is(err, snapshot.ErrUnknownTenant) {
			log.Warn("a credential is for a tenant that the policy store lacks", "setting", named.Path, "tenant", named.Tenant,
				"hint", cmp.Or(yamldoc.DidYouMean(named.Tenant, engine.Status().Tenants), "tenants are the folders below tenants/ of the policy store"))
		}
	}
}

// warnPolicies logs, once for each active revision, tenants of credentials that it lacks, and parts of
// its policies that are rarely intended.
func (s *server) warnPolicies() {
	store := s.engine.Snapshots()
	if store == nil {
		return
	}
	revision := store.Revision()
	if before := s.warned.Swap(&revision); before != nil && *before == revision {
		return
	}
	warnTenants(s.config.Log, *s.credentials.Load(), s.engine)
	if s.config.Notify.Off() {
		warnWays(s.config.Log, s.engine)
	}
	warnings := lint.PolicyWarnings(store)
	for _, warning := range warnings[:min(len(warnings), maxWarnings)] {
		s.config.Log.Warn("policies: "+warning.Error(), "revision", revision)
	}
	if more := len(warnings) - maxWarnings; more > 0 {
		s.config.Log.Warn("policies have more warnings: validate lists them", "more", more)
	}
}

// maxWarnings limits the warnings that one revision logs.
const maxWarnings = 20

// approverType returns the entity type of authenticated approvers.
func (s *server) approverType() string { return cmp.Or(s.config.ApproverType, defaultApproverType) }

// openEngine creates the engine and the Access Request Service. Each calls the other: the engine
// verifies approvals, and the service asks who may approve.
func (s *server) openEngine() error {
	c := s.config
	callbacks, err := newNotifier(c.Callbacks, c.CallbackSecret, s.metrics)
	if err != nil {
		return err
	}
	people, err := newPeopleNotifier(s)
	if err != nil {
		return err
	}
	service := approval.Config{
		BaseURL: s.publicURL,
		Template: func(tenant, name string) (authzen.ApprovalTemplate, error) {
			return s.engine.ApprovalTemplate(tenant, name)
		},
		CanApprove: func(ctx context.Context, check approval.Check) (bool, error) {
			call := evaluation.Call{Tenant: check.Tenant, Caller: check.Caller, RequestID: check.RequestID, TraceID: check.TraceID}
			return s.engine.MayDecide(ctx, call, check.Request)
		},
		WouldApprove: func(_ context.Context, check approval.Check) (bool, error) {
			return s.engine.WouldDecide(check.Tenant, check.Request)
		},
		NamesOf:  s.auth.namesOf,
		Revision: func(tenant string) string { return s.engine.Revision(tenant) },
		Mask:     s.log.Mask,
		Record:   func(ctx context.Context, r approval.Record) error { return s.log.Append(ctx, entryOf(r)) },
		Recorded: func(ctx context.Context, id string) (bool, error) { return s.engine.Recorded(ctx, id) },
		FindDenial: func(ctx context.Context, tenant, id string) (*authzen.RequestableDenial, error) {
			return s.engine.Denial(ctx, tenant, id)
		},
		OnError: func(err error) { c.Log.Error("access requests", "error", err) },

		CheckArguments:  capability.CheckArguments,
		CallbackAllowed: c.Callbacks,
		SendCallback:    callbacks.call,
	}
	people.configure(&service)
	if s.approvals, err = approval.Open(c.State, service); err != nil {
		return err
	}
	capabilities, err := s.openCapabilities()
	if err != nil {
		return errors.Join(err, s.approvals.Close())
	}
	s.engine = evaluation.NewEngine(s.log, evaluation.Config{
		ItemError:   describe,
		Recorded:    s.metrics.recorded,
		GuardShrink: c.GuardShrink,
		Ways:        people.ways(),
		MaxItems:    c.MaxEvaluations,
		MaxResults:  c.MaxResults,
		Scan:        s.limits.scan,
		PageKey:     []byte(c.PageKey),
		Approvals:   s.approvals,
		Offer:       s.approvals.Offer,

		Capabilities:       capabilities,
		CapabilityEndpoint: s.capabilityEndpoint,
	})
	s.capabilities = &capabilityIssuer{engine: s.engine, approvals: s.approvals, store: capabilities, now: time.Now, log: c.Log}
	return nil
}

// entryOf returns the log entry of a transition.
func entryOf(r approval.Record) *decisionlog.Entry {
	return &decisionlog.Entry{
		ID: r.ID, Time: r.Time, Tenant: r.Tenant, Kind: decisionlog.Kind(r.Kind),
		Request: r.Body, Caller: r.Caller, RequestID: r.RequestID,
	}
}

// serve runs both listeners until ctx ends, or until a listener or the log fails.
func (s *server) serve(ctx context.Context) error {
	var err error
	if s.sinks, err = s.config.DecisionLog.sinks(&http.Client{Transport: s.metrics.outgoing("send checkpoint", http.DefaultTransport)}); err != nil {
		return err
	}
	reloads := &reloader{
		engine: s.engine, policies: s.policies, shadow: s.shadow, who: s.auth, listeners: s.listeners, settings: s.config.Settings, credentials: &s.credentials, log: s.config.Log,
	}
	main, err := s.mainHandler()
	if err != nil {
		return err
	}
	admin, err := s.adminHandler(reloads)
	if err != nil {
		return err
	}
	unpublish, err := publishAdmin(s.config.State, s.listeners.ownAdminURL())
	if err != nil {
		return err
	}
	defer unpublish()
	pages, unpublishConsole, err := s.consoleHandler(reloads)
	if err != nil {
		return err
	}
	defer unpublishConsole()

	group, ctx := errgroup.WithContext(ctx)
	mainServer, adminServer, consoleServer := newServer(main, s.config.Log), newServer(admin, s.config.Log), newServer(pages, s.config.Log)
	s.listeners.main.follow(mainServer)
	group.Go(func() error { return serveOn(mainServer, s.listeners.main, s.listeners.tls) })
	group.Go(func() error { return serveOn(adminServer, s.listeners.admin, nil) })
	if s.listeners.console != nil {
		s.listeners.console.follow(consoleServer)
		group.Go(func() error { return serveOn(consoleServer, s.listeners.console, s.listeners.consoleTLS) })
	}
	group.Go(func() error { return drain(ctx, mainServer, adminServer, consoleServer) })
	context.AfterFunc(ctx, s.feed.end)
	group.Go(func() error { return reloads.followSignals(ctx, s.config.Reload) })
	group.Go(func() error { return reloads.jobs.drain(ctx) })
	group.Go(func() error { return s.operator.replays.drain(ctx) })
	s.runTasks(ctx, group)
	if s.config.Ready != nil {
		s.config.Ready(Addresses{s.listeners.mainURL(), s.listeners.adminURL(), s.listeners.consoleURL, reloads.links()})
	}
	return group.Wait()
}

// runTasks runs background tasks until ctx ends.
func (s *server) runTasks(ctx context.Context, group *errgroup.Group) {
	program := s.config.Log
	group.Go(func() error { return s.policies.follow(ctx) })
	group.Go(func() error { return s.shadow.follow(ctx) })
	group.Go(func() error { return s.approvals.Run(ctx) })
	group.Go(func() error { return s.approvals.RunCallbacks(ctx) })
	group.Go(func() error { return s.approvals.RunAnnouncements(ctx) })
	group.Go(func() error { return s.capabilities.store.Run(ctx) })
	group.Go(func() error { return s.capabilities.run(ctx) })
	group.Go(func() error { return watchLog(ctx, s.log) })
	group.Go(func() error {
		look := time.NewTicker(clockLook)
		defer look.Stop()
		return watchClock(ctx, look.C, hostClock(), noteStep(s.log, program))
	})
	group.Go(func() error { return signCheckpoints(ctx, s.log, program) })
	group.Go(func() error { return prune(ctx, s.log, s.config.DecisionLog.Retention, program) })
	for _, to := range s.sinks {
		group.Go(func() error { return send(ctx, s.log, to, program) })
	}
}

// mainHandler returns the handler of the main listener.
func (s *server) mainHandler() (*echo.Echo, error) {
	metadata, err := newMetadata(s.publicURL, s.config.Insecure)
	if err != nil {
		return nil, err
	}
	refuse, err := browserRules(s.config, s.listeners, metadata)
	if err != nil {
		return nil, err
	}
	e := newEcho(s.config.Log)
	e.Pre(s.metrics.serve, closeUnauthenticated(s.auth))
	e.Pre(refuse...)
	s.mainRoutes(e, metadata)
	return e, nil
}

// adminHandler returns the handler of the admin listener.
func (s *server) adminHandler(reloads *reloader) (*echo.Echo, error) {
	hosts, err := newHostNames("admin_hosts", s.config.AdminHosts)
	if err != nil {
		return nil, err
	}
	e := newEcho(s.config.Log)
	e.Pre(refuseNames("admin_hosts", hosts), refuseBrowsers())
	s.adminRoutes(e, reloads)
	return e, nil
}

func serveOn(s *http.Server, l net.Listener, config *tls.Config) error {
	var err error
	if config == nil {
		err = s.Serve(l)
	} else {
		s.TLSConfig = config
		err = s.ServeTLS(l, "", "")
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}

// drain shuts the servers down after ctx ends and finishes running requests.
func drain(ctx context.Context, servers ...*http.Server) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	var errs []error
	for _, s := range servers {
		if err := s.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("requests still ran after %s: %w", drainTime, err), s.Close())
		}
	}
	return errors.Join(errs...)
}

// publishAdmin writes the admin listener's URL to the state directory. Subcommands use it to find a
// running server.
func publishAdmin(state, url string) (unpublish func(), err error) {
	path := filepath.Join(state, AdminURLFile)
	if err := os.WriteFile(path, []byte(url+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("publish admin address: %w", err)
	}
	return func() { _ = os.Remove(path) }, nil
}

// AdminURLFile is the name of the file, in the state directory, that holds the URL of the admin
// listener while a server runs.
const AdminURLFile = "admin-url"
