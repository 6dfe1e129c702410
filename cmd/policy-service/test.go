package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/policy-service/policy-service/evaluation/policytest"
)

type testCmd struct {
	Dir        string  `arg:"" optional:"" help:"Directory of the policy store. Default: the embedded example."`
	FromLog    string  `help:"Convert a line of log export in this file (- for standard input) to a test." placeholder:"FILE"`
	FailUnder  float64 `help:"Minimum coverage in percent." placeholder:"PERCENT"`
	JSON       bool    `name:"json" help:"Print the report as JSON." xor:"form"`
	JUnit      string  `name:"junit" help:"File for a JUnit XML report (- for standard output, in place of the text)." placeholder:"FILE" xor:"form"`
	AllowEmpty bool    `help:"Succeed without tests."`
}

func (c *testCmd) Run(ctx context.Context) error {
	if c.FromLog != "" {
		return printTest(c.FromLog)
	}
	store, err := policyStore(c.Dir)
	if err != nil {
		return err
	}
	if c.Dir == "" {
		say(errors.New("no directory is named: the embedded example "+exampleSet+" is tested"), "")
	}
	snapshots, err := compileIn(store)
	if err != nil {
		return err
	}
	tests, err := policytest.Load(store)
	if err != nil {
		return err
	}
	report, err := policytest.RunStore(ctx, snapshots, tests)
	if err != nil {
		return err
	}
	if err := c.print(report); err != nil {
		return err
	}
	tooLittle := report.FailUnder(c.FailUnder)
	if tooLittle != nil {
		say(tooLittle, "")
	}
	untested := len(tests) == 0 && !c.AllowEmpty
	if untested {
		say(errors.New("there are no tests: none is in tests/*.yaml of the policy store, or of a tenant in it"), "--allow-empty takes that for success")
	}
	if untested || tooLittle != nil || len(report.Failed()) > 0 {
		return exitError(exitInvalid)
	}
	return nil
}

func (c *testCmd) print(report *policytest.Report) error {
	switch {
	case c.JSON:
		return report.JSON(os.Stdout)
	case c.JUnit == "-":
		return report.JUnit(os.Stdout)
	case c.JUnit != "":
		if err := writeReport(c.JUnit, report.JUnit); err != nil {
			return err
		}
	}
	return printLines(os.Stdout, report.Text)
}

// writeReport writes a report to a file.
func writeReport(file string, write func(io.Writer) error) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return write(out)
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
