package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A matrix has what people see, by failure and row.
type matrix map[string]map[string]cell

// A cell is what a person sees of a failure without the gateway and through it.
type cell struct{ direct, through string }

// matrixFile is what TestField writes with -update: the rows that see the same
// stand together.
const matrixFile = "testdata/field/matrix.txt"

func (m matrix) set(failure, row string, through bool, said string) {
	if m[failure] == nil {
		m[failure] = make(map[string]cell)
	}
	c := m[failure][row]
	if through {
		c.through = said
	} else {
		c.direct = said
	}
	m[failure][row] = c
}

// check compares the matrix with those rows of the file that it has, or writes them.
func (m matrix) check(t *testing.T) {
	t.Helper()
	want := readMatrix(t)
	if *update {
		for failure, rows := range m {
			for row, c := range rows {
				want.set(failure, row, false, c.direct)
				want.set(failure, row, true, c.through)
			}
		}
		write(t, matrixFile, want.print(t))
		return
	}
	for failure, rows := range want {
		for row := range rows {
			if _, ran := m[failure][row]; !ran {
				delete(rows, row)
			}
		}
	}
	if diff := cmp.Diff(strings.Split(want.print(t), "\n"), strings.Split(m.print(t), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", matrixFile, diff)
	}
}

// print prints the rows of each failure: those that see the same together, a line
// for each client.
func (m matrix) print(t *testing.T) string {
	var text strings.Builder
	for _, f := range failures {
		fmt.Fprintf(&text, "%s\n", f.name)
		var seen []cell // in the order of rows
		rows := make(map[cell][]string)
		for _, client := range fieldClients(t) {
			servers := make(map[cell][]string)
			for _, server := range fieldServers(t) {
				c, ok := m[f.name][client.name+" to "+server.name]
				if ok && rows[c] == nil && servers[c] == nil {
					seen = append(seen, c)
				}
				if ok {
					servers[c] = append(servers[c], server.name)
				}
			}
			for c, names := range servers {
				rows[c] = append(rows[c], fmt.Sprintf("  %s to %s\n", client.name, strings.Join(names, ", ")))
			}
		}
		for _, c := range seen {
			through := c.through
			if through == c.direct {
				through = "the same"
			}
			fmt.Fprintf(&text, "%s    direct   %s\n    gateway  %s\n", strings.Join(rows[c], ""), c.direct, through)
		}
	}
	return text.String()
}

// readMatrix reads what print has printed.
func readMatrix(t *testing.T) matrix {
	t.Helper()
	content, err := os.ReadFile(matrixFile)
	if err != nil {
		t.Fatal(err)
	}
	m := make(matrix)
	var failure, direct string
	var rows []string
	for line := range strings.Lines(string(content)) {
		said := strings.TrimSuffix(line, "\n")
		if now, ok := strings.CutPrefix(said, "    direct   "); ok {
			direct = now
		} else if through, ok := strings.CutPrefix(said, "    gateway  "); ok {
			if through == "the same" {
				through = direct
			}
			for _, row := range rows {
				m.set(failure, row, false, direct)
				m.set(failure, row, true, through)
			}
			rows = nil
		} else if of, ok := strings.CutPrefix(said, "  "); ok {
			client, servers, _ := strings.Cut(of, " to ")
			for server := range strings.SplitSeq(servers, ", ") {
				rows = append(rows, client+" to "+server)
			}
		} else {
			failure = said
		}
	}
	return m
}
