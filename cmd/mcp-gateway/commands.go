package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/policy-service/policy-service/cmd/internal/tuning"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/gateway"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/setup"
)

// settings are the flags that all commands have.
type settings struct {
	Config    string `help:"YAML file of the configuration." default:"mcp-gateway.yaml" placeholder:"FILE"`
	State     string `help:"State directory, in place of the file's." placeholder:"DIR"`
	LogFormat string `help:"Format of the program's own log: ${enum}." enum:"text,json" default:"text"`
}

// read reads the configuration and sets its log.
func (s *settings) read(listen string, files bool) (*gateway.Config, error) {
	cfg, err := readConfig(s.Config, listen, files)
	if err != nil {
		return nil, err
	}
	cfg.Log, cfg.Version = gateway.NewLogger(os.Stderr, s.LogFormat), version
	cfg.State, err = gateway.StateDir(s.State, s.Config, cfg.State)
	return cfg, err
}

// readConfig reads and checks a configuration file: see [gateway.Parse].
func readConfig(file, listen string, files bool) (*gateway.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return gateway.Parse(file, text, listen, files)
}

// readGateway implements [setup.Read].
func readGateway(file string, text []byte) (*setup.Gateway, error) {
	cfg, err := gateway.Parse(file, text, "", false)
	if err != nil {
		return nil, err
	}
	return &setup.Gateway{Listen: cfg.Listen, Endpoints: cfg.Paths(), Observes: cfg.ObservesByDefault()}, nil
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
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	cfg.Reload = &gateway.Reload{Requested: hangups, Read: func() (*gateway.Config, error) { return c.read(c.Listen, true) }}
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
	return cfg.WriteEndpoints(os.Stdout)
}
