package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations/plain"
)

type logQueryCmd struct {
	stateFlag
	filterFlags
	Limit int   `help:"Number of entries, counted from the end of the log; 0 means all." default:"100" placeholder:"N"`
	Look  int64 `env:"-" help:"Number of entries to read, counted from the end, matching or not; at most 100,000. Default: all." default:"0" placeholder:"N"`
	JSON  bool  `name:"json" help:"Print the recorded lines."`
}

func (c *logQueryCmd) Run(ctx context.Context) error {
	log, err := c.open()
	if err != nil {
		return err
	}
	defer log.Close()
	out, found := &view{w: os.Stdout, raw: c.JSON, header: true}, summary{}
	err = linesOf(func(w io.Writer) (err error) {
		if c.Limit == 0 {
			return log.export(ctx, w, c.filter())
		}
		found, err = log.last(ctx, w, c.filter(), c.Limit, c.Look)
		return err
	}, out.add)
	if err := errors.Join(err, out.flush()); err != nil {
		return err
	}
	switch {
	case c.Look > 0:
		c.tellLooked(out.entries, found)
	case out.entries == 0:
		return c.tellNone(ctx, log)
	case found.total != "" && found.total != strconv.Itoa(out.entries):
		fmt.Fprintf(os.Stderr, "%d of %s shown, the last; --limit 0 for all\n", out.entries, counted(found.total))
	}
	return nil
}

// tellLooked prints how far a query with --look came.
func (c *logQueryCmd) tellLooked(entries int, found summary) {
	from, until, _ := strings.Cut(found.looked, "-")
	fmt.Fprintf(os.Stderr, "%d found in entries from %s up to, not including, %s", entries, from, until)
	if found.more {
		fmt.Fprintf(os.Stderr, "; older ones may match: --until %s", from)
	}
	fmt.Fprintln(os.Stderr)
}

// counted returns a total for people.
func counted(total string) string { return strings.Replace(total, "+", " or more", 1) }

// tellNone prints, for a query without results, the values that exist.
func (c *logQueryCmd) tellNone(ctx context.Context, log logSource) error {
	var ends []time.Time
	see := func(line []byte) error {
		var entry struct {
			Time time.Time `json:"time"`
		}
		err := json.Unmarshal(line, &entry)
		ends = append(ends, entry.Time)
		return cmp.Or(err, errEnough)
	}
	if err := eachLine(ctx, log, decisionlog.Filter{}, see); err == nil {
		fmt.Fprintln(os.Stderr, "no entry matches: the log has none that you may read")
		return nil
	} else if !errors.Is(err, errEnough) {
		return err
	}
	var all summary
	err := linesOf(func(w io.Writer) (err error) {
		all, err = log.last(ctx, w, decisionlog.Filter{}, 1, 0)
		return err
	}, see)
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	fmt.Fprintf(os.Stderr, "no entry matches: the log has %s entries, from %s to %s\n",
		counted(all.total), ends[0].Format(decisionlog.TimeLayout), ends[len(ends)-1].Format(decisionlog.TimeLayout))
	return nil
}

// errEnough ends the reading of lines.
var errEnough = errors.New("enough lines")

// Validate is called before Run.
func (c *logQueryCmd) Validate() error {
	if c.Limit < 0 {
		return fmt.Errorf("--limit must not be negative: %d", c.Limit)
	}
	if c.Look < 0 || c.Look > 100_000 || c.Look > 0 && c.Limit == 0 {
		return fmt.Errorf("--look must be between 0 and 100,000, and not with --limit 0: %d", c.Look)
	}
	return c.filterFlags.Validate()
}

// A view prints entries as lines or as a table. It computes the columns of a long
// table anew now and then, and keeps no long part of it.
type view struct {
	w           io.Writer
	raw, header bool
	entries     int
	table       *tabwriter.Writer
}

const viewRows = 1000

func (v *view) add(line []byte) error {
	v.entries++
	if v.raw {
		_, err := fmt.Fprintf(v.w, "%s\n", line)
		return err
	}
	decisions, err := decisionlog.ReadDecisions(line)
	if err != nil {
		return err
	}
	v.begin()
	for _, d := range decisions {
		fmt.Fprintln(v.table, row(d))
	}
	if v.entries%viewRows == 0 {
		return v.table.Flush()
	}
	return nil
}

// begin prints the header of the table once.
func (v *view) begin() {
	if v.table != nil {
		return
	}
	v.table = tabwriter.NewWriter(v.w, 0, 0, 2, ' ', 0)
	if v.header {
		fmt.Fprintln(v.table, "INDEX\tTIME\tKIND\tTENANT\tSUBJECT\tACTION\tRESOURCE\tDECISION\tPOLICIES\tEVENT\tTASK\tAPPROVER\tTEMPLATE\tCOMMENT\tID")
	}
}

// flush prints the remaining rows, and the header if there was no entry.
func (v *view) flush() error {
	if v.raw {
		return nil
	}
	v.begin()
	return v.table.Flush()
}

// show prints some entries.
func show(w io.Writer, lines [][]byte, raw, header bool) error {
	v := &view{w: w, raw: raw, header: header}
	for _, line := range lines {
		if err := v.add(line); err != nil {
			return err
		}
	}
	return v.flush()
}

// row returns the row of a decision. Text that callers chose cannot control the
// terminal.
func row(d decisionlog.DecisionRow) string {
	decision, policies := "", ""
	if d.Result != nil {
		decision, policies = decisionlog.DecisionString(d.Result.Decision), strings.Join(d.Result.Policies, " ")
		if shadow := d.Result.Shadow; shadow != nil && shadow.Decision != d.Result.Decision {
			decision += ", shadow " + decisionlog.DecisionString(shadow.Decision)
		}
	}
	a := d.Approval
	cells := []string{
		fmt.Sprint(d.Index), d.Time.Format(decisionlog.TimeLayout), string(d.Kind), d.Tenant, d.Subject.String(), d.Action, d.Resource.String(),
		decision, policies, a.Event, a.Task, strings.Join(a.Approvers, " "), a.Template, cmp.Or(a.Comment, a.Reason), d.ID,
	}
	for i, cell := range cells {
		cells[i] = plain.Text(cell)
	}
	return strings.Join(cells, "\t")
}

type logTailCmd struct {
	stateFlag
	filterFlags
	Last  int           `help:"Number of existing entries to print first; at least 1." default:"10" placeholder:"N"`
	Every time.Duration `help:"Interval between polls." default:"500ms" some:"" placeholder:"DURATION"`
	JSON  bool          `name:"json" help:"Print the recorded lines."`
}

// Validate is called before Run.
func (c *logTailCmd) Validate() error {
	if c.Last < 1 {
		return fmt.Errorf("--last must be at least 1: %d", c.Last)
	}
	return c.filterFlags.Validate()
}

// Run shows the last entries, and then new ones, until it is interrupted.
func (c *logTailCmd) Run(ctx context.Context) error {
	f := c.filter()
	lines, err := c.lines(func(log logSource) ([][]byte, error) { return last(ctx, log, f, c.Last) })
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

// lines reads entries of the log. It does not keep the log open, because a server
// could not start.
func (c *logTailCmd) lines(read func(logSource) ([][]byte, error)) ([][]byte, error) {
	log, err := c.open()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return read(log)
}

// last returns the last n entries that f selects.
func last(ctx context.Context, log logSource, f decisionlog.Filter, n int) (lines [][]byte, err error) {
	err = linesOf(func(w io.Writer) error {
		_, err := log.last(ctx, w, f, n, 0)
		return err
	}, func(line []byte) error {
		lines = append(lines, line)
		return nil
	})
	return lines, err
}

// added returns the entries that f selects.
func added(ctx context.Context, log logSource, f decisionlog.Filter) (lines [][]byte, err error) {
	err = eachLine(ctx, log, f, func(line []byte) error {
		lines = append(lines, line)
		return nil
	})
	return lines, err
}
