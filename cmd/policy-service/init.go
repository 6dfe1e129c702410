package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/policy-service/policy-service/policies"
)

type initCmd struct {
	Dir string `arg:"" help:"Directory to make; one that is there must be empty."`
	Set string `help:"Embedded policy set to start from: ${enum}." enum:"agent-tools,certification,todo,gateways,search" default:"agent-tools"`
}

func (c *initCmd) Run() error {
	if entries, err := os.ReadDir(c.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", c.Dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	set, err := policies.Set(c.Set)
	if err != nil {
		return err
	}
	if err := os.CopyFS(c.Dir, set); err != nil {
		return err
	}
	err = fs.WalkDir(set, ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			fmt.Println("  " + filepath.Join(c.Dir, path))
		}
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Printf(`
Edit the policies, then:
  policy-service validate %[1]s          every fault at once
  policy-service test %[1]s              the tests beside them
  policy-service serve --policies %[1]s  changes are in force within two seconds
`, c.Dir)
	return err
}
