package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp"
)

type reloadCmd struct {
	State string `help:"State directory of the running server. Default: ${default}." default:"policy-service-state" placeholder:"DIR"`
	JSON  bool   `name:"json" help:"Print the report as JSON."`
}

func (c *reloadCmd) Run(ctx context.Context) error {
	base, err := adminURL(c.State)
	if err != nil {
		return err
	}
	report, code, err := c.reload(ctx, base)
	if err != nil {
		return err
	}
	return c.print(report, code)
}

// reload makes the server reload, and waits for the end, however long it takes.
func (c *reloadCmd) reload(ctx context.Context, base string) (*pdp.ReloadReport, int, error) {
	method, path := http.MethodPost, pdp.PathReload
	for {
		report, code, err := askReload(ctx, method, base+path)
		switch {
		case err != nil && method == http.MethodGet:
			return nil, 0, fmt.Errorf("%w: whether the reload has come to its end is not known, GET %s on the admin listener says it", err, path)
		case err != nil || code != http.StatusAccepted:
			return report, code, err
		}
		fmt.Fprintf(os.Stderr, "reading %s, for %.0f s\n", plain.Text(report.Reading), report.Seconds)
		method, path = http.MethodGet, fmt.Sprintf("%s?id=%d", pdp.PathReload, report.ID)
	}
}

// askReload requests a reload, or its state.
func askReload(ctx context.Context, method, url string) (*pdp.ReloadReport, int, error) {
	response, err := askURL(ctx, method, url, nil)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusUnprocessableEntity:
	default:
		return nil, 0, refusal(response)
	}
	report := new(pdp.ReloadReport)
	if err := json.UnmarshalRead(response.Body, report); err != nil {
		return nil, 0, fmt.Errorf("read report: %s: %w", response.Status, err)
	}
	return report, response.StatusCode, nil
}

func (c *reloadCmd) print(report *pdp.ReloadReport, code int) error {
	if c.JSON {
		if err := printJSON(report); err != nil || code == http.StatusOK {
			return err
		}
		return exitError(exitInvalid)
	}
	if report.Loaded {
		fmt.Printf("loaded: %s\nrevision %s\n%s", sizes(report.Status.Policies, report.Status.Entities), report.Status.Revision, shadowLine(report.Shadow))
	}
	if keys := report.Settings.Restart; len(keys) > 0 {
		fmt.Printf("a restart is needed for %s\n", strings.Join(keys, ", "))
	}
	problem := report.Settings.Problem
	if problem != "" {
		printLine(os.Stderr, "policy-service: settings not read again:", problem)
	}
	switch {
	case !report.Loaded:
		return report.Faults
	case problem != "":
		return exitError(exitInvalid)
	}
	return nil
}

// shadowLine describes the shadow policies; "" without any.
func shadowLine(s evaluation.Status) string {
	switch {
	case s.Stale:
		return "shadow refused: " + plain.Lines(s.Problem) + "\n"
	case s.Revision != "":
		return "shadow " + s.Revision + "\n"
	}
	return ""
}
