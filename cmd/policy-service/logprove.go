package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

type logProveCmd struct {
	stateFlag
	Index      *int64 `help:"Index of the entry to prove." placeholder:"INDEX" xor:"what" required:""`
	Checkpoint string `help:"File with an earlier checkpoint, for a proof that the log continues it." placeholder:"FILE" xor:"what" required:""`
}

func (c *logProveCmd) Run(ctx context.Context) error {
	log, err := c.open()
	if err != nil {
		return err
	}
	defer log.Close()
	proof, err := c.prove(ctx, log)
	if err != nil {
		return err
	}
	return printJSON(proof)
}

func (c *logProveCmd) prove(ctx context.Context, log logSource) (*decisionlog.Proof, error) {
	if c.Index != nil {
		return log.proveEntry(ctx, *c.Index)
	}
	earlier, err := os.ReadFile(c.Checkpoint)
	if err != nil {
		return nil, err
	}
	return log.proveSince(ctx, earlier)
}

type logCheckpointCmd struct {
	stateFlag
	JSON bool `name:"json" help:"Print the checkpoint as JSON."`
}

func (c *logCheckpointCmd) Run(ctx context.Context) error {
	log, err := c.open()
	if err != nil {
		return err
	}
	defer log.Close()
	checkpoint, err := log.checkpoint(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(checkpoint)
	}
	_, err = fmt.Print(checkpoint.Note)
	return err
}

type logKeysCmd struct{ stateFlag }

func (c *logKeysCmd) Run() error {
	keys, err := logKeys(c.State)
	if err != nil {
		return explained(err, c.State)
	}
	for _, key := range keys {
		fmt.Println(key)
	}
	return nil
}

type logRotateKeyCmd struct {
	stateFlag
	JSON bool `name:"json" help:"Print JSON: the new key, and the checkpoint that the old key signed."`
}

// Run prints the new public key. A running server changes the key itself.
func (c *logRotateKeyCmd) Run(ctx context.Context) error {
	change, err := c.rotate(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(change)
	}
	_, err = fmt.Println(change.Key)
	return err
}

func (c *logRotateKeyCmd) rotate(ctx context.Context) (*decisionlog.KeyChange, error) {
	if _, err := logKeys(c.State); err != nil {
		return nil, explained(err, c.State) // or Open would make a log
	}
	log, err := decisionlog.Open(c.State, decisionlog.Config{})
	if errors.Is(err, decisionlog.ErrLocked) {
		return logServer(c.State).rotateKey(ctx)
	}
	if err != nil {
		return nil, err
	}
	change, err := log.RotateKey(ctx)
	return change, errors.Join(err, log.Close())
}
