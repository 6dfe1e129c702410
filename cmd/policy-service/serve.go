package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/policies"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

type serveCmd struct {
	Policies        string                 `help:"Directory of the policy store. Without it the embedded example agent-tools is served." placeholder:"DIR"`
	Shadow          string                 `help:"Directory of a policy store that decides beside the first. What it decides is in the log, and is never an answer." placeholder:"DIR"`
	RequireManifest bool                   `help:"Load no policy store without a manifest.json."`
	ManifestKey     string                 `help:"File of the ed25519 public key, in base64, that must have signed the manifest." placeholder:"FILE"`
	ReloadGuards    string                 `help:"Reloads to refuse: ${enum}. Basic refuses a store that has lost all its policies, all its tenants, its schema, its settings or its entities; strict also one that has lost all its forbids or half its policies." enum:"basic,strict" default:"basic"`
	State           string                 `help:"Directory of the decision log; ${default} without it." default:"policy-service-state" placeholder:"DIR"`
	Listen          string                 `help:"Address PEPs connect to; ${default} without it; port 0 picks a free one." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	AdminListen     string                 `help:"Address of health checks and administration; ${default} without it." default:"127.0.0.1:8081" placeholder:"HOST:PORT"`
	PublicURL       string                 `help:"URL by which PEPs know the service, for its metadata." placeholder:"URL"`
	TLSCert         string                 `help:"PEM certificate chain of the main listener." placeholder:"FILE"`
	TLSKey          string                 `help:"PEM key of the main listener." placeholder:"FILE"`
	Auth            authFlag               `help:"Callers, their credentials, tenants and scopes, as YAML: see docs/reference/configuration.md. It belongs in the file of --config." placeholder:"YAML"`
	Insecure        bool                   `help:"Listen beyond this host although callers are not authenticated. It does not concern the admin listener."`
	AdminInsecure   bool                   `help:"Serve administration beyond this host although it has no TLS. Callers have to be authenticated."`
	AdminHosts      []string               `help:"Host name by which the admin listener is reached, beside its address and those of this host; *.NAME is every name below. Other Hosts are answered 421." placeholder:"NAME"`
	Hosts           []string               `help:"Host name by which PEPs reach the main listener, beside its address, those of this host and that of --public-url; *.NAME is every name below. Other Hosts are answered 421 where it listens on this host alone and callers are not authenticated." placeholder:"NAME"`
	MetricsTenants  bool                   `help:"Name tenants and policies on /metrics to whoever reaches it. Without it, where callers are authenticated, only to credentials of every tenant with the scope audit or admin."`
	Durability      decisionlog.Durability `help:"When an answer is given: strict (as without it), once it is on disk; batched, up to 100 ms before." default:"strict" placeholder:"MODE"`
	Log             logFlags               `embed:"" prefix:"log."`
	MaxBody         int64                  `help:"Largest request body, in bytes; ${default} without it." default:"1048576" some:"" placeholder:"BYTES"`
	MaxEvaluations  int                    `help:"Most evaluations in a batch; ${default} without it. A batch with more is answered 400." default:"1000" some:"" placeholder:"N"`
	MaxResults      int                    `help:"Most results of a search in one answer; ${default} without it. The rest is on further pages." default:"10000" some:"" placeholder:"N"`
	PageKey         string                 `help:"Secret that signs the tokens of further pages, the same for every replica; without it a random one." placeholder:"TEXT" secret:""`
	CallbackAllow   []string               `help:"URL at or below which PEPs may be called back; without one no callback is accepted." placeholder:"URL"`
	ApproverType    string                 `help:"Entity type of the people who decide on requests, where callers are authenticated; ${default} without it." default:"user" placeholder:"TYPE"`
	CallbackSecret  string                 `help:"File of the secret that callbacks are signed with." placeholder:"FILE"`
	MaxConnections  int                    `help:"Connections to the main listener; ${default} without it. Beyond that an idle one is closed, or the next waits." default:"4096" some:"" placeholder:"N"`
	MaxPerAddress   int                    `help:"Connections from one address, of IPv6 from one network of 64 bits; half of --max-connections without it, and any number from this host. Behind a load balancer all callers have one address." placeholder:"N"`
	MaxInFlight     int                    `help:"Requests that are worked on at once; ${default} without it. Others wait up to 750 ms, and are then answered 503." default:"256" some:"" placeholder:"N"`
	MaxBodyMemory   int64                  `help:"Bytes of all bodies that are read and worked on at once; ${default} without it. Others are answered 503." default:"134217728" some:"" placeholder:"BYTES"`
	MaxSearches     int                    `help:"Searches among more than 1,000 entities, and batches of more than 64 items, that use a processor at once; half as many as there are processors without it. Others wait." placeholder:"N"`
	Deadline        time.Duration          `help:"How long a decision may take, the log included; ${default} without it. A later one is answered 503." default:"2s" some:"" placeholder:"DURATION"`
	TenantRate      float64                `help:"Requests of one tenant a second; any number without it. More are answered 429." placeholder:"N"`
	LogFormat       string                 `help:"Format of the program's own log: ${enum}." enum:"text,json" default:"text"`
	Config          configFile             `help:"YAML file of these settings, a key being a flag's name with underscores." placeholder:"FILE"`
}

// gcPercent lets a server collect garbage a quarter as often as other programs
// do: it keeps little and throws away much. GOGC overrides it, and GOMEMLIMIT
// bounds what comes of it.
const gcPercent = 400

func (c *serveCmd) Run(ctx context.Context, command *kong.Context) (err error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0)) // one is nearly always held by who waits for the disk
	}
	example, err := policies.Set(exampleSet)
	if err != nil {
		return err
	}
	log := newLogger(c.LogFormat)
	if c.Policies == "" {
		log.Info("no --policies: the embedded example is served", "store", exampleSet)
	}
	key, err := readManifestKey(c.ManifestKey)
	if err != nil {
		return err
	}
	secret, err := readSecret(c.CallbackSecret)
	if err != nil {
		return err
	}
	telemetry, end, err := newTelemetry(ctx, c.MetricsTenants)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end(context.WithoutCancel(ctx))) }()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	return c.placed(pdp.Run(ctx, pdp.Config{
		PolicyDir:       c.Policies,
		RequireManifest: c.RequireManifest,
		ManifestKey:     key,
		GuardShrink:     c.ReloadGuards == "strict",
		Policies:        example,
		ShadowDir:       c.Shadow,

		Reload:   hangups,
		Settings: func() (*pdp.Settings, error) { return reread(ctx, command) },

		State:          c.State,
		Listen:         c.Listen,
		AdminListen:    c.AdminListen,
		PublicURL:      c.PublicURL,
		TLSCert:        c.TLSCert,
		TLSKey:         c.TLSKey,
		Auth:           c.Auth.Auth,
		Insecure:       c.Insecure,
		AdminInsecure:  c.AdminInsecure,
		AdminHosts:     c.AdminHosts,
		Hosts:          c.Hosts,
		MaxBody:        c.MaxBody,
		MaxEvaluations: c.MaxEvaluations,
		MaxResults:     c.MaxResults,
		PageKey:        c.PageKey,
		Durability:     c.Durability,
		DecisionLog:    c.Log.config(),

		Callbacks:      c.CallbackAllow,
		CallbackSecret: secret,
		ApproverType:   c.ApproverType,
		Limits:         c.limits(),
		Telemetry:      telemetry,
		Log:            log,
		Ready: func(main, admin string) {
			fmt.Fprintf(os.Stderr, "listening on %s (admin %s)\n", main, admin)
		},
	}))
}

// placed gives the faults of settings that serving finds their places in the
// configuration file, where that sets one of them.
func (c *serveCmd) placed(err error) error {
	var setting *yamldoc.SettingError
	if c.Config == "" || !errors.As(err, &setting) {
		return err
	}
	text, unread := os.ReadFile(string(c.Config))
	doc, unparsed := yamldoc.Parse(string(c.Config), text)
	if unread != nil || unparsed != nil || !doc.Has(setting.Path[0]) && (setting.At == nil || !doc.Has(setting.At[0])) {
		return err
	}
	return yamldoc.Errors(doc.Settings(nil, err))
}

func (c *serveCmd) limits() pdp.Limits {
	return pdp.Limits{
		Connections: c.MaxConnections,
		PerAddress:  c.MaxPerAddress,
		InFlight:    c.MaxInFlight,
		BodyMemory:  c.MaxBodyMemory,
		Searches:    c.MaxSearches,
		TenantRate:  c.TenantRate,
		Deadline:    c.Deadline,
	}
}

// authFlag reads who may ask.
type authFlag struct {
	pdp.Auth `yaml:",inline"`
}

// Decode reads YAML, or what the configuration file has for it.
func (a *authFlag) Decode(ctx *kong.DecodeContext) (err error) {
	given := ctx.Scan.Pop().Value
	doc, inFile := given.(*yamldoc.Document)
	if !inFile {
		if doc, err = yamldoc.Parse("--auth", fmt.Append(nil, given)); err != nil {
			return err
		}
	}
	return yamldoc.Errors(a.read(doc))
}

// read reads who may ask, and returns all that is wrong with it. What is there and
// names no credentials is a fault: without any, everybody may ask.
func (a *authFlag) read(doc *yamldoc.Document) []yamldoc.Fault {
	faults := doc.Decode(&a.Auth)
	if len(faults) == 0 && !a.Known() {
		return []yamldoc.Fault{doc.Fault("auth: there are no credentials", "leave auth out if everybody may ask")}
	}
	return doc.Settings(faults, a.Check())
}

// logFlags say how the decision log is kept.
type logFlags struct {
	SegmentBytes     int64                `help:"Size, in bytes, at which a new segment of the log is begun; ${default} without it." default:"268435456" some:"" placeholder:"BYTES"`
	SegmentAge       time.Duration        `help:"Age at which a new segment is begun; ${default} without it." default:"24h" some:"" placeholder:"DURATION"`
	RetentionAge     time.Duration        `help:"Age at which a segment is removed, as in 90d, at least 1h; never without it." placeholder:"DURATION" least:"1h"`
	RetentionBytes   int64                `help:"Size of all segments beyond which the oldest are removed; none without it." placeholder:"BYTES"`
	Hold             []decisionlog.Period `help:"Times whose entries are not removed, as in 2026-01-01/2026-03-31 or 2026-01-01/." placeholder:"FROM/UNTIL"`
	CheckpointFile   string               `help:"File that checkpoints are appended to, on another host or where nothing is deleted." placeholder:"FILE"`
	CheckpointURL    string               `name:"checkpoint-url" help:"URL that checkpoints are posted to." placeholder:"URL"`
	CheckpointSyslog string               `help:"Syslog server that checkpoints are sent to (RFC 5424): udp://HOST, tcp://HOST, tls://HOST or unix:///PATH." placeholder:"URL"`
	Mask             []string             `help:"Names of members whose values are masked in logged requests, beside those that look like secrets." placeholder:"NAME"`
	Unmask           []string             `help:"Names of members that look like secrets and are none." placeholder:"NAME"`
	AcceptRollback   string               `help:"Start although the log lacks what its last checkpoint has, for this reason, which becomes an entry." placeholder:"REASON"`
}

func (f logFlags) config() pdp.LogConfig {
	return pdp.LogConfig{
		SegmentBytes:     f.SegmentBytes,
		SegmentAge:       f.SegmentAge,
		AcceptRollback:   f.AcceptRollback,
		Retention:        decisionlog.Retention{Age: f.RetentionAge, Bytes: f.RetentionBytes, Hold: f.Hold},
		CheckpointFile:   f.CheckpointFile,
		CheckpointURL:    f.CheckpointURL,
		CheckpointSyslog: f.CheckpointSyslog,
		Mask:             f.Mask,
		Unmask:           f.Unmask,
	}
}

// exampleSet is the embedded policy store that stands in where no other is named.
const exampleSet = "agent-tools"

// policyStore opens a policy store; without a directory, the embedded example.
func policyStore(dir string) (fs.FS, error) {
	if dir == "" {
		return policies.Set(exampleSet)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open policy store: %w", err)
	}
	return root.FS(), nil
}

// readManifestKey reads a public key; without a file there is none.
func readManifestKey(file string) (ed25519.PublicKey, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("manifest key: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("manifest key: %s does not hold %d bytes in base64", file, ed25519.PublicKeySize)
	}
	return key, nil
}

// readSecret reads a secret; without a file there is none.
func readSecret(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("callback secret: %w", err)
	}
	secret := bytes.TrimSpace(text)
	if len(secret) < 32 {
		return nil, fmt.Errorf("callback secret: %s holds less than 32 bytes", file)
	}
	return secret, nil
}

func newLogger(format string) *slog.Logger {
	options := &slog.HandlerOptions{ReplaceAttr: plain.Attr}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}
