// Policy-service is an AuthZEN policy decision point with Cedar policies. Each answer
// is a pure function of a named revision of the policies, and is on disk before the
// service sends it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/cmd/internal/environment"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/faults"
)

// Exit codes, the same for every command.
const (
	exitOK        = 0  // done, or allow
	exitFailure   = 1  // usage, or something went wrong
	exitInvalid   = 2  // policies that do not compile
	exitDeny      = 3  // eval: deny; log replay: the candidate allows more
	exitIntegrity = 4  // log: it was tampered with or damaged
	exitStorage   = 74 // serve: the decision log can no longer record (EX_IOERR)
)

// An exitError ends the program with its code. Everything has been printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

type cli struct {
	Serve        serveCmd        `cmd:"" help:"Serve AuthZEN requests over HTTP."`
	Init         initCmd         `cmd:"" help:"Create a policy store from an embedded one."`
	Validate     validateCmd     `cmd:"" help:"Check a policy store, and report all faults."`
	Test         testCmd         `cmd:"" help:"Run the tests of a policy store, with coverage."`
	Eval         evalCmd         `cmd:"" help:"Evaluate one request without a server."`
	Reload       reloadCmd       `cmd:"" help:"Reload the policy store and the settings of a running server."`
	Log          logCmd          `cmd:"" help:"Read, export and verify the decision log."`
	Approvals    approvalsCmd    `cmd:"" help:"List and decide access requests."`
	Capabilities capabilitiesCmd `cmd:"" help:"List, issue and revoke capabilities."`
	Access       accessCmd       `cmd:"" help:"Show access documents."`
	Console      consoleCmd      `cmd:"" help:"Print a link that signs a person in to the console."`
	NotifyTest   notifyTestCmd   `cmd:"" help:"Send a test message in the ways of console.notify."`
	Config       configCmd       `cmd:"" help:"Show the settings of the server."`
	Keys         keysCmd         `cmd:"" help:"Create API keys."`
	Healthcheck  healthcheckCmd  `cmd:"" help:"Check that a running server is ready."`
	Version      versionCmd      `cmd:"" help:"Print the version."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal does not wait
	os.Exit(run(ctx, os.Args[1:]))
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string) int {
	if err := environment.UnsetEmpty(variablePrefix); err != nil {
		return reportUsage(err)
	}
	parser := newParser(ctx)
	command, err := parser.Parse(args)
	if err == nil {
		err = checkEnvironment(parser.Model, os.Environ())
	}
	if err != nil {
		return reportUsage(err)
	}
	return report(command.Run())
}

func newParser(ctx context.Context) *kong.Kong {
	return kong.Must(new(cli), append(values(),
		kong.Name("policy-service"),
		kong.Description("An AuthZEN policy decision point on Cedar policies. Every answer is on disk before it is given."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.DefaultEnvars("POLICY_SERVICE"),
		kong.Configuration(yamlFile),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)...)
}

// reportUsage prints the errors of a command line, its environment or its
// configuration file.
func reportUsage(err error) int {
	help := "policy-service --help"
	var usage *kong.ParseError
	if errors.As(err, &usage) {
		if command := usage.Context.Selected(); command != nil {
			help = command.FullPath() + " --help"
		}
	}
	if err.Error() == "unknown flag --version" {
		help = "policy-service version"
	}
	if hint := enumHint(err); hint != "" {
		err = fmt.Errorf("%w%s", err, hint)
	}
	say(err, "see "+help)
	return exitFailure
}

// report prints an error and returns its exit code.
func report(err error) int {
	var silent exitError
	var faults faults.List
	var damage *decisionlog.IntegrityError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &silent):
		return int(silent)
	case errors.As(err, &faults):
		printLine(os.Stderr, faults)
		return exitInvalid
	case errors.As(err, &damage):
		say(err, hint(err))
		return exitIntegrity
	case errors.Is(err, decisionlog.ErrFailed):
		say(err, "what is on disk is known after a restart; policy-service log verify checks it")
		return exitStorage
	}
	say(err, hint(err))
	return exitFailure
}

// say prints an error and its hint, if it has one.
func say(err error, hint string) {
	printLine(os.Stderr, "policy-service:", err)
	if hint != "" {
		printLine(os.Stderr, "hint:", hint)
	}
}

// hint returns what a user can do about an error, or "".
func hint(err error) string {
	switch {
	case errors.Is(err, decisionlog.ErrLocked):
		return "a server runs on this state directory, or its log is being read: wait, or name another with --state"
	case errors.Is(err, decisionlog.ErrRolledBack):
		return "restore it, or go on from what is there with --log.accept-rollback REASON"
	case errors.Is(err, syscall.EADDRINUSE):
		return "name another address with --listen or --admin-listen; port 0 picks a free one"
	}
	return ""
}
