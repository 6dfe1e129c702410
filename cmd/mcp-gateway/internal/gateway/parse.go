package gateway

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// Parse parses and checks the text of a configuration file. A listen address other
// than "" replaces the address in the file. Errors have a place in the file; those of
// the replaced address name --listen instead. If files is set, Parse also checks the
// files that the configuration names.
func Parse(file string, text []byte, listen string, files bool) (*Config, error) {
	cfg := NewConfig()
	document, err := yamldoc.Parse(file, text)
	if err != nil {
		return nil, err
	}
	decoded := document.Decode(cfg)
	listenKey := "listen"
	if listen != "" {
		cfg.Listen, listenKey = listen, "--listen"
	}
	invalid := cfg.Check(listenKey)
	if files {
		invalid = errors.Join(invalid, cfg.CheckFiles())
	}
	if all := yamldoc.Errors(document.Settings(decoded, invalid)); all != nil {
		return nil, all
	}
	return cfg, nil
}

// NewLogger returns the program's own log, in the format json or text.
func NewLogger(w io.Writer, format string) *slog.Logger {
	options := &slog.HandlerOptions{ReplaceAttr: plain.Attr}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// WriteEndpoints writes the endpoints, one a line: the servers, the path, and of a
// single server its URL and its mode if that is not enforce.
func (c *Config) WriteEndpoints(w io.Writer) error {
	observed := c.observes()
	for _, s := range c.Servers {
		mode := ""
		if observed[s.Name] {
			mode = "\tmode observe"
		}
		if _, err := fmt.Fprintf(w, "%s\t%s\t%s%s\n", s.Name, s.Endpoint(), s.URL, mode); err != nil {
			return err
		}
	}
	for _, e := range c.Endpoints {
		if _, err := fmt.Fprintf(w, "%s\t%s\n", strings.Join(e.Servers, ","), e.Path); err != nil {
			return err
		}
	}
	return nil
}

// Paths returns the paths of the endpoints by server.
func (c *Config) Paths() map[string]string {
	all := make(map[string]string)
	for i := range c.Servers {
		all[c.Servers[i].Name] = c.Servers[i].Endpoint()
	}
	return all
}
