package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

type evalCmd struct {
	Policies string `help:"Directory of the policy store. Default: the embedded example agent-tools." placeholder:"DIR"`
	Tenant   string `help:"Tenant of the request, for a store with tenants." placeholder:"NAME"`
	Request  string `help:"File with an AuthZEN evaluation request; - means standard input." default:"-" placeholder:"FILE"`
	Explain  bool   `help:"Explain the decision and, for a denial, what would change it."`
	JSON     bool   `name:"json" help:"Print the outcome as JSON."`
}

func (c *evalCmd) Run() error {
	if c.Policies == "" {
		say(errors.New("no --policies: the embedded example "+exampleSet+" decides"), "")
	}
	compiled, err := compile(c.Policies, c.Tenant)
	if err != nil {
		return err
	}
	request, err := readRequest(c.Request)
	if err != nil {
		return err
	}
	environment := snapshot.Environment{Time: time.Now().UTC()}
	var allowed bool
	if c.Explain {
		allowed, err = c.explain(compiled, request, environment)
	} else {
		allowed, err = c.decide(compiled, request, environment)
	}
	if err == nil && !allowed {
		return exitError(exitDeny)
	}
	return err
}

func (c *evalCmd) decide(s *snapshot.Snapshot, request *authzen.EvaluationRequest, env snapshot.Environment) (allowed bool, err error) {
	outcome, err := s.Decide(request, env)
	if err != nil {
		return false, err
	}
	if c.JSON {
		return outcome.Decision, printJSON(result{s.Revision(), outcome.Result(), outcome.Context})
	}
	return outcome.Decision, printOutcome(outcome)
}

func (c *evalCmd) explain(s *snapshot.Snapshot, request *authzen.EvaluationRequest, env snapshot.Environment) (allowed bool, err error) {
	explanation, err := explain.Explain(s, request, env)
	if err != nil {
		return false, err
	}
	return explanation.Decision, printExplanation(explanation, c.JSON)
}

func printExplanation(e *explain.Explanation, asJSON bool) error {
	if asJSON {
		return printJSON(e)
	}
	return printLines(os.Stdout, e.Text)
}

// A result is the JSON output of eval: the result in the log, and the context for the
// PEP.
type result struct {
	Revision string `json:"revision"`
	decisionlog.Result
	Context *authzen.DecisionContext `json:"context,omitempty"`
}

func readRequest(file string) (*authzen.EvaluationRequest, error) {
	if file == "-" && isatty.IsTerminal(os.Stdin.Fd()) {
		fmt.Fprintln(os.Stderr, "policy-service: the request is read from standard input, until Ctrl-D; --request FILE reads a file")
	}
	body, err := readInput(file)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	var request authzen.EvaluationRequest
	return &request, authzen.Unmarshal(body, &request)
}

// readInput reads a file, or standard input for -.
func readInput(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(file)
}

func printOutcome(o *snapshot.Outcome) error {
	return printLines(os.Stdout, func(out io.Writer) error { return writeOutcome(out, o) })
}

func writeOutcome(out io.Writer, o *snapshot.Outcome) error {
	line := func(name string, values ...string) {
		fmt.Fprintf(out, "  %-11s%s\n", name, strings.ReplaceAll(strings.Join(values, " "), "\n", " "))
	}
	fmt.Fprintln(out, decisionlog.DecisionString(o.Decision))
	for _, id := range o.Policies {
		line("policy", id)
	}
	for _, e := range o.Errors {
		line("error", strings.TrimSpace(e.Policy+" "+e.Message))
	}
	for _, obligation := range o.Obligations {
		line("obligation", obligation.Type, string(obligation.Properties))
	}
	if o.Context != nil {
		for _, reason := range []authzen.Reason{o.Context.ReasonUser, o.Context.ReasonAdmin} {
			for _, language := range slices.Sorted(maps.Keys(reason)) {
				line("reason", reason[language])
			}
		}
	}
	return nil
}
