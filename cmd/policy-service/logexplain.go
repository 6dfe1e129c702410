package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

type logExplainCmd struct {
	stateFlag
	ID   string `arg:"" name:"decision-id" help:"Decision-ID, of an item of a batch with .N behind it."`
	JSON bool   `name:"json" help:"Print the explanation as JSON."`
}

// Run explains a logged decision by the policies that made it.
func (c *logExplainCmd) Run(ctx context.Context) error {
	log, err := c.open()
	if err != nil {
		return err
	}
	defer log.Close()
	var found *decisionlog.Record
	err = eachLine(ctx, log, decisionlog.Filter{ID: c.ID}, func(line []byte) error {
		found = new(decisionlog.Record)
		return json.Unmarshal(line, found)
	})
	if err == nil && found == nil {
		err = decisionlog.ErrNoEntry
	}
	if err != nil {
		return fmt.Errorf("decision %s: %w", c.ID, err)
	}
	return c.explain(found)
}

func (c *logExplainCmd) explain(logged *decisionlog.Record) error {
	files, err := decisionlog.ReadArchive(c.State, logged.Revision)
	if err != nil {
		return fmt.Errorf("decision %s: %w", c.ID, err)
	}
	explanation, err := evaluation.ExplainLogged(files, logged, itemOf(c.ID))
	if err != nil {
		return fmt.Errorf("decision %s: %w", c.ID, err)
	}
	if c.JSON {
		return printJSON(explanation)
	}
	return explanation.Text(os.Stdout)
}

// itemOf returns the item that an id names, or -1.
func itemOf(id string) int {
	_, number, _ := strings.Cut(id, ".")
	item, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return item
}
