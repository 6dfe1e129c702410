package main

import (
	"context"
	"fmt"
	"os"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/replay"
)

type logReplayCmd struct {
	stateFlag
	filterFlags
	Candidate string `help:"Directory of the other policy store." placeholder:"DIR" required:""`
	JSON      bool   `name:"json" help:"Print the report as JSON."`
}

// Run repeats the logged decisions. The exit code is 3 if a candidate widens access,
// and 4 if the policies of an entry do not give its result.
func (c *logReplayCmd) Run(ctx context.Context) error {
	candidate, err := compileStore(c.Candidate)
	if err != nil {
		return err
	}
	log, err := c.open()
	if err != nil {
		return err
	}
	defer log.Close()
	replay := replay.New(candidate, func(revision string) (map[string][]byte, error) {
		return decisionlog.ReadArchive(c.State, revision)
	})
	if err := eachLine(ctx, log, c.filter(), replay.Add); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return c.print(replay.Report())
}

func (c *logReplayCmd) print(report *replay.Report) (err error) {
	if c.JSON {
		err = printJSON(report)
	} else {
		err = printLines(os.Stdout, report.Text)
	}
	switch {
	case err != nil:
		return err
	case len(report.Unfaithful) > 0:
		return exitError(exitIntegrity)
	case report.Widens():
		return exitError(exitDeny)
	}
	return nil
}
