// Mcp-gateway stands between clients and servers of the Model Context Protocol.
// It asks an AuthZEN policy decision point before each call, and where a person
// must approve, the call waits until they do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/cmd/internal/environment"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/setup"
	"github.com/policy-service/policy-service/obligations/plain"
)

// version is set by the Makefile's build.
var version = "dev"

const about = `Stands between MCP clients and MCP servers, asks an AuthZEN policy decision point before each call, and has a call wait while a person must approve it.

Write a configuration, try it, serve it:

  pdp: {url: "http://127.0.0.1:8080"}
  identity: {local: {type: user, id: alice}}
  servers:
    - {name: files, url: "http://127.0.0.1:3001/mcp"}

  mcp-gateway check --config gateway.yaml
  mcp-gateway serve --config gateway.yaml
  mcp-gateway stdio --config gateway.yaml --server files -- mcp-server-filesystem /srv`

type cli struct {
	Init     setup.Command `cmd:"" help:"Put the gateway between MCP clients and their servers, in observe mode."`
	Serve    serveCmd      `cmd:"" help:"Serve MCP over HTTP, with one endpoint for each configured server."`
	Stdio    stdioCmd      `cmd:"" help:"Run an MCP server, and guard it on standard input and output."`
	Check    checkCmd      `cmd:"" help:"Check a configuration, and report all errors."`
	Pins     pinsCmd       `cmd:"" help:"List pinned tool definitions, and accept changed ones."`
	Observed observedCmd   `cmd:"" help:"Summarise the calls of servers in observe mode: what enforcement would do with them."`
	Version  versionCmd    `cmd:"" help:"Print the version."`
}

// variablePrefix begins the names of the environment variables that are ours.
const variablePrefix = "MCP_GATEWAY_"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal does not wait
	os.Exit(run(ctx, os.Args[1:]))
}

// run carries out one command line and returns its exit code: 0, 1, or that of
// the server that stdio has run.
func run(ctx context.Context, args []string) int {
	err := environment.UnsetEmpty(variablePrefix)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcp-gateway:", err)
		return 1
	}
	parser := newParser(ctx)
	command, err := parser.Parse(args)
	if err == nil {
		err = environment.Check(parser.Model, variablePrefix, []string{identity.TokenVariable}, os.Environ())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcp-gateway:", plain.Lines(err.Error()))
		fmt.Fprintln(os.Stderr, "hint: see mcp-gateway --help")
		return 1
	}
	err = command.Run()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended) && ended.ExitCode() >= 0:
		return ended.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "mcp-gateway:", plain.Lines(err.Error()))
		return 1
	}
	return 0
}

func newParser(ctx context.Context) *kong.Kong {
	return kong.Must(new(cli),
		kong.Name("mcp-gateway"),
		kong.Description(about),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.DefaultEnvars("MCP_GATEWAY"),
		kong.Bind(setup.Read(readGateway)),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
}

type versionCmd struct{}

func (versionCmd) Run() error {
	goVersion := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
	}
	_, err := fmt.Println("mcp-gateway", version, goVersion)
	return err
}
