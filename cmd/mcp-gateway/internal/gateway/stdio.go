package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// RunStdio runs an MCP server as a child process and guards it on standard input
// and output, until either side ends. Server is its name in the configuration. If
// the child ends with a failure, the error is an [exec.ExitError].
func RunStdio(ctx context.Context, cfg *Config, server string, command []string) (err error) {
	g, err := join(cfg, &ownState{state: cfg.State, server: server})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.closeAbandoned(); err != nil {
		return err
	}
	callers, err := g.callers.at(cfg.resourceOf(server))
	if err != nil {
		return err
	}
	if _, err := callers.environment(ctx); err != nil {
		return fmt.Errorf("identify the caller: %w", err)
	}
	g.warnObserved([]string{server})
	child := exec.Command(command[0], command[1:]...)
	child.Stderr = os.Stderr
	child.Env = slices.DeleteFunc(os.Environ(), isCredential)
	pipe := proxy.NewPipe(proxy.PipeConfig{
		Server: server, Command: child, Gate: g.gate, Identify: callers.environment, In: os.Stdin, Out: os.Stdout,
		MaxBody: cfg.MaxBody, MaxReply: cfg.MaxReply, FromServer: &serverMessages{g, server}, Log: g.log,
	})
	var group errgroup.Group
	work, stop := context.WithCancel(ctx)
	g.start(work, &group, func(ctx context.Context, _ *enforce.Call, m *wire.Message) (*wire.Message, error) {
		return pipe.Execute(ctx, m)
	})
	g.checkPDPKey(work)
	serving, end := context.WithCancel(ctx)
	group.Go(func() error {
		defer end()
		select {
		case <-g.trail.Failed():
			return g.trail.Err()
		case <-work.Done():
			return nil
		}
	})
	err = pipe.Run(serving)
	stop()
	return errors.Join(err, group.Wait())
}

// isCredential reports whether a variable is the caller's token, which is for
// the gateway alone.
func isCredential(variable string) bool {
	return strings.HasPrefix(variable, identity.TokenVariable+"=")
}
