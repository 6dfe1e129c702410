package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/conformance/external"
)

// unionMatrix is what TestFieldOfUnion writes with -update.
const unionMatrix = "testdata/field/union.txt"

// TestFieldOfUnion compares what people see of failures of the official servers, at
// the official clients of an endpoint over one of these servers and a dead one, with
// a matrix.
func TestFieldOfUnion(t *testing.T) {
	dir, err := filepath.Abs("testdata/field")
	if err != nil {
		t.Fatal(err)
	}
	external.Packages(t, dir)
	var sides sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[string]string)
	clients, servers := fieldClients(t)[:2], fieldServers(t)[:2] // those of the TypeScript SDKs
	for _, client := range clients {
		for _, server := range servers {
			sides.Go(func() {
				t.Run(client.name+" to "+server.name, func(t *testing.T) {
					s := newSide(t, client, server, union)
					for _, f := range failures {
						cell := s.try(f)
						mu.Lock()
						seen[fmt.Sprint(f.name, client.name, server.name)] = cell
						mu.Unlock()
					}
				})
			})
		}
	}
	sides.Wait()
	var got strings.Builder
	for _, f := range failures {
		fmt.Fprintf(&got, "%s\n", f.name)
		for _, client := range clients {
			for _, server := range servers {
				fmt.Fprintf(&got, "  %s to %s: %s\n", client.name, server.name, seen[fmt.Sprint(f.name, client.name, server.name)])
			}
		}
	}
	if *update {
		write(t, unionMatrix, got.String())
		return
	}
	want, err := os.ReadFile(unionMatrix)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", unionMatrix, diff)
	}
}
