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
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/cmd/internal/tuning"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/policies"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

type serveCmd struct {
	Policies        string                 `help:"Directory of the policy store. Default: the embedded example agent-tools." placeholder:"DIR"`
	Shadow          string                 `help:"Directory of shadow policies. Their decisions are recorded and never answered." placeholder:"DIR"`
	RequireManifest bool                   `help:"Refuse a policy store without a manifest.json."`
	ManifestKey     string                 `help:"File with the ed25519 public key, in base64, that must have signed the manifest." placeholder:"FILE"`
	ReloadGuards    string                 `help:"Guards against suspicious reloads: ${enum}. Basic refuses a store that has lost all policies, all tenants, its schema, its settings or its entities. Strict also refuses one that has lost all forbids or half of its policies." enum:"basic,strict" default:"basic"`
	State           string                 `help:"State directory: decision log, approvals and keys. Default: ${default}." default:"policy-service-state" placeholder:"DIR"`
	Listen          string                 `help:"Address of the main listener, for PEPs. Default: ${default}. Port 0 selects a free port." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	AdminListen     string                 `help:"Address of the admin listener, for health checks and administration. Default: ${default}." default:"127.0.0.1:8081" placeholder:"HOST:PORT"`
	PublicURL       string                 `help:"URL of the service for PEPs. The metadata contain it." placeholder:"URL"`
	TLSCert         string                 `help:"PEM certificate chain of the main listener." placeholder:"FILE"`
	TLSKey          string                 `help:"PEM key of the main listener." placeholder:"FILE"`
	Auth            authFlag               `help:"Callers, their credentials, tenants and scopes, as YAML: see docs/reference/configuration.md. It belongs in the file of --config." placeholder:"YAML"`
	Insecure        bool                   `help:"Allow other hosts to reach the main listener although callers are not authenticated."`
	AdminInsecure   bool                   `help:"Allow other hosts to reach the admin listener, which has no TLS. Callers must be authenticated."`
	AdminHosts      []string               `help:"Additional host name of the admin listener; *.NAME means every name below. Requests with another Host get 421." placeholder:"NAME"`
	Hosts           []string               `help:"Additional host name of the main listener; *.NAME means every name below. Requests with another Host get 421 if only this host can reach the listener and callers are not authenticated." placeholder:"NAME"`
	MetricsTenants  bool                   `help:"Show the labels tenant and policy on /metrics to everybody. By default, with auth, only credentials of every tenant with the scope audit or admin see them."`
	Durability      decisionlog.Durability `help:"Time of the answer. Strict, the default: after the entry is on disk. Batched: up to 100 ms before." default:"strict" placeholder:"MODE"`
	Log             logFlags               `embed:"" prefix:"log."`
	Console         consoleFlags           `embed:"" prefix:"console."`
	MaxBody         int64                  `help:"Maximum size of a request body in bytes. Default: ${default}." default:"1048576" some:"" placeholder:"BYTES"`
	MaxEvaluations  int                    `help:"Maximum number of evaluations in a batch. Default: ${default}. A larger batch gets 400." default:"1000" some:"" placeholder:"N"`
	MaxResults      int                    `help:"Maximum number of search results in one answer. Default: ${default}. The rest is on further pages." default:"10000" some:"" placeholder:"N"`
	PageKey         string                 `help:"Secret that signs page tokens, the same for all replicas. Default: a random secret." placeholder:"TEXT" secret:""`
	CallbackAllow   []string               `help:"URL at or below which callbacks are allowed. Without one, callbacks are refused." placeholder:"URL"`
	ApproverType    string                 `help:"Entity type of approvers, if callers are authenticated. Default: ${default}." default:"user" placeholder:"TYPE"`
	CallbackSecret  string                 `help:"File with the secret that signs callbacks." placeholder:"FILE"`
	MaxConnections  int                    `help:"Maximum number of connections to the main listener, and of those to the console. Default: ${default}. Beyond it, an idle connection is closed or the next one waits." default:"4096" some:"" placeholder:"N"`
	MaxPerAddress   int                    `help:"Maximum number of connections from one address, or from one IPv6 /64 network. Default: half of --max-connections. This host has no limit. Behind a load balancer, all callers have one address." placeholder:"N"`
	MaxInFlight     int                    `help:"Maximum number of requests in processing. Default: ${default}. Other requests wait up to 750 ms, then get 503." default:"256" some:"" placeholder:"N"`
	MaxBodyMemory   int64                  `help:"Maximum memory of all request bodies in bytes. Default: ${default}. Requests beyond it get 503." default:"134217728" some:"" placeholder:"BYTES"`
	MaxSearches     int                    `help:"Maximum number of large searches (over 1,000 entities) and batches (over 64 items) in processing. Default: half the number of processors. Others wait." placeholder:"N"`
	Deadline        time.Duration          `help:"Time limit of a decision, including its log entry. Default: ${default}. A later decision gets 503." default:"2s" some:"" placeholder:"DURATION"`
	TenantRate      float64                `help:"Maximum number of requests a second of one tenant. Default: no limit. Requests beyond it get 429." placeholder:"N"`
	LogFormat       string                 `help:"Format of the program's own log: ${enum}." enum:"text,json" default:"text"`
	Config          configFile             `help:"YAML file with these settings. A key is the name of a flag with underscores." placeholder:"FILE"`
}

func (c *serveCmd) Run(ctx context.Context, command *kong.Context) (err error) {
	tuning.Serve()
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
	cfg := c.config()
	cfg.ManifestKey, cfg.CallbackSecret, cfg.Policies = key, secret, example
	cfg.Telemetry, cfg.Log = telemetry, log
	cfg.Reload, cfg.Settings = hangups, func() (*pdp.Settings, error) { return reread(ctx, command) }
	return c.placed(pdp.Run(ctx, cfg))
}

// config returns the settings of the flags.
func (c *serveCmd) config() pdp.Config {
	return pdp.Config{
		PolicyDir:       c.Policies,
		RequireManifest: c.RequireManifest,
		GuardShrink:     c.ReloadGuards == "strict",
		ShadowDir:       c.Shadow,

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

		Callbacks:    c.CallbackAllow,
		ApproverType: c.ApproverType,
		Limits:       c.limits(),
		Console:      c.Console.settings(),
		Notify:       c.Console.Notify.Settings,
		Ready: func(at pdp.Addresses) {
			fmt.Fprintf(os.Stderr, "listening on %s (admin %s)\n", at.Main, at.Admin)
			if at.Console != "" {
				fmt.Fprintf(os.Stderr, "console on %s (%s)\n", at.Console, waysIn(at, c.Console.OIDC.Issuer))
			}
		},
	}
}

// waysIn says how people sign in to the console. issuer is that of their provider, "" for none.
func waysIn(at pdp.Addresses, issuer string) string {
	switch {
	case at.ConsoleLinks && issuer != "":
		return "people sign in at " + issuer + ", or by a link that policy-service console prints"
	case at.ConsoleLinks:
		return "policy-service console prints a link to sign in"
	case issuer != "":
		return "people sign in at " + issuer
	}
	return "nobody can sign in: set console.oidc"
}

// placed adds the place in the configuration file to errors of settings that serving
// finds.
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

// authFlag reads the credentials of callers.
type authFlag struct {
	pdp.Auth `yaml:",inline"`
}

// Decode reads YAML, or the value in the configuration file.
func (a *authFlag) Decode(ctx *kong.DecodeContext) error {
	return decodeDocument(ctx, "--auth", a.read)
}

// decodeDocument reads YAML from a flag, or the value in the configuration file.
func decodeDocument(ctx *kong.DecodeContext, flag string, read func(*yamldoc.Document) []yamldoc.Fault) (err error) {
	given := ctx.Scan.Pop().Value
	doc, inFile := given.(*yamldoc.Document)
	if !inFile {
		if doc, err = yamldoc.Parse(flag, fmt.Append(nil, given)); err != nil {
			return err
		}
	}
	return yamldoc.Errors(read(doc))
}

// A documentFlag is a flag whose value is YAML.
type documentFlag interface {
	read(*yamldoc.Document) []yamldoc.Fault
}

// read reads the credentials, and returns all errors. A value without credentials is
// an error, because everybody could ask.
func (a *authFlag) read(doc *yamldoc.Document) []yamldoc.Fault {
	faults := doc.Decode(&a.Auth)
	if len(faults) == 0 && !a.Known() {
		return []yamldoc.Fault{doc.Fault("auth: there are no credentials", "leave auth out if everybody may ask")}
	}
	return doc.Settings(faults, a.Check())
}

// logFlags configure the decision log.
type logFlags struct {
	SegmentBytes     int64                `help:"Size in bytes at which a new segment of the log starts. Default: ${default}." default:"268435456" some:"" placeholder:"BYTES"`
	SegmentAge       time.Duration        `help:"Age at which a new segment starts. Default: ${default}." default:"24h" some:"" placeholder:"DURATION"`
	RetentionAge     time.Duration        `help:"Age at which a segment is removed, as in 90d; at least 1h. Default: never." placeholder:"DURATION" least:"1h"`
	RetentionBytes   int64                `help:"Total size of segments beyond which the oldest are removed. Default: no limit." placeholder:"BYTES"`
	Hold             []decisionlog.Period `help:"Periods whose entries are never removed, as in 2026-01-01/2026-03-31 or 2026-01-01/." placeholder:"FROM/UNTIL"`
	CheckpointFile   string               `help:"File to which checkpoints are appended, on another host or on storage that does not delete." placeholder:"FILE"`
	CheckpointURL    string               `name:"checkpoint-url" help:"URL to which checkpoints are posted." placeholder:"URL"`
	CheckpointSyslog string               `help:"Syslog server for checkpoints (RFC 5424): udp://HOST, tcp://HOST, tls://HOST or unix:///PATH." placeholder:"URL"`
	Mask             []string             `help:"Additional names of members whose values the log masks." placeholder:"NAME"`
	Unmask           []string             `help:"Names of members that look like secrets and are not." placeholder:"NAME"`
	AcceptRollback   string               `help:"Reason to start although entries of the last checkpoint are missing. The reason becomes an entry." placeholder:"REASON"`
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

// exampleSet is the embedded policy store, which is used if no other is named.
const exampleSet = "agent-tools"

// policyStore opens a policy store; without a directory, it is the embedded example.
func policyStore(dir string) (fs.FS, error) {
	if dir == "" {
		return policies.Set(exampleSet)
	}
	return policystore.Open(dir)
}

// readManifestKey reads a public key, if a file is named.
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

// readSecret reads a secret, if a file is named.
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
