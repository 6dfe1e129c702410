package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations/plain"
)

type logVerifyCmd struct {
	stateFlag
	Checkpoint string `help:"File with an earlier checkpoint. The log must contain all of its entries." placeholder:"FILE" xor:"what"`
	Bundle     string `help:"Bundle to verify in place of the log." placeholder:"FILE" xor:"what"`
	Proof      string `help:"Proof to verify in place of the log." placeholder:"FILE" xor:"what"`
	Key        string `help:"File with public keys, one a line. Default: the keys in the state directory, which prove nothing against a person who can write there." placeholder:"FILE"`
	JSON       bool   `name:"json" help:"Print the report as JSON."`
}

func (c *logVerifyCmd) Run(ctx context.Context) error {
	switch {
	case c.Bundle != "":
		return c.verifyBundle()
	case c.Proof != "":
		return c.verifyProof()
	}
	report, err := c.verify(ctx)
	if err != nil {
		return err
	}
	if c.Checkpoint != "" {
		if err := c.verifySince(ctx); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(report)
	}
	_, err = fmt.Printf("verified: %s, %s, %s\nroot %s\n", entries(report.Entries), plain.Count(len(report.Revisions), "revision", "revisions"), gaps(report), report.Root)
	return err
}

func entries(n int64) string { return plain.Count(n, "entry", "entries") }

func gaps(r *decisionlog.Report) string {
	switch {
	case r.OtherTenants > 0:
		return "no gap but for " + entries(r.OtherTenants) + " of other tenants or that were pruned"
	case r.Pruned > 0:
		return "no gap but for " + entries(r.Pruned) + " that were pruned"
	}
	return "no gap"
}

// verify verifies the whole log.
func (c *logVerifyCmd) verify(ctx context.Context) (*decisionlog.Report, error) {
	report, err := decisionlog.Verify(ctx, c.State)
	if errors.Is(err, decisionlog.ErrLocked) {
		return c.verifyRunning(ctx)
	}
	return report, explained(err, c.State)
}

// verifyRunning verifies the log of the server that has the state directory open. It
// reads all entries, and recomputes the root from them and from the hashes of removed
// entries.
func (c *logVerifyCmd) verifyRunning(ctx context.Context) (*decisionlog.Report, error) {
	file, err := os.CreateTemp("", "policy-service-*.zip")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := logServer(c.State).bundle(ctx, file, decisionlog.Filter{}); err != nil {
		return nil, err
	}
	report, err := c.verifyFile(file)
	if err != nil {
		return nil, err
	}
	whole := &decisionlog.Report{Entries: report.Size, Root: report.Root, Revisions: report.Revisions}
	if missing := report.Size - report.Entries; report.Selection.Tenants != nil {
		whole.OtherTenants = missing
	} else {
		whole.Pruned = missing
	}
	return whole, nil
}

func (c *logVerifyCmd) verifyFile(file *os.File) (*decisionlog.BundleReport, error) {
	keys, err := c.keys()
	if err != nil {
		return nil, err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	return decisionlog.VerifyBundle(file, size, keys)
}

func (c *logVerifyCmd) verifyBundle() error {
	file, err := os.Open(c.Bundle)
	if err != nil {
		return err
	}
	defer file.Close()
	report, err := c.verifyFile(file)
	if err != nil {
		return c.keysNamed(err)
	}
	if c.JSON {
		return printJSON(report)
	}
	_, err = fmt.Printf("verified: %s (%d to %d) of the %d in %s\nroot %s\n",
		entries(report.Entries), report.First, report.Last, report.Size, report.Origin, report.Root)
	return err
}

func (c *logVerifyCmd) verifyProof() error {
	text, err := os.ReadFile(c.Proof)
	if err != nil {
		return err
	}
	var proof decisionlog.Proof
	if err := json.Unmarshal(text, &proof); err != nil {
		return fmt.Errorf("read proof: %w", err)
	}
	now, err := c.check(&proof)
	if err != nil {
		return c.keysNamed(err)
	}
	if c.JSON {
		return printJSON(now)
	}
	if proof.Earlier == "" {
		return printLines(os.Stdout, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "verified: entry %d is in %s\n%s\n", proof.Index, now.Origin, proof.Line)
			return err
		})
	}
	_, err = fmt.Printf("verified: %s continues the checkpoint, with %s\nroot %s\n", now.Origin, entries(now.Size), now.Root)
	return err
}

// verifySince verifies that the log continues a checkpoint.
func (c *logVerifyCmd) verifySince(ctx context.Context) error {
	earlier, err := os.ReadFile(c.Checkpoint)
	if err != nil {
		return err
	}
	log, err := c.open()
	if err != nil {
		return err
	}
	defer log.Close()
	proof, err := log.proveSince(ctx, earlier)
	if err != nil {
		return err
	}
	_, err = c.check(proof)
	return err
}

func (c *logVerifyCmd) check(proof *decisionlog.Proof) (*decisionlog.Checkpoint, error) {
	keys, err := c.keys()
	if err != nil {
		return nil, err
	}
	return proof.Verify(keys)
}

func (c *logVerifyCmd) keys() ([]string, error) {
	if c.Key != "" {
		return readKeys(c.Key)
	}
	keys, err := logKeys(c.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there are no public keys of a log in %s: name a file of them with --key (log keys prints them on the log's host)", c.State)
	}
	return keys, err
}

// keysNamed adds to the error of a signature that the keys in the state directory do
// not verify that other keys may exist.
func (c *logVerifyCmd) keysNamed(err error) error {
	var damage *decisionlog.IntegrityError
	if c.Key != "" || !errors.As(err, &damage) {
		return err
	}
	return fmt.Errorf("%w (by the public keys in %s; --key names a file of others)", err, c.State)
}

func readKeys(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read public keys: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// logKeys reads the public keys that a log stores.
func logKeys(state string) ([]string, error) {
	return readKeys(filepath.Join(state, decisionlog.PublicKeys))
}
