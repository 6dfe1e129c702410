package gateway

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/access"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/approval"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/calllimit"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/credential"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
	"github.com/policy-service/policy-service/pdp/filereload"
)

// A Config is the configuration of a gateway. docs/reference/mcp-gateway.md
// explains each key of its YAML form.
type Config struct {
	Listen  string   `yaml:"listen"`
	Admin   string   `yaml:"admin_listen"`
	TLSCert string   `yaml:"tls_cert"`
	TLSKey  string   `yaml:"tls_key"`
	TLSCA   string   `yaml:"tls_client_ca"`
	Hosts   []string `yaml:"hosts"`
	Origins []string `yaml:"origins"`
	State   string   `yaml:"state"`
	// Insecure says that callers beyond this host are meant not to be
	// authenticated, or to come without TLS.
	Insecure bool `yaml:"insecure"`

	// Mode is that of servers which say nothing about it.
	Mode mode `yaml:"mode"`
	// ToolAuthorization is that of servers which say nothing about it.
	ToolAuthorization authorizationMode `yaml:"tool_authorization"`

	PDP      pdpConfig      `yaml:"pdp"`
	Denial   denialConfig   `yaml:"denial"`
	Approval approvalConfig `yaml:"approval"`
	Trail    trailConfig    `yaml:"trail"`
	Labels   labelsConfig   `yaml:"labels"`
	// Obligations that the gateway carries out.
	Obligations obligationsConfig `yaml:"obligations"`
	Identity    identityConfig    `yaml:"identity"`
	Catalog     catalogConfig     `yaml:"catalog"`
	MaxBody     int64             `yaml:"max_body"`
	MaxReply    int64             `yaml:"max_reply"`
	Servers     []serverConfig    `yaml:"servers"`
	// Endpoints are those over several servers, beside that of each server.
	Endpoints []endpointConfig  `yaml:"endpoints"`
	Limits    []calllimit.Limit `yaml:"limits"`
	// Access is about callers that ask for capabilities, or request calls.
	Access accessConfig `yaml:"access"`

	// Log is the program's own log.
	Log *slog.Logger `yaml:"-"`
	// Reload, if not nil, reads the configuration again while the gateway serves.
	Reload *Reload `yaml:"-"`
	// Version is that of the program, for its telemetry.
	Version string `yaml:"-"`
}

type pdpConfig struct {
	URL     string `yaml:"url"`
	KeyFile string `yaml:"key_file"`
	// ServiceKeyFile is of the key for an Access Request Service of another origin.
	ServiceKeyFile string   `yaml:"service_key_file"`
	Timeout        duration `yaml:"timeout"`
	Failures       uint32   `yaml:"failures"`
	Pause          duration `yaml:"pause"`
	// Capabilities says whether the PDP knows capabilities; nil finds it out.
	Capabilities *bool `yaml:"capabilities"`
}

type approvalConfig struct {
	Page      string   `yaml:"page"`
	Tasks     bool     `yaml:"tasks"`
	Hold      duration `yaml:"hold"`
	Wait      duration `yaml:"wait"`
	Refused   duration `yaml:"refused"`
	PerCaller int      `yaml:"pending_per_caller"`
	Pending   int      `yaml:"pending"`
	// PassingMeta names members of _meta that differ from message to message.
	PassingMeta []string `yaml:"passing_meta"`
}

// An accessConfig says how callers get what policies do not let them do themselves.
type accessConfig struct {
	// PerMinute bounds the capabilities and calls that a caller requests.
	PerMinute int `yaml:"requests_per_minute"`
	// Welcome tells callers their level when they connect.
	Welcome bool `yaml:"welcome"`
}

// settings returns what of the approvals a running gateway follows.
func (c *approvalConfig) settings() approval.Settings {
	return approval.Settings{Page: c.Page, Hold: c.Hold, Wait: c.Wait, Refused: c.Refused, PerCaller: c.PerCaller, Limit: c.Pending}
}

// A trailConfig says how long the audit trail keeps entries: for ever without
// either key.
type trailConfig struct {
	RetentionAge   duration `yaml:"retention_age"`
	RetentionBytes int64    `yaml:"retention_bytes"`
}

type denialConfig struct {
	Codes      enforce.Codes `yaml:"codes"`
	Code       int           `yaml:"code" number:"signed"`       // 0 is that of Codes
	OlderCode  int           `yaml:"older_code" number:"signed"` // 0 is -32401
	HTTPStatus int           `yaml:"http_status"`
	Conceal    bool          `yaml:"conceal"`
	TellReason bool          `yaml:"tell_reason"`
	// CapabilityCode is that of a call for want of a capability; 0 is that of Codes.
	CapabilityCode int `yaml:"capability_code" number:"signed"`
}

type identityConfig struct {
	identity.Config `yaml:",inline"`
	// Local is who connects from this host without a credential.
	Local *identity.Process `yaml:"local"`
	// Login is the login of people at the issuer of their tokens.
	Login *loginConfig `yaml:"login"`
}

type catalogConfig struct {
	Accepted bool     `yaml:"accepted"`
	File     string   `yaml:"accepted_file"`
	Refresh  duration `yaml:"refresh"`
	TTL      duration `yaml:"ttl"`
	// Arguments is that of servers which say nothing about it.
	Arguments argumentMode `yaml:"arguments"`
}

type serverConfig struct {
	Name       string            `yaml:"name"`
	Mode       mode              `yaml:"mode"`
	URL        string            `yaml:"url"`
	Path       string            `yaml:"path"`
	PublicURL  string            `yaml:"public_url"` // of the endpoint; "" is below the gateway's
	BearerFile string            `yaml:"bearer_file"`
	Header     map[string]string `yaml:"header"`
	// HeaderFiles have the values of further headers, by name.
	HeaderFiles   map[string]string  `yaml:"header_files"`
	Credential    *credential.Config `yaml:"credential"`
	TLS           *serverTLS         `yaml:"tls"`
	Run           commandConfig      `yaml:",inline"`
	coaz.Upstream `yaml:",inline"`
	RequestPolicy requestPolicy  `yaml:",inline"`
	Arguments     argumentPolicy `yaml:",inline"`
	// AccessTools offers the gateway's own tools, with which models ask for
	// capabilities.
	AccessTools bool `yaml:"access_tools"`
	// Proof hands the capability and the proof of a call to the server, which checks
	// them itself.
	Proof bool `yaml:"proof"`
}

// A duration is in the syntax of yamldoc.ParseDuration.
type duration = time.Duration

// NewConfig returns a Config with the default of every key.
func NewConfig() *Config {
	return &Config{
		Listen: "127.0.0.1:8090", Log: slog.New(slog.DiscardHandler),
		PDP:     pdpConfig{Timeout: duration(500 * time.Millisecond), Failures: 5, Pause: duration(time.Second)},
		Denial:  denialConfig{HTTPStatus: 200},
		Access:  accessConfig{PerMinute: access.DefaultPerMinute},
		Labels:  labelsConfig{TTL: 24 * time.Hour, Scope: scopeCaller},
		Catalog: catalogConfig{Refresh: duration(time.Minute), TTL: duration(10 * time.Second)},
		Approval: approvalConfig{
			Hold: duration(50 * time.Second), Wait: duration(10 * time.Minute), Refused: duration(15 * time.Minute),
			PerCaller: 20, Pending: 1000, PassingMeta: []string{"claudecode/toolUseId"},
		},
	}
}

// ServerNames lists the names of the servers.
func (c *Config) ServerNames() (names []string) {
	for _, s := range c.Servers {
		names = append(names, s.Name)
	}
	return names
}

// resourceOf returns the resource of a server's endpoint, or "".
func (c *Config) resourceOf(server string) string {
	for i := range c.Servers {
		if s := &c.Servers[i]; s.Name == server {
			return s.resource(c.Identity.Resource)
		}
	}
	return ""
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// tls returns the configuration of the main listener, whose certificate and issuers
// of client certificates follow their files; nil without a certificate.
func (c *Config) tls(log *slog.Logger) (*tls.Config, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	files := filereload.Config{Log: log}
	own, err := filereload.NewCertificate(c.TLSCert, c.TLSKey, files)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{GetCertificate: own.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if c.TLSCA == "" {
		return config, nil
	}
	issuers, err := filereload.NewCertPool(c.TLSCA, files)
	if err != nil {
		return nil, err
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	config.ClientCAs = issuers.Get()
	base := config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs = issuers.Get()
		return now, nil
	}
	return config, nil
}

// isServed reports whether serve has an endpoint for the server. Others are run by
// stdio.
func (s *serverConfig) isServed() bool { return s.URL != "" || len(s.Run.Command) > 0 }

// Endpoint returns the path at which the gateway serves this server.
func (s *serverConfig) Endpoint() string {
	if s.Path != "" {
		return s.Path
	}
	return "/" + s.Name + "/mcp"
}

// resource returns the URL of the endpoint as its clients know it, or "": what
// tokens are for.
func (s *serverConfig) resource(base string) string {
	return resourceAt(s.PublicURL, base, s.Endpoint())
}

// resourceAt returns the URL of the endpoint at a path of the gateway at base, if it
// is not public, or "".
func resourceAt(public, base, path string) string {
	if public != "" || base == "" {
		return public
	}
	return strings.TrimSuffix(base, "/") + path
}

// secrets returns the headers whose values follow files.
func (s *serverConfig) secrets(log *slog.Logger) (map[string]func() string, error) {
	all := make(map[string]func() string)
	for name, file := range s.HeaderFiles {
		value, err := openSecret("header_files of "+s.Name, file, log)
		if err != nil {
			return nil, fmt.Errorf("servers: %s: %s: %w", s.Name, name, err)
		}
		all[name] = value.Get
	}
	return all, nil
}

// openSecret reads the line of a file, which may be replaced later.
func openSecret(name, file string, log *slog.Logger) (*filereload.Value[string], error) {
	return filereload.New(name, func() (string, error) { return readSecret(file) }, filereload.Config{Log: log}, file)
}

// readSecret reads one line; without a file there is none.
func readSecret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	secret := string(bytes.TrimSpace(text))
	if secret == "" || strings.ContainsAny(secret, "\r\n") {
		return "", fmt.Errorf("%s does not hold one line", file)
	}
	return secret, nil
}
