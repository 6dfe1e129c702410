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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/labstack/echo/v4"
	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// Config configures the service. PolicyDir or Policies, State, Listen,
// AdminListen and Log are required.
type Config struct {
	PolicyDir       string            // directory of the policy store, which is followed as it changes
	RequireManifest bool              // the store must have a manifest
	ManifestKey     ed25519.PublicKey // that signs the manifest; nil for none
	GuardShrink     bool              // refuse a reload that loses all forbids or half the policies
	Policies        fs.FS             // a policy store that does not change, without PolicyDir
	ShadowDir       string            // directory of a policy store that decides, too, for the log alone; "" for none

	Reload   <-chan os.Signal          // reads the store and the settings at once
	Settings func() (*Settings, error) // as they are now; nil where they do not change

	State          string // directory of the decision log
	Listen         string // address of the main listener, host:port
	AdminListen    string // address of the admin listener, host:port
	PublicURL      string // what PEPs call the service; the main listener's own address when empty
	TLSCert        string // PEM files of the main listener; both or neither
	TLSKey         string
	Auth           Auth
	Insecure       bool     // serve others than this host on the main listener although callers are not authenticated
	AdminInsecure  bool     // let others than this host administer without TLS, with Auth
	AdminHosts     []string // names of the admin listener beside its address and those of this host; "*.NAME" is all below
	Hosts          []string // likewise of the main listener, beside the host of PublicURL, where it serves this host alone and callers are not authenticated
	MaxBody        int64    // bytes of a request; 0 means 1 MiB
	MaxEvaluations int      // in a batch; 0 means 1,000
	MaxResults     int      // of a search in one answer; 0 means 10,000
	PageKey        string   // signs page tokens; "" is a random one
	Durability     decisionlog.Durability
	DecisionLog    LogConfig
	Callbacks      []string // URLs at or below which PEPs may be called back; none for no callbacks
	CallbackSecret []byte   // by which callbacks are signed
	ApproverType   string   // entity type of the people who decide, where callers are authenticated; user when empty
	Limits         Limits
	Telemetry      Telemetry
	Log            *slog.Logger
	Ready          func(main, admin string) // called with the listeners' URLs once they answer
}

const (
	defaultMaxBody      = 1 << 20
	defaultApproverType = "user"
	drainTime           = 20 * time.Second
)

// noDeadline lifts a deadline from an answer that may take long.
var noDeadline time.Time

// ErrInsecure means that the configuration would let the network ask and see
// decisions without saying who asks.
var ErrInsecure = errors.New("refusing to listen beyond this host without caller authentication and TLS")

// Run serves until ctx ends, then lets running requests finish. It returns nil
// after such an end, an [evaluation.Faults] for Policies that do not compile,
// a [yamldoc.SettingError] for each setting that can never do,
// and decisionlog.ErrFailed when the log can no longer be trusted to record.
// Policies of a PolicyDir that do not compile leave it not ready until they do.
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
	if s.log, err = openLog(c, metrics); err != nil {
		return err
	}
	defer func() {
		if closing := s.log.Close(); s.log.Err() == nil { // a failed log has said so
			err = errors.Join(err, closing)
		}
	}()
	s.publicURL = cmp.Or(c.PublicURL, s.listeners.mainURL())
	if err := s.openEngine(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.approvals.Close()) }()
	if err := s.loadPolicies(ctx); err != nil {
		return err
	}
	if err := metrics.observe(s.engine, s.log, s.limits, s.approvals, s.policies); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	warnTenants(c.Log, c.Auth, s.engine)
	return s.serve(ctx)
}

// A server joins what answers on the two listeners.
type server struct {
	config    Config
	publicURL string // of the main listener

	metrics   *telemetry
	auth      authenticator
	limits    *limiter
	listeners *listeners
	log       *decisionlog.Log
	engine    *evaluation.Engine
	approvals *approval.Service
	policies  *policyLoader
	shadow    *policyLoader
}

// loadPolicies loads the stores in force and in shadow.
func (s *server) loadPolicies(ctx context.Context) (err error) {
	if s.policies, err = newPolicyLoader(ctx, s.engine, s.config); err != nil {
		return err
	}
	s.shadow, err = newShadowLoader(ctx, s.engine, s.config)
	s.limits.known = hasPolicies(s.engine)
	return err
}

// check reports settings that can never do, alone or beside one another: each is
// a [yamldoc.SettingError] by its key in the configuration file.
func (c Config) check() error {
	_, errHosts := newHostNames("hosts", c.Hosts)
	_, errAdminHosts := newHostNames("admin_hosts", c.AdminHosts)
	return errors.Join(errHosts, errAdminHosts, c.Limits.checkBody(cmp.Or(c.MaxBody, defaultMaxBody)))
}

// warn says what an operator has to know of the credentials.
func warn(log *slog.Logger, verifier *callers.Verifier) {
	for _, warning := range verifier.Warnings() {
		log.Warn(warning)
	}
}

// warnTenants says which tenants of credentials the policy store lacks: whoever has
// such a credential is told that there is no such tenant, or has nobody to ask.
func warnTenants(log *slog.Logger, auth Auth, engine *evaluation.Engine) {
	store := engine.Snapshots()
	if store == nil {
		return // not ready, which is said elsewhere
	}
	for _, named := range auth.TenantSettings() {
		if _, err := store.For(named.Tenant); errors.Is(err, snapshot.ErrUnknownTenant) {
			log.Warn("a credential is for a tenant that the policy store lacks", "setting", named.Path, "tenant", named.Tenant,
				"hint", cmp.Or(yamldoc.DidYouMean(named.Tenant, engine.Status().Tenants), "tenants are the folders below tenants/ of the policy store"))
		}
	}
}

// openEngine makes the engine and the Access Request Service, which call each
// other: for the approvals in force, and for who may approve.
func (s *server) openEngine() error {
	c := s.config
	callbacks, err := newNotifier(c.Callbacks, c.CallbackSecret, s.metrics)
	if err != nil {
		return err
	}
	s.approvals, err = approval.Open(c.State, approval.Config{
		BaseURL: s.publicURL,
		Template: func(tenant, name string) (authzen.ApprovalTemplate, error) {
			return s.engine.ApprovalTemplate(tenant, name)
		},
		CanApprove: func(ctx context.Context, check approval.Check) (bool, error) {
			call := evaluation.Call{Tenant: check.Tenant, Caller: check.Caller, RequestID: check.RequestID, TraceID: check.TraceID}
			return s.engine.MayDecide(ctx, call, check.Request)
		},
		Record:   func(ctx context.Context, r approval.Record) error { return s.log.Append(ctx, entryOf(r)) },
		Recorded: func(ctx context.Context, id string) (bool, error) { return s.engine.Recorded(ctx, id) },
		FindDenial: func(ctx context.Context, tenant, id string) (*authzen.RequestableDenial, error) {
			return s.engine.Denial(ctx, tenant, id)
		},
		OnError: func(err error) { c.Log.Error("access requests", "error", err) },

		CallbackAllowed: c.Callbacks,
		SendCallback:    callbacks.call,
	})
	if err != nil {
		return err
	}
	s.engine = evaluation.NewEngine(s.log, evaluation.Config{
		ItemError:   describe,
		Recorded:    s.metrics.recorded,
		GuardShrink: c.GuardShrink,
		MaxItems:    c.MaxEvaluations,
		MaxResults:  c.MaxResults,
		Scan:        s.limits.scan,
		PageKey:     []byte(c.PageKey),
		Approvals:   s.approvals,
		Offer:       s.approvals.Offer,
	})
	return nil
}

// entryOf is the log entry of a transition.
func entryOf(r approval.Record) *decisionlog.Entry {
	return &decisionlog.Entry{
		ID: r.ID, Time: r.Time, Tenant: r.Tenant, Kind: decisionlog.Kind(r.Kind),
		Request: r.Body, Caller: r.Caller, RequestID: r.RequestID,
	}
}

// serve answers on both listeners until ctx ends or one of them or the log
// fails.
func (s *server) serve(ctx context.Context) error {
	sinks, err := s.config.DecisionLog.sinks(&http.Client{Transport: s.metrics.outgoing("send checkpoint", http.DefaultTransport)})
	if err != nil {
		return err
	}
	reloads := &reloader{
		engine: s.engine, policies: s.policies, shadow: s.shadow, who: s.auth, listeners: s.listeners, settings: s.config.Settings, log: s.config.Log,
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

	group, ctx := errgroup.WithContext(ctx)
	mainServer, adminServer := newServer(main, s.config.Log), newServer(admin, s.config.Log)
	s.listeners.main.follow(mainServer)
	group.Go(func() error { return serveOn(mainServer, s.listeners.main, s.listeners.tls) })
	group.Go(func() error { return serveOn(adminServer, s.listeners.admin, nil) })
	group.Go(func() error { return drain(ctx, mainServer, adminServer) })
	group.Go(func() error { return reloads.followSignals(ctx, s.config.Reload) })
	group.Go(func() error { return reloads.jobs.drain(ctx) })
	s.runTasks(ctx, group, sinks)
	if s.config.Ready != nil {
		s.config.Ready(s.listeners.mainURL(), s.listeners.adminURL())
	}
	return group.Wait()
}

// runTasks runs what goes on beside the requests until ctx ends.
func (s *server) runTasks(ctx context.Context, group *errgroup.Group, sinks []sink) {
	program := s.config.Log
	group.Go(func() error { return s.policies.follow(ctx) })
	group.Go(func() error { return s.shadow.follow(ctx) })
	group.Go(func() error { return s.approvals.Run(ctx) })
	group.Go(func() error { return s.approvals.RunCallbacks(ctx) })
	group.Go(func() error { return watchLog(ctx, s.log) })
	group.Go(func() error {
		look := time.NewTicker(clockLook)
		defer look.Stop()
		return watchClock(ctx, look.C, hostClock(), noteStep(s.log, program))
	})
	group.Go(func() error { return signCheckpoints(ctx, s.log, program) })
	group.Go(func() error { return prune(ctx, s.log, s.config.DecisionLog.Retention, program) })
	for _, to := range sinks {
		group.Go(func() error { return send(ctx, s.log, to, program) })
	}
}

// mainHandler serves the main listener.
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
	e.Pre(s.metrics.serve, closeOnStrangers(s.auth))
	e.Pre(refuse...)
	s.mainRoutes(e, metadata)
	return e, nil
}

// adminHandler serves the admin listener.
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

// drain lets the requests that run when ctx ends come to their end.
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

// publishAdmin leaves the admin listener's URL in the state directory, where
// the sub-commands that need the log of a running server find it.
func publishAdmin(state, url string) (unpublish func(), err error) {
	path := filepath.Join(state, AdminURLFile)
	if err := os.WriteFile(path, []byte(url+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("publish admin address: %w", err)
	}
	return func() { _ = os.Remove(path) }, nil
}

// AdminURLFile is the file of the state directory that holds the URL of the
// admin listener while a server runs.
const AdminURLFile = "admin-url"
