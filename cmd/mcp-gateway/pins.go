package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/gateway"
	"github.com/policy-service/policy-service/obligations/plain"
)

type pinsCmd struct {
	List   pinsListCmd   `cmd:"" help:"List the tools of all servers: the pinned definition, and the listed one if it differs."`
	Accept pinsAcceptCmd `cmd:"" help:"Accept a definition. This ends the quarantine of the tool."`
}

// open opens the catalog, also while gateways run.
func (s *settings) open() (*gateway.Config, *catalog.Catalog, error) {
	cfg, err := s.read("", false)
	if err != nil {
		return nil, nil, err
	}
	pins, err := cfg.OpenCatalog()
	return cfg, pins, err
}

type pinsListCmd struct {
	settings
	Definitions bool `help:"Also print the definitions."`
}

func (c *pinsListCmd) Run() error {
	cfg, pins, err := c.open()
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, server := range cfg.Servers {
		known, err := pins.Pins(server.Name)
		if err != nil {
			return err
		}
		for _, pin := range known {
			state := "pinned"
			if err := pin.Err(); err != nil {
				state = err.Error()
			}
			fmt.Fprint(out, plain.Lines(fmt.Sprintf("%s\t%q\t%s\t%s\t%s\n", pin.Server, pin.Tool, state, pin.Digest, pin.ListedDigest)))
			if c.Definitions {
				fmt.Fprint(out, plain.Lines(fmt.Sprintf("  pinned\t%q\n  listed\t%q\n", pin.Definition, pin.Listed)))
			}
		}
	}
	return out.Flush()
}

type pinsAcceptCmd struct {
	settings
	Server string `arg:"" help:"Name of the server."`
	Tool   string `arg:"" help:"Name of the tool."`
	Digest string `arg:"" help:"Digest of the definition, as list prints it."`
}

func (c *pinsAcceptCmd) Run() error {
	_, pins, err := c.open()
	if err != nil {
		return err
	}
	return pins.Accept(c.Server, c.Tool, c.Digest)
}
