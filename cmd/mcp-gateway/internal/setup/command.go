package setup

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
)

// A Command is the command line of init.
type Command struct {
	Files   []string `arg:"" optional:"" help:"Configuration files of clients. Default: those of Claude Desktop, Claude Code, Cursor and VS Code, for the user and for the project in the working directory."`
	Dir     string   `help:"Directory of the gateway's configuration and policies. Default: mcp-gateway in the user's directory of configurations." placeholder:"DIR"`
	Write   bool     `help:"Write the files. Without it, init only shows what it would write."`
	Undo    bool     `help:"Restore the servers of the clients as they were before init."`
	PDP     string   `name:"pdp" help:"URL of the policy decision point." default:"http://127.0.0.1:8080" placeholder:"URL"`
	Listen  string   `help:"Address of the endpoints of HTTP servers." default:"127.0.0.1:8090" placeholder:"HOST:PORT"`
	User    string   `help:"Id of the caller in policies. Default: the name of the user." placeholder:"ID"`
	Include []string `help:"Names of HTTP servers to guard although a client may have to log in to them." placeholder:"NAME"`
}

// Run carries out the command.
func (c *Command) Run(read Read) error {
	cfg, err := c.config(read)
	if err != nil {
		return err
	}
	plan, err := New(*cfg)
	if err != nil {
		return err
	}
	if c.Undo {
		return plan.Undo(os.Stdout)
	}
	if err := plan.Guard(); err != nil {
		return err
	}
	if err := plan.Show(os.Stdout); err != nil || !plan.Changes() {
		return err
	}
	if !c.Write {
		if err := plan.ShowFiles(os.Stdout); err != nil {
			return err
		}
		_, err := fmt.Println("\nNothing is written yet. Write it with --write.")
		return err
	}
	if err := plan.Write(os.Stdout); err != nil {
		return err
	}
	return plan.Next(os.Stdout)
}

// config returns what to set up.
func (c *Command) config(read Read) (*Config, error) {
	if c.Write && c.Undo {
		return nil, errors.New("--write and --undo exclude each other")
	}
	dir := c.Dir
	if dir == "" {
		home, err := os.UserConfigDir()
		if err != nil {
			return nil, fmt.Errorf("there is no default directory: %w: set --dir", err)
		}
		dir = filepath.Join(home, "mcp-gateway")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	id := c.User
	if id == "" {
		who, err := user.Current()
		if err != nil {
			return nil, fmt.Errorf("the name of the user is not known: %w: set --user", err)
		}
		id = who.Username
	}
	return &Config{
		Dir: dir, Files: c.Files, Program: program, PDP: c.PDP, Listen: c.Listen, User: id, Include: c.Include, Read: read,
	}, nil
}
