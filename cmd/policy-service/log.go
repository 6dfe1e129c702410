package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
)

type logCmd struct {
	Export  logExportCmd  `cmd:"" help:"Write the entries as JSON, one a line."`
	Verify  logVerifyCmd  `cmd:"" help:"Prove that no entry was changed, removed or reordered."`
	Explain logExplainCmd `cmd:"" help:"Tell how a logged decision came about."`
}

type logExportCmd struct {
	State string `help:"Directory of the decision log, on which a server may be running; ${default} without it." default:"policy-service-state" placeholder:"DIR"`
	From  int64  `help:"Index of the first entry." default:"0" placeholder:"INDEX"`
	Until int64  `help:"Index after the last entry; all without it." default:"-1" placeholder:"INDEX"`
}

// Validate is called before Run.
func (c *logExportCmd) Validate() error {
	if c.From < 0 {
		return fmt.Errorf("--from must not be negative: %d", c.From)
	}
	return nil
}

func (c *logExportCmd) Run(ctx context.Context) error {
	return exportLog(ctx, c.State, os.Stdout, c.From, c.Until)
}

// exportLog exports the log in state, whether or not a server runs on it.
func exportLog(ctx context.Context, state string, w io.Writer, from, until int64) error {
	reader, err := decisionlog.OpenReadOnly(state)
	if errors.Is(err, decisionlog.ErrLocked) {
		return exportRunning(ctx, state, w, from, until)
	}
	if err != nil {
		return explained(err, state)
	}
	defer reader.Close()
	_, err = reader.Export(ctx, w, from, until)
	return err
}

type logVerifyCmd struct {
	State string `help:"Directory of the decision log, on which a server may be running; ${default} without it." default:"policy-service-state" placeholder:"DIR"`
	JSON  bool   `name:"json" help:"Print the report as JSON."`
}

func (c *logVerifyCmd) Run(ctx context.Context) error {
	report, err := decisionlog.Verify(ctx, c.State)
	switch {
	case errors.Is(err, decisionlog.ErrLocked):
		report, err = verifyRunning(ctx, c.State)
	case err != nil:
		err = explained(err, c.State)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(report)
	}
	_, err = fmt.Printf("verified: %d entries, %d revisions, no gap\nroot %s\n", report.Entries, len(report.Revisions), report.Root)
	return err
}

// explained says of a missing file what is missing.
func explained(err error, state string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no decision log in %s (serve makes one; name its directory with --state)", state)
	}
	return err
}

// verifyRunning verifies the log of the server that runs on state: it asks for
// the head, and recomputes the root from the entries alone.
func verifyRunning(ctx context.Context, state string) (*decisionlog.Report, error) {
	body, err := getAdmin(ctx, state, pdp.PathLogCheckpoint)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var head decisionlog.Head
	if err := json.UnmarshalRead(body, &head); err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(exportRunning(ctx, state, w, 0, head.Size)) }()
	return decisionlog.VerifyExport(r, head)
}

// exportRunning exports the log of the server that runs on state.
func exportRunning(ctx context.Context, state string, w io.Writer, from, until int64) error {
	path := fmt.Sprintf("%s?from=%d", pdp.PathLogExport, from)
	if until >= 0 {
		path += fmt.Sprintf("&until=%d", until)
	}
	body, err := getAdmin(ctx, state, path)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(w, body)
	return err
}
