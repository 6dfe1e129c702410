package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/authzen"
)

type logExplainCmd struct {
	stateFlag
	ID   string `arg:"" help:"Decision-ID of the answer. For item n of a batch, append .n."`
	JSON bool   `name:"json" help:"Print the explanation as JSON."`
}

func (c *logExplainCmd) Run(ctx context.Context) error {
	entryID, _, _ := strings.Cut(c.ID, ".")
	entry, err := c.findEntry(ctx, entryID)
	if err != nil {
		return err
	}
	if entry.Kind == decisionlog.KindCapability && c.ID == entryID {
		return c.printTransition(entry)
	}
	logged, explanation, err := replay.ExplainID(entry, c.ID, replay.Archived(func(revision string) (map[string][]byte, error) {
		return decisionlog.ReadArchive(c.State, revision)
	}))
	if err != nil {
		return err
	}
	if err := printExplanation(explanation, c.JSON); err != nil || c.JSON || logged.Capability == nil {
		return err
	}
	_, err = fmt.Print(describeVerified(logged.Capability))
	return err
}

// printTransition prints what an entry of kind capability records.
func (c *logExplainCmd) printTransition(e *decisionlog.Entry) error {
	if c.JSON {
		return printJSON(e.Request)
	}
	var transition struct {
		Event      string           `json:"event"`
		Capability string           `json:"capability"`
		By         *authzen.Subject `json:"by"`
	}
	var after authzen.Capability
	if err := errors.Join(json.Unmarshal(e.Request, &transition), json.Unmarshal(e.Request, &after)); err != nil {
		return fmt.Errorf("entry %s: %w", e.ID, err)
	}
	if after.ID, after.Tenant = transition.Capability, e.Tenant; after.Constraints != nil {
		after.Expires = after.Constraints.ValidUntil
	}
	by := ""
	if transition.By != nil {
		by = fmt.Sprintf("%-10s %s\n", "by", named(*transition.By))
	}
	_, err := fmt.Printf("%-10s %s\n%s%s", "event", plain.Text(transition.Event), by, describeCapability(&after))
	return err
}

// describeVerified describes the capability that covered a request.
func describeVerified(v *authzen.VerifiedCapability) string {
	uses := ""
	if v.UsesLeft > 0 {
		uses = ", " + plain.Count(v.UsesLeft, "use", "uses") + " left with this one"
	}
	return fmt.Sprintf("capability %s, bound to the %s%s\n", plain.Text(v.ID), plain.Text(v.Bound), uses)
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
