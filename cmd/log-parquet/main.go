// Log-parquet converts exported entries of the decision log to a Parquet file:
//
//	policy-service log export | log-parquet > decisions.parquet
//
// The file has a row for each decision. It can be read once it is whole.
// Log-parquet is a program of its own because a service that answers has no
// use for what writes such files, which is a sixth of what it would be.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// version is set by the linker.
var version = "dev"

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "usage: policy-service log export | log-parquet > FILE")
		os.Exit(1)
	}
	if err := convert(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "log-parquet:", err)
		os.Exit(1)
	}
}

// rowsInGroup is how many rows are in memory at once.
const rowsInGroup = 50_000

// convert writes a Parquet file of exported lines. Without an error all of
// them are in it.
func convert(from io.Reader, to io.Writer) error {
	table := parquet.NewGenericWriter[row](to, parquet.Compression(&parquet.Zstd),
		parquet.MaxRowsPerRowGroup(rowsInGroup), parquet.CreatedBy("policy-service", version, ""))
	lines := bufio.NewReaderSize(from, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return table.Close()
		case err == io.EOF:
			return errors.New("the last line is broken off")
		case err != nil:
			return err
		}
		decisions, err := decisionlog.ReadDecisions(line)
		if err != nil {
			return err
		}
		for _, d := range decisions {
			if _, err := table.Write([]row{rowOf(d)}); err != nil {
				return err
			}
		}
	}
}
