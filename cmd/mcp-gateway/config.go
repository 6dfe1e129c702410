package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A config is what the file of --config says. docs/mcp-gateway.md explains each
// key.
type config struct {
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

	PDP      pdpConfig      `yaml:"pdp"`
	Denial   denialConfig   `yaml:"denial"`
	Approval approvalConfig `yaml:"approval"`
	// Obligations that the gateway carries out.
	Obligations obligationsConfig `yaml:"obligations"`
	Identity    identityConfig    `yaml:"identity"`
	Catalog     catalogConfig     `yaml:"catalog"`
	MaxBody     int64             `yaml:"max_body"`
	MaxReply    int64             `yaml:"max_reply"`
	Servers     []serverConfig    `yaml:"servers"`
}

type pdpConfig struct {
	URL     string `yaml:"url"`
	KeyFile string `yaml:"key_file"`
	// ServiceKeyFile is of the key for an Access Request Service of another origin.
	ServiceKeyFile string   `yaml:"service_key_file"`
	Timeout        duration `yaml:"timeout"`
	Failures       uint32   `yaml:"failures"`
	Pause          duration `yaml:"pause"`
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

type denialConfig struct {
	Code       int  `yaml:"code" number:"signed"`
	OlderCode  int  `yaml:"older_code" number:"signed"`
	HTTPStatus int  `yaml:"http_status"`
	Conceal    bool `yaml:"conceal"`
}

type identityConfig struct {
	identity.Config `yaml:",inline"`
	// Local is who connects from this host without a credential.
	Local *identity.Process `yaml:"local"`
}

type catalogConfig struct {
	Accepted bool     `yaml:"accepted"`
	File     string   `yaml:"accepted_file"`
	Refresh  duration `yaml:"refresh"`
	TTL      duration `yaml:"ttl"`
}

type serverConfig struct {
	Name          string            `yaml:"name"`
	URL           string            `yaml:"url"`
	Path          string            `yaml:"path"`
	BearerFile    string            `yaml:"bearer_file"`
	Header        map[string]string `yaml:"header"`
	coaz.Upstream `yaml:",inline"`
	Asks          asks `yaml:",inline"`
}

// A duration is read as [yamldoc.ParseDuration] does.
type duration = time.Duration

// defaults of a configuration.
func newConfig() *config {
	return &config{
		Listen:  "127.0.0.1:8090",
		State:   "mcp-gateway-state",
		PDP:     pdpConfig{Timeout: duration(500 * time.Millisecond), Failures: 5, Pause: duration(time.Second)},
		Denial:  denialConfig{Code: enforce.DefaultDenial.Code, OlderCode: enforce.DefaultDenial.OlderCode, HTTPStatus: enforce.DefaultDenial.Status},
		Catalog: catalogConfig{Refresh: duration(time.Minute), TTL: duration(10 * time.Second)},
		Approval: approvalConfig{
			Hold: duration(30 * time.Second), Wait: duration(10 * time.Minute), Refused: duration(15 * time.Minute),
			PerCaller: 20, Pending: 1000, PassingMeta: []string{"claudecode/toolUseId"},
		},
	}
}

// readConfig reads and checks a file.
func readConfig(file string) (*config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c := newConfig()
	document, err := yamldoc.Parse(file, text)
	if err != nil {
		return nil, err
	}
	faults := yamldoc.Errors(document.Decode(c))
	if err := c.check(); err != nil {
		return nil, errors.Join(faults, fmt.Errorf("%s: %w", file, err))
	}
	return c, faults
}

var serverName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// check reports every fault.
func (c *config) check() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !isURL(c.PDP.URL) {
		fault("pdp.url: there is no URL of a policy decision point")
	}
	if c.PDP.Timeout <= 0 || c.PDP.Pause <= 0 || c.PDP.Failures == 0 {
		fault("pdp: timeout, pause and failures are more than zero")
	}
	if c.Denial.HTTPStatus != 200 && c.Denial.HTTPStatus != 403 {
		fault("denial.http_status: %d is neither 200 nor 403", c.Denial.HTTPStatus)
	}
	if c.Approval.Page != "" && (!isURL(c.Approval.Page) || !strings.Contains(c.Approval.Page, "{task}")) {
		fault("approval.page: %q is no URL with {task} in it", c.Approval.Page)
	}
	if c.Approval.Hold < 0 || c.Approval.Wait < 0 || c.Approval.Refused < 0 || c.Approval.PerCaller < 0 || c.Approval.Pending < 0 {
		fault("approval: hold, wait, refused, pending_per_caller and pending are not negative")
	}
	if c.Obligations.NotificationURL != "" && !isURL(c.Obligations.NotificationURL) {
		fault("obligations.notification_url: %q is no URL", c.Obligations.NotificationURL)
	}
	if c.Identity.Local != nil && c.Identity.Local.ID == "" {
		fault("identity.local: it has an id")
	}
	if c.Identity.MTLS != nil && c.TLSCA == "" {
		fault("identity.mtls: tls_client_ca is whose certificates are taken")
	}
	if c.Catalog.Refresh < 0 || c.Catalog.TTL < 0 {
		fault("catalog: refresh and ttl are not negative")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		fault("tls_cert and tls_key go together")
	}
	if host, _, err := net.SplitHostPort(c.Listen); err != nil {
		fault("listen: %w", err)
	} else if !isLoopback(host) && !c.Insecure && (c.TLSCert == "" || c.Identity.Local != nil) {
		fault("listen: other hosts can reach %s: it needs tls_cert, tls_key and no identity.local, or insecure: true", c.Listen)
	}
	if host, _, err := net.SplitHostPort(c.Admin); c.Admin != "" && (err != nil || !isLoopback(host)) {
		fault("admin_listen: %q is no address that only this host can reach", c.Admin)
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && !isLoopback(host) && len(c.Hosts) == 0 {
		fault("hosts: there are none, so that no request is addressed to the gateway")
	}
	names, paths := map[string]bool{}, map[string]bool{}
	for i, s := range c.Servers {
		at := fmt.Sprintf("servers[%d]", i)
		if !serverName.MatchString(s.Name) || names[s.Name] {
			fault("%s: the name %q is taken, or not of a-z, 0-9, _ and -", at, s.Name)
		}
		if s.URL != "" && !isURL(s.URL) {
			fault("%s: %q is no URL of a server", at, s.URL)
		}
		if s.Path != "" && (!strings.HasPrefix(s.Path, "/") || strings.ContainsAny(s.Path, "{} ")) {
			fault("%s: %q is no path", at, s.Path)
		}
		for _, page := range s.Asks.Pages {
			if u, err := url.Parse(page); err != nil || !isURL(page) || page != u.Scheme+"://"+u.Host {
				fault("%s: pages: %q is no origin, like https://auth.example.com", at, page)
			}
		}
		if paths[s.path()] {
			fault("%s: the path %s is taken", at, s.path())
		}
		names[s.Name], paths[s.path()] = true, true
	}
	if len(c.Servers) == 0 {
		fault("servers: there are none")
	}
	return errors.Join(errs...)
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tls says whose certificates clients may have.
func (c *config) tls() (*tls.Config, error) {
	if c.TLSCA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("tls_client_ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("tls_client_ca: %s holds no certificate", c.TLSCA)
	}
	return &tls.Config{ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12}, nil
}

// path is where the server's endpoint is.
func (s *serverConfig) path() string {
	if s.Path != "" {
		return s.Path
	}
	return "/" + s.Name + "/mcp"
}

// header returns the gateway's credentials at the server.
func (s *serverConfig) header() (map[string]string, error) {
	header := map[string]string{}
	for name, value := range s.Header {
		header[name] = value
	}
	if s.BearerFile != "" {
		token, err := readSecret(s.BearerFile)
		if err != nil {
			return nil, fmt.Errorf("servers: %s: %w", s.Name, err)
		}
		header["Authorization"] = "Bearer " + token
	}
	return header, nil
}

// readSecret reads one line; without a file there is none.
func readSecret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("secret: %w", err)
	}
	secret := string(bytes.TrimSpace(text))
	if secret == "" || strings.ContainsAny(secret, "\r\n") {
		return "", fmt.Errorf("secret: %s does not hold one line", file)
	}
	return secret, nil
}
