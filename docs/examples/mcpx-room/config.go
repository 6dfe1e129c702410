package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A Config is the configuration file.
type Config struct {
	Listen       string           `yaml:"listen"` // on loopback: a proxy in front of it has the certificate
	PDP          string           `yaml:"pdp"`    // URL of its main listener
	Desk         string           `yaml:"desk"`   // URL of its admin listener, where people decide
	State        string           `yaml:"state"`  // file of calls that wait
	Topics       map[string]Topic `yaml:"topics"`
	Participants []Participant    `yaml:"participants" list:"some"`
}

// A Topic says how people are asked there.
type Topic struct {
	// Elicit holds a call and sends a form (ADR-002). Otherwise the caller is told at once that a person
	// has to decide, and gets the result later under the same id (ADR-001).
	Elicit bool `yaml:"elicit"`
	// Edit names arguments that a form lets people change. The template of the approval says so, too.
	Edit []string `yaml:"edit"`
}

// A Participant is known by a token, of which the room knows the SHA-256.
type Participant struct {
	ID     string `yaml:"id"`
	Type   string `yaml:"type"` // of the entity, as policies know it
	Name   string `yaml:"name"` // for people; the id by default
	SHA256 string `yaml:"sha256"`
}

func (p *Participant) subject() authzen.Subject { return authzen.Subject{Type: p.Type, ID: p.ID} }

var (
	validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`) // no colon: tools are OWNER:TOOL
	validHash = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

func readConfig(file string) (*Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	document, err := yamldoc.Parse(file, text)
	if err != nil {
		return nil, err
	}
	cfg := &Config{Listen: "127.0.0.1:8090", PDP: "http://127.0.0.1:8080", Desk: "http://127.0.0.1:8081", State: "mcpx-room.db"}
	decoded := document.Decode(cfg)
	return cfg, yamldoc.Errors(document.Settings(decoded, errors.Join(cfg.check()...)))
}

func (c *Config) check() (faults []error) {
	fault := func(is bool, reason string, path ...string) {
		if is {
			faults = append(faults, &yamldoc.SettingError{Path: path, Reason: reason})
		}
	}
	host, _, err := net.SplitHostPort(c.Listen)
	fault(err != nil || !net.ParseIP(host).IsLoopback(), "must be an address on loopback, because tokens are sent in clear", "listen")
	empty := sha256.Sum256(nil)
	fault(len(c.Topics) == 0, "must name a topic", "topics")
	for name, topic := range c.Topics {
		fault(slices.ContainsFunc(topic.Edit, func(name string) bool { return slices.Contains(formMembers, name) }), "must not be one of the form's own members", "topics", name, "edit")
		fault(!validName.MatchString(name), "must be a name of letters, digits, dots, dashes and underscores", "topics", name)
	}
	seen := map[string]bool{gateway: true, hex.EncodeToString(empty[:]): true}
	for i, p := range c.Participants {
		path := func(key string) []string { return []string{"participants", strconv.Itoa(i), key} }
		fault(!validName.MatchString(p.ID) || seen[p.ID], "must be a name of letters, digits, dots, dashes and underscores that no other has", path("id")...)
		fault(!validName.MatchString(p.Type), "must be the entity type of the participant", path("type")...)
		fault(!validHash.MatchString(p.SHA256) || seen[p.SHA256], "must be the SHA-256 of a token that no other has, as 64 hexadecimal digits", path("sha256")...)
		seen[p.ID], seen[p.SHA256] = true, true
	}
	return faults
}

// participant returns the participant with a token, or nil.
func (c *Config) participant(token string) *Participant {
	sum := sha256.Sum256([]byte(token))
	return c.find(func(p *Participant) bool { return p.SHA256 == hex.EncodeToString(sum[:]) })
}

// named returns the participant of a name, or nil.
func (c *Config) named(id string) *Participant {
	return c.find(func(p *Participant) bool { return p.ID == id })
}

func (c *Config) find(is func(*Participant) bool) *Participant {
	for i := range c.Participants {
		if is(&c.Participants[i]) {
			return &c.Participants[i]
		}
	}
	return nil
}

// name is what people call a participant.
func (c *Config) name(id string) string {
	if p := c.named(id); p != nil && p.Name != "" {
		return p.Name
	}
	return fmt.Sprint(id)
}
