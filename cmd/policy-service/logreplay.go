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

// Run decides again what was logged. A candidate that widens is exit code 3,
// an entry that its own policies do not give 4.
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
