package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/gateway"
	"github.com/policy-service/policy-service/obligations/plain"
)

type pinsCmd struct {
	List   pinsListCmd   `cmd:"" help:"List the definitions of all servers: the pinned one, and the listed one if it differs."`
	Accept pinsAcceptCmd `cmd:"" help:"Accept a definition, or all of a list. This ends the quarantine."`
	Forget pinsForgetCmd `cmd:"" help:"Forget definitions. The one that the server lists next is then the first."`
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

// checkList refuses the name of a list that no server has.
func checkList(cfg *gateway.Config, file, name string) error {
	server, _, _ := strings.Cut(name, "/")
	if err := checkServer(cfg, file, server); err != nil {
		return err
	}
	if lists := catalog.Lists(server); !slices.Contains(lists, name) {
		return fmt.Errorf("there is no list %q: want %s", name, strings.Join(lists, ", "))
	}
	return nil
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
		known, err := pins.AllPins(server.Name)
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
	Server string `arg:"" help:"Name of the server, for its tools, or SERVER/prompts, SERVER/resources, SERVER/templates or SERVER/instructions."`
	Tool   string `arg:"" optional:"" help:"Name of the tool or prompt, or URI of the resource."`
	Digest string `arg:"" optional:"" help:"Digest of the definition, as list prints it."`
	All    bool   `help:"Print how the listed definitions in quarantine differ, and accept these definitions after a question."`
	Yes    bool   `help:"Accept all without the question."`
}

func (c *pinsAcceptCmd) Run() error {
	if c.All == (c.Tool != "") || (c.Tool == "") != (c.Digest == "") {
		return errors.New("name a tool and the digest of its definition, or --all")
	}
	cfg, pins, err := c.open()
	if err != nil {
		return err
	}
	if err := checkList(cfg, c.Config, c.Server); err != nil {
		return err
	}
	if !c.All {
		return pins.Accept(c.Server, c.Tool, c.Digest)
	}
	return c.acceptAll(pins)
}

// acceptAll accepts what it has printed, and nothing that is listed meanwhile.
func (c *pinsAcceptCmd) acceptAll(pins *catalog.Catalog) error {
	known, err := pins.Pins(c.Server)
	if err != nil {
		return err
	}
	known = slices.DeleteFunc(known, func(p catalog.Pin) bool { return p.Err() == nil })
	if len(known) == 0 {
		fmt.Println("nothing is in quarantine")
		return nil
	}
	for _, pin := range known {
		fmt.Print(plain.Lines(fmt.Sprintf("%q %s\n", pin.Tool, pin.ListedDigest)))
		for _, line := range pin.Diff() {
			fmt.Print(plain.Lines(fmt.Sprintf("  %s\n", line)))
		}
	}
	if !c.Yes {
		fmt.Printf("accept %d definitions? [y/N] ", len(known))
		if answer, _ := bufio.NewReader(os.Stdin).ReadString('\n'); strings.TrimSpace(answer) != "y" {
			return errors.New("nothing is accepted")
		}
	}
	for _, pin := range known {
		err = errors.Join(err, pins.Accept(c.Server, pin.Tool, pin.ListedDigest))
	}
	return err
}

type pinsForgetCmd struct {
	settings
	Server string   `arg:"" help:"Name of the server or of the list, as for accept."`
	Tools  []string `arg:"" help:"Names of the tools."`
}

func (c *pinsForgetCmd) Run() error {
	cfg, pins, err := c.open()
	if err != nil {
		return err
	}
	if err := checkList(cfg, c.Config, c.Server); err != nil {
		return err
	}
	return pins.Forget(c.Server, c.Tools...)
}
