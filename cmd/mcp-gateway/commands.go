package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/cmd/internal/tuning"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/gateway"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// settings are the flags that all commands have.
type settings struct {
	Config    string `help:"YAML file of the configuration." default:"mcp-gateway.yaml" placeholder:"FILE"`
	State     string `help:"State directory, in place of the file's." placeholder:"DIR"`
	LogFormat string `help:"Format of the program's own log: ${enum}." enum:"text,json" default:"text"`
}

func (s *settings) logger() *slog.Logger {
	options := &slog.HandlerOptions{ReplaceAttr: plain.Attr}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

// read reads the configuration and sets its log.
func (s *settings) read(listen string, files bool) (*gateway.Config, error) {
	cfg, err := readConfig(s.Config, listen, files)
	if err != nil {
		return nil, err
	}
	cfg.Log, cfg.Version = s.logger(), version
	cfg.State, err = stateDir(s.State, s.Config, cfg.State)
	return cfg, err
}

// readConfig reads and checks a configuration file. A listen address other than
// "" replaces the address in the file. Errors have a place in the file; those of
// the replaced address name --listen instead. If files is set, readConfig also
// checks the files that the configuration names.
func readConfig(file, listen string, files bool) (*gateway.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return parseConfig(file, text, listen, files)
}

// parseConfig is readConfig for the text of a file.
func parseConfig(file string, text []byte, listen string, files bool) (*gateway.Config, error) {
	cfg := gateway.NewConfig()
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

type serveCmd struct {
	settings
	Listen string `help:"Address for clients, in place of the file's. Port 0 selects a free port." placeholder:"HOST:PORT"`
}

func (c *serveCmd) Run(ctx context.Context) error {
	cfg, err := c.read(c.Listen, true)
	if err != nil {
		return err
	}
	tuning.Serve()
	return gateway.Run(ctx, cfg)
}

type stdioCmd struct {
	settings
	Server  string   `help:"Name of the server in the configuration." required:"" placeholder:"NAME"`
	Command []string `arg:"" help:"The MCP server and its arguments, after --." passthrough:""`
}

func (c *stdioCmd) Run(ctx context.Context) error {
	cfg, err := c.read("", false)
	if err != nil {
		return err
	}
	if err := checkServer(cfg, c.Config, c.Server); err != nil {
		return err
	}
	command := c.Command
	if command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return errors.New("the command of the server is missing: write it after --")
	}
	return gateway.RunStdio(ctx, cfg, c.Server, command)
}

func checkServer(cfg *gateway.Config, file, name string) error {
	if !slices.Contains(cfg.ServerNames(), name) {
		return fmt.Errorf("%s: there is no server %q", file, name)
	}
	return nil
}

type checkCmd struct {
	settings
}

func (c *checkCmd) Run() error {
	cfg, err := c.read("", true)
	if err != nil {
		return err
	}
	observed := cfg.Observed()
	for _, s := range cfg.Servers {
		mode := ""
		if slices.Contains(observed, s.Name) {
			mode = "\tmode observe"
		}
		fmt.Printf("%s\t%s\t%s%s\n", s.Name, s.Endpoint(), s.URL, mode)
	}
	for _, e := range cfg.Endpoints {
		fmt.Printf("%s\t%s\n", strings.Join(e.Servers, ","), e.Path)
	}
	return nil
}
