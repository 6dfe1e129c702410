package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations/plain"
)

type logQueryCmd struct {
	stateFlag
	filterFlags
	Limit int  `help:"How many entries to show, the last ones." default:"100" placeholder:"N"`
	JSON  bool `name:"json" help:"Print the entries as they were recorded."`
}

func (c *logQueryCmd) Run(ctx context.Context) error {
	log, err := c.open()
	if err != nil {
		return err
	}
	defer log.Close()
	last, err := log.last(ctx, c.filter(), c.Limit)
	if err != nil {
		return err
	}
	return show(os.Stdout, last, c.JSON, true)
}

// show prints entries, as they are or as a table.
func show(w io.Writer, lines [][]byte, raw, header bool) error {
	if raw {
		for _, line := range lines {
			if _, err := fmt.Fprintf(w, "%s\n", line); err != nil {
				return err
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if header {
		fmt.Fprintln(table, "INDEX\tTIME\tTENANT\tSUBJECT\tACTION\tRESOURCE\tDECISION\tPOLICIES\tID")
	}
	for _, line := range lines {
		decisions, err := decisionlog.ReadDecisions(line)
		if err != nil {
			return err
		}
		for _, d := range decisions {
			fmt.Fprintln(table, row(d))
		}
	}
	return table.Flush()
}

// row is a decision in the table. What callers chose is printed such that it
// cannot do anything to a terminal.
func row(d decisionlog.Decided) string {
	subject, action, resource := d.Subject.String(), d.Action, d.Resource.String()
	if subject == "" && action == "" {
		action = string(d.Kind)
	}
	decision, policies := "", ""
	if d.Result != nil {
		decision, policies = decisionlog.Word(d.Result.Decision), strings.Join(d.Result.Policies, " ")
		if shadow := d.Result.Shadow; shadow != nil && shadow.Decision != d.Result.Decision {
			decision += ", shadow " + decisionlog.Word(shadow.Decision)
		}
	}
	cells := []string{fmt.Sprint(d.Index), d.Time.Format(time.RFC3339), d.Tenant, subject, action, resource, decision, policies, d.ID}
	for i, cell := range cells {
		cells[i] = plain.Text(cell)
	}
	return strings.Join(cells, "\t")
}

type logTailCmd struct {
	stateFlag
	filterFlags
	Last  int           `help:"How many of the entries there are to begin with." default:"10" placeholder:"N"`
	Every time.Duration `help:"How often to look for more." default:"500ms" placeholder:"DURATION"`
	JSON  bool          `name:"json" help:"Print the entries as they were recorded."`
}

// Run shows the last entries, and then those that come, until it is
// interrupted.
func (c *logTailCmd) Run(ctx context.Context) error {
	f := c.filter()
	lines, err := c.lines(func(log logSource) ([][]byte, error) { return log.last(ctx, f, c.Last) })
	for header := true; err == nil; header = false {
		if err = show(os.Stdout, lines, c.JSON, header); err != nil {
			return err
		}
		if len(lines) > 0 {
			n, _ := decisionlog.Index(lines[len(lines)-1])
			f.From = n + 1
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Every):
		}
		lines, err = c.lines(func(log logSource) ([][]byte, error) { return added(ctx, log, f) })
		if errors.Is(err, decisionlog.ErrLocked) { // by a server that is about to answer, or to end
			lines, err = nil, nil
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// lines reads something of the log, which is not kept open: a server could not
// start.
func (c *logTailCmd) lines(read func(logSource) ([][]byte, error)) ([][]byte, error) {
	log, err := c.open()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return read(log)
}

// added returns the entries that f selects.
func added(ctx context.Context, log logSource, f decisionlog.Filter) (lines [][]byte, err error) {
	err = eachLine(ctx, log, f, func(line []byte) error {
		lines = append(lines, line)
		return nil
	})
	return lines, err
}
