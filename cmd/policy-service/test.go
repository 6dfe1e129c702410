package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/policytest"
)

type testCmd struct {
	Dir       string  `arg:"" optional:"" help:"Directory of the policy store. Without it the embedded example is tested."`
	FromLog   string  `help:"Write the entry of the decision log in this file (- for standard input), a line as log export has it, as a test." placeholder:"FILE"`
	FailUnder float64 `help:"Fail when the tests try less than so many percent of the policies." placeholder:"PERCENT"`
	JSON      bool    `name:"json" help:"Print the report as JSON." xor:"form"`
	JUnit     bool    `name:"junit" help:"Print the report as JUnit XML." xor:"form"`
}

func (c *testCmd) Run() error {
	if c.FromLog != "" {
		return printTest(c.FromLog)
	}
	store, err := policyStore(c.Dir)
	if err != nil {
		return err
	}
	snapshots, err := compileStore(c.Dir)
	if err != nil {
		return err
	}
	passed := true
	for _, tenant := range tenantsOrOne(snapshots) {
		report, err := runTests(store, snapshots, tenant)
		if err == nil {
			err = c.print(tenant, report)
		}
		if err != nil {
			return err
		}
		if err := report.FailUnder(c.FailUnder); err != nil {
			say(err, "")
			passed = false
		}
		passed = passed && len(report.Failed()) == 0
	}
	if !passed {
		return exitError(exitInvalid)
	}
	return nil
}

// tenantsOrOne lists the tenants of a store, or the one nobody of a store that
// answers everybody.
func tenantsOrOne(s *evaluation.Snapshots) []string {
	if tenants := s.Tenants(); len(tenants) > 0 {
		return tenants
	}
	return []string{""}
}

// runTests runs the tests of a tenant, or those of the store's root.
func runTests(store fs.FS, snapshots *evaluation.Snapshots, tenant string) (*policytest.Report, error) {
	snapshot, err := snapshots.For(tenant)
	if err != nil {
		return nil, err
	}
	if tenant != "" {
		if store, err = fs.Sub(store, path.Join("tenants", tenant)); err != nil {
			return nil, err
		}
	}
	tests, err := policytest.Load(store)
	if err != nil {
		return nil, err
	}
	return policytest.Run(snapshot, tests), nil
}

func (c *testCmd) print(tenant string, report *policytest.Report) error {
	switch {
	case c.JSON:
		return report.JSON(os.Stdout)
	case c.JUnit:
		return report.JUnit(os.Stdout)
	case tenant != "":
		fmt.Printf("tenant %s\n", tenant)
	}
	return report.Text(os.Stdout)
}

func printTest(file string) error {
	entry, err := readInput(file)
	if err != nil {
		return err
	}
	test, err := policytest.FromEntry(entry)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(test)
	return err
}
