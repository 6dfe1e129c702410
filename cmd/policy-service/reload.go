package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/pdp"
)

type reloadCmd struct {
	State string `help:"State directory of the running server; ${default} without it." default:"policy-service-state" placeholder:"DIR"`
	JSON  bool   `name:"json" help:"Print the report as JSON."`
}

func (c *reloadCmd) Run(ctx context.Context) error {
	response, err := askAdmin(ctx, c.State, http.MethodPost, pdp.PathReload)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusUnprocessableEntity {
		return refusal(response)
	}
	var report pdp.ReloadReport
	if err := json.UnmarshalRead(response.Body, &report); err != nil {
		return fmt.Errorf("read report: %s: %w", response.Status, err)
	}
	if c.JSON {
		err = printJSON(report)
	} else if report.Loaded {
		_, err = fmt.Printf("loaded: %d policies, %d entities\nrevision %s\n%s", report.Status.Policies, report.Status.Entities, report.Status.Revision, shadowLine(report.Shadow))
	}
	switch {
	case err != nil || report.Loaded:
		return err
	case c.JSON:
		return exitError(exitInvalid)
	}
	return report.Faults
}

// shadowLine tells how the shadow policies stand; "" without any.
func shadowLine(s evaluation.Status) string {
	switch {
	case s.Stale:
		return "shadow refused: " + s.Problem + "\n"
	case s.Revision != "":
		return "shadow " + s.Revision + "\n"
	}
	return ""
}
