package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

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
		if err := printJSON(report); err != nil || response.StatusCode == http.StatusOK {
			return err
		}
		return exitError(exitInvalid)
	}
	if report.Loaded {
		fmt.Printf("loaded: %d policies, %d entities\nrevision %s\n%s", report.Status.Policies, report.Status.Entities, report.Status.Revision, shadowLine(report.Shadow))
	}
	if keys := report.Settings.Restart; len(keys) > 0 {
		fmt.Printf("a restart is needed for %s\n", strings.Join(keys, ", "))
	}
	problem := report.Settings.Problem
	if problem != "" {
		fmt.Fprintln(os.Stderr, "policy-service: settings not read again:", problem)
	}
	switch {
	case !report.Loaded:
		return report.Faults
	case problem != "":
		return exitError(exitInvalid)
	}
	return nil
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
