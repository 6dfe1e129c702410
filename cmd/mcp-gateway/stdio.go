package main

import (
	"context"
	"errors"
)

type stdioCmd struct {
	settings
	Server  string   `help:"Name of the server in the configuration." placeholder:"NAME"`
	Command []string `arg:"" help:"The server and its arguments, after --." passthrough:""`
}

func (c *stdioCmd) Run(ctx context.Context) error { return errors.ErrUnsupported }
