package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
)

type stdioCmd struct {
	settings
	Server  string   `help:"Name of the server in the configuration." required:"" placeholder:"NAME"`
	Command []string `arg:"" help:"The MCP server and its arguments, after --." passthrough:""`
}

// Run runs the server and stands between it and the client, until either ends.
func (c *stdioCmd) Run(ctx context.Context) (err error) {
	cfg, err := readConfig(c.Config, "", false)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(cfg.Servers, func(s serverConfig) bool { return s.Name == c.Server }) {
		return fmt.Errorf("%s: there is no server %q", c.Config, c.Server)
	}
	g, err := join(cfg, c.logger())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if _, err := g.callers.environment(ctx); err != nil {
		return fmt.Errorf("nobody knows who calls: %w", err)
	}
	command := c.Command
	if command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return errors.New("there is no server after --")
	}
	server := exec.Command(command[0], command[1:]...)
	server.Stderr = os.Stderr
	server.Env = slices.DeleteFunc(os.Environ(), isCredential)
	pipe := proxy.NewPipe(proxy.PipeConfig{
		Server: c.Server, Command: server, Gate: g.gate, Identify: g.callers.environment, In: os.Stdin, Out: os.Stdout,
		MaxBody: cfg.MaxBody, MaxReply: cfg.MaxReply, Heard: g.heard, MayAsk: g.asks[c.Server].may, Log: g.log,
	})
	g.execute[c.Server] = pipe.Execute
	sweeps, stop := context.WithCancel(ctx)
	defer stop()
	go g.approvals.Run(sweeps)
	g.introduce(sweeps)
	err = pipe.Run(ctx)
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() >= 0 {
		return exitError(ended.ExitCode())
	}
	return err
}

// isCredential reports whether a variable is the caller's token, which is for
// the gateway alone.
func isCredential(variable string) bool {
	return strings.HasPrefix(variable, identity.TokenVariable+"=")
}
