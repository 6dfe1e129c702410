package main

import (
	"cmp"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/observation"
	"github.com/policy-service/policy-service/obligations/plain"
)

type observedCmd struct {
	settings
	JSON  bool `name:"json" help:"Print JSON."`
	Clear bool `help:"Also empty the summary."`
}

func (c *observedCmd) Run() error {
	cfg, err := c.read("", false)
	if err != nil {
		return err
	}
	summary, err := cfg.OpenObserved()
	if err != nil {
		return err
	}
	rows, err := summary.Rows()
	if err != nil {
		return err
	}
	show := showObserved
	if c.JSON {
		show = writeObserved
	}
	if err := show(rows); err != nil || !c.Clear {
		return err
	}
	return summary.Clear()
}

func writeObserved(rows []observation.Row) error {
	if rows == nil {
		rows = []observation.Row{}
	}
	if err := json.MarshalWrite(os.Stdout, rows, jsontext.WithIndent("  ")); err != nil {
		return err
	}
	_, err := fmt.Println()
	return err
}

// showObserved prints a table. Clients and servers chose some of its texts.
func showObserved(rows []observation.Row) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "SERVER\tMETHOD\tNAME\tCALLER\tCALLS\tLAST\tWOULD\tREASON\tDECISION")
	for _, r := range rows {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.Server, plain.Text(r.Method), plain.Text(r.Name), plain.Text(r.Caller),
			r.Calls, r.Last.UTC().Format(time.RFC3339), cmp.Or(r.Refusal, "permitted"), plain.Text(r.Why), plain.Text(r.Decision))
	}
	return out.Flush()
}
