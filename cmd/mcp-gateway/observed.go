package main

import (
	"context"
	"os"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/observation"
)

type observedCmd struct {
	settings
	JSON      bool   `name:"json" help:"Print JSON."`
	Decisions string `help:"State directory of the PDP, for the policies that determined the decisions. The PDP may be running." placeholder:"DIR"`
	Clear     bool   `help:"Also empty the summary."`
}

func (c *observedCmd) Run(ctx context.Context) error {
	cfg, err := c.read("", false)
	if err != nil {
		return err
	}
	rows, err := cfg.ReadObserved(ctx, c.Decisions, c.Clear)
	if err != nil {
		return err
	}
	return observation.Write(os.Stdout, rows, c.JSON)
}
