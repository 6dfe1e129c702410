package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

type logQueryCmd struct {
	stateFlag
	filterFlags
	Limit int  `help:"How many entries to show, the last ones; 0 shows all." default:"100" placeholder:"N"`
	JSON  bool `name:"json" help:"Print the entries as they were recorded."`
}

func (c *logQueryCmd) Run(ctx context.Context) error {
	log, err := c.open()
	if err != nil {
		return err
	}
	defer log.Close()
	var last [][]byte
	err = eachLine(ctx, log, c.filter(), func(line []byte) error {
		last = append(last, line)
		if c.Limit > 0 && len(last) > c.Limit {
			last = last[1:]
		}
		return nil
	})
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
		decision, policies = "deny", strings.Join(d.Result.Policies, " ")
		if d.Result.Decision {
			decision = "allow"
		}
	}
	cells := []string{fmt.Sprint(d.Index), d.Time.Format(time.RFC3339), d.Tenant, subject, action, resource, decision, policies, d.ID}
	for i, cell := range cells {
		cells[i] = strings.Map(visible, cell)
	}
	return strings.Join(cells, "\t")
}

func visible(r rune) rune {
	if r < ' ' || r >= 0x7f && r < 0xa0 {
		return '\uFFFD'
	}
	return r
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
	var last [][]byte
	f := c.filter()
	from, err := c.more(ctx, f, func(line []byte) {
		last = append(last, line)
		last = last[max(0, len(last)-c.Last):]
	})
	if err == nil {
		err = show(os.Stdout, last, c.JSON, true)
	}
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Every):
		}
		var added [][]byte
		f.From = from
		from, err = c.more(ctx, f, func(line []byte) { added = append(added, line) })
		if err == nil {
			err = show(os.Stdout, added, c.JSON, false)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// more calls fn with each entry there is, and returns where to go on from. The
// log is not kept open: a server could not start.
func (c *logTailCmd) more(ctx context.Context, f decisionlog.Filter, fn func(line []byte)) (from int64, err error) {
	log, err := c.open()
	if err != nil {
		return 0, err
	}
	defer log.Close()
	from = f.From
	err = eachLine(ctx, log, f, func(line []byte) error {
		fn(line)
		if n, ok := decisionlog.Index(line); ok {
			from = n + 1
		}
		return nil
	})
	return from, err
}
