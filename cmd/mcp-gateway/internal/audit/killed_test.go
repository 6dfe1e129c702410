//go:build unix

package audit_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/audit"
)

const childEnv = "AUDIT_TEST_TRAIL"

// TestMain is a gateway that only writes its trail, where childEnv names one.
func TestMain(m *testing.M) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := writeForever(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writeForever forwards and ends calls from eight goroutines, and prints the id of
// each entry that is acknowledged. Half of them do not wait for outcomes.
func writeForever(dir string) error {
	trail, err := audit.Open(dir, audit.Config{PendingEvery: 7})
	if err != nil {
		return err
	}
	failed := make(chan error)
	var mu sync.Mutex
	tell := func(event, id string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(event, id)
	}
	for n := range 8 {
		go func() {
			for {
				id, err := trail.Forward(pay)
				if err == nil {
					tell("forwarded", id)
				}
				switch {
				case err == nil && n%2 == 0:
					trail.DoneLater(id, audit.Succeeded, "", func(err error) { failed <- err })
				case err == nil:
					err = trail.Done(id, audit.Succeeded, "")
					tell("done", id)
				}
				if err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

// A process that is killed loses nothing that it acknowledged: a call whose outcome
// was acknowledged is not unknown, and each other call that was forwarded is.
func TestKilledProcess(t *testing.T) {
	dir := t.TempDir()
	for round := range 4 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childEnv+"="+dir)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		forwarded, done := make(map[string]bool), 0
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			event, id, _ := strings.Cut(lines.Text(), " ")
			forwarded[id] = event == "forwarded"
			if event == "done" {
				done++
			}
			if done == 100*(round+1) {
				_ = child.Process.Kill()
			}
		}
		_ = child.Wait()
		if done < 100 {
			t.Fatalf("the child ended %d calls", done)
		}
		trail := open(t, dir, audit.Config{})
		unknown := make(map[string]bool)
		for _, p := range trail.Unknown() {
			unknown[p.ID] = true
			if pending, told := forwarded[p.ID]; told && !pending {
				t.Errorf("round %d: %s has an acknowledged outcome and is unknown", round, p.ID)
			}
		}
		if len(unknown) > 8 {
			t.Errorf("round %d: %d calls are unknown", round, len(unknown))
		}
		closeTrail(t, trail)
		outcomes := make(map[string]string)
		for _, r := range read(t, dir) {
			if r.request.Call != "" {
				outcomes[r.request.Call] += r.request.Event
			}
		}
		for id, pending := range forwarded {
			if got := outcomes[id]; got != "succeeded" && (got != "unknown" || !pending) {
				t.Errorf("round %d: the outcome of %s is %q", round, id, got)
			}
		}
	}
}
