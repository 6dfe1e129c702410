//go:build linux

// Benchmark measures the cost of an answer of policy-service, and compares it with
// servers that do less and servers that do the same work.
//
// All servers run on this machine, each in a process of its own, and answer the
// same requests: one policy store, with properties of subject, resource and
// action, and a context. wrk, which is no part of this module, sends the load.
// A round measures every row once, for one slice. Rounds go through the rows
// forwards and backwards in turn, so that other load on the machine affects all
// rows alike. A ratio is that of two rows in one round, and a figure is the
// median over the rounds.
//
// Before anything is measured, every engine must give every request the
// decision that it must get. During the measurement a broken connection, a timeout
// or more than one answer in five with a status other than 2xx ends the run
// with an error; the table counts such answers apart.
//
// The first figure is the processor time of the server for each request (user
// and system, of /proc/PID/stat). It hardly depends on how the load generator
// and the server share the processors; requests a second and latencies do.
// docs/benchmarks.md says how to run this program and how to read its tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// A config is what the command line says.
type config struct {
	Service string        // the policy-service to measure
	Before  string        // another one, to compare it with; none if empty
	OPA     string        // the opa program; none if empty
	Rounds  int           // at least 1
	Slice   time.Duration // whole seconds: wrk knows no less
	JSON    string        // file for the figures; none if empty
	Dir     string        // for policy stores and logs; a temporary directory if empty
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == floorCommand {
		exit(serveFloor(os.Args[2], os.Args[3]))
	}
	var c config
	flag.StringVar(&c.Service, "service", "bin/policy-service", "`FILE` of the policy-service to measure")
	flag.StringVar(&c.Before, "before", "", "`FILE` of another policy-service, to compare the first with, and with nothing else")
	flag.StringVar(&c.OPA, "opa", "", "`FILE` of the opa program; without it, OPA is not measured")
	flag.IntVar(&c.Rounds, "rounds", 10, "`NUMBER` of rounds")
	flag.DurationVar(&c.Slice, "slice", 3*time.Second, "how long a round measures each row, in whole seconds")
	flag.StringVar(&c.JSON, "json", "", "`FILE` for the figures as JSON")
	flag.StringVar(&c.Dir, "dir", "", "existing `DIR` for policy stores and decision logs, on the disk to measure; a temporary one without it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, c))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmark:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run measures, prints a report and checks the limits.
func run(ctx context.Context, c config) error {
	if c.Rounds < 1 || c.Slice < time.Second || c.Slice%time.Second != 0 || flag.NArg() > 0 {
		return errors.New("want -rounds of at least 1, -slice in whole seconds, and no arguments; see -help")
	}
	dir, err := os.MkdirTemp(c.Dir, "policy-service-benchmark-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := newBench(ctx, c, dir)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := b.measure(ctx); err != nil {
		return err
	}
	report, err := b.report()
	if err != nil {
		return err
	}
	fmt.Print(report.text())
	if err := report.write(c.JSON); err != nil {
		return err
	}
	return report.fault()
}
