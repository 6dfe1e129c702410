package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/explain"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

type logExplainCmd struct {
	stateFlag
	ID   string `arg:"" help:"Decision-ID of the answer. For item n of a batch, append .n."`
	JSON bool   `name:"json" help:"Print the explanation as JSON."`
}

func (c *logExplainCmd) Run(ctx context.Context) error {
	logged, err := c.find(ctx)
	if err != nil {
		return err
	}
	explanation, err := c.explain(logged)
	if err != nil {
		return err
	}
	return printExplanation(explanation, c.JSON)
}

// explain repeats the decision with the policies that made it.
func (c *logExplainCmd) explain(logged *replay.Logged) (*explain.Explanation, error) {
	archive, err := decisionlog.ReadArchive(c.State, logged.Revision)
	if err != nil {
		return nil, err
	}
	snapshots, err := snapshot.CompileLogged(archive)
	if err != nil { // not the fault of any store there is, so that it is no Faults
		return nil, fmt.Errorf("the policies that decided do not compile in this version:\n%v", err)
	}
	compiled, err := snapshots.For(logged.Tenant)
	if err != nil {
		return nil, fmt.Errorf("decision %s is a denial because no policies were asked: %w", logged.ID, err)
	}
	return replay.Explain(compiled, logged)
}

// find returns the decision with the id.
func (c *logExplainCmd) find(ctx context.Context) (*replay.Logged, error) {
	entryID, _, _ := strings.Cut(c.ID, ".")
	entry, err := c.findEntry(ctx, entryID)
	if err != nil {
		return nil, err
	}
	decisions, err := replay.MaskedDecisions(entry)
	if err != nil {
		return nil, fmt.Errorf("decision %s: %w", entryID, err)
	}
	for i := range decisions {
		if decisions[i].ID == c.ID {
			return &decisions[i], nil
		}
	}
	if entry.Kind == decisionlog.KindEvaluations {
		return nil, fmt.Errorf("%s is a batch of %d decisions: name one, the first is %[1]s.0", entryID, len(decisions))
	}
	return nil, fmt.Errorf("%s is no batch", entryID)
}

// findEntry returns the entry of a log that has the id.
func (c *logExplainCmd) findEntry(ctx context.Context, id string) (found *decisionlog.Entry, err error) {
	log, err := c.open()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	err = eachLine(ctx, log, decisionlog.Filter{ID: id}, func(line []byte) (err error) {
		found, err = replay.ReadEntry(line)
		return err
	})
	if err == nil && found == nil {
		err = fmt.Errorf("there is no decision %s in %s", id, c.State)
	}
	return found, err
}
