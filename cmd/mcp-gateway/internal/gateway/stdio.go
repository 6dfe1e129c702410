package gateway

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

// RunStdio runs an MCP server as a child process and guards it on standard input
// and output, until either side ends. Server is its name in the configuration. If
// the child ends with a failure, the error is an [exec.ExitError].
func RunStdio(ctx context.Context, cfg *Config, server string, command []string) (err error) {
	g, err := join(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if _, err := g.callers.environment(ctx); err != nil {
		return fmt.Errorf("nobody knows who calls: %w", err)
	}
	child := exec.Command(command[0], command[1:]...)
	child.Stderr = os.Stderr
	child.Env = slices.DeleteFunc(os.Environ(), isCredential)
	pipe := proxy.NewPipe(proxy.PipeConfig{
		Server: server, Command: child, Gate: g.gate, Identify: g.callers.environment, In: os.Stdin, Out: os.Stdout,
		MaxBody: cfg.MaxBody, MaxReply: cfg.MaxReply, OnNotification: g.onNotification, AllowRequest: g.policies[server].allowsMethod, Log: g.log,
	})
	g.execute[server] = pipe.Execute
	sweeps, stop := context.WithCancel(ctx)
	defer stop()
	go g.approvals.Run(sweeps)
	g.checkPDPKey(sweeps)
	return pipe.Run(ctx)
}

// isCredential reports whether a variable is the caller's token, which is for
// the gateway alone.
func isCredential(variable string) bool {
	return strings.HasPrefix(variable, identity.TokenVariable+"=")
}
