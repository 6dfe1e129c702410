package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A config is what the file of --config says. docs/reference/mcp-gateway.md
// explains each key.
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

	listenKey string // where Listen was said
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
		Listen: "127.0.0.1:8090", listenKey: "listen",
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

// readConfig reads and checks a file, with the address to listen on in place of
// the file's, unless it is "". Each of its faults has a place in the file; those
// of the address say --listen. With files, the files that it names are looked
// at, too.
func readConfig(file, listen string, files bool) (*config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c := newConfig()
	document, err := yamldoc.Parse(file, text)
	if err != nil {
		return nil, err
	}
	decoded := document.Decode(c)
	if listen != "" {
		c.Listen, c.listenKey = listen, "--listen"
	}
	wrong := c.check()
	if files {
		wrong = errors.Join(wrong, c.checkFiles())
	}
	if all := yamldoc.Errors(document.Settings(decoded, wrong)); all != nil {
		return nil, all
	}
	return c, nil
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// tls says whose certificates clients may have.
func (c *config) tls() (*tls.Config, error) {
	if c.TLSCA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.TLSCA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", c.TLSCA)
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
		return "", err
	}
	secret := string(bytes.TrimSpace(text))
	if secret == "" || strings.ContainsAny(secret, "\r\n") {
		return "", fmt.Errorf("%s does not hold one line", file)
	}
	return secret, nil
}
