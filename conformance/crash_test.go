package conformance_test

import (
	"bytes"
	"flag"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var crashDuration = flag.Duration("crash.duration", 2*time.Second, "how long TestCrash serves until the last of its crashes")

const (
	crashes      = 4
	crashClients = 32
	// mostBehind is how many entries a batched log may be behind its answers.
	mostBehind = 512
)

// TestCrash holds that a decision somebody was told is in the log, whenever
// the program is killed: the entry was there first. It is killed several times
// on one state, each time with a request of every client in flight.
//
// Killed is not without power: what was written and not flushed outlives the
// program. The control is TestCrashControl.
func TestCrash(t *testing.T) {
	state := t.TempDir()
	var given []string
	for range crashes {
		given = append(given, crash(t, state, *crashDuration/crashes)...)
		recorded := exportLog(t, state)
		lost := missing(given, recorded)
		t.Logf("strict: %d decisions received, %d exported, %d lost", len(given), len(recorded), len(lost))
		if len(given) == 0 || len(lost) > 0 {
			t.Errorf("received and not recorded: %q", lost[:min(len(lost), 10)])
		}
		if len(recorded) > len(given)+crashes*(crashClients+1) { // and the policies of each start
			t.Errorf("more is recorded than was asked: %d", len(recorded))
		}
	}
}

// TestCrashControl holds that the check of TestCrash sees a loss: a batched
// log, which answers first, must show one. The loss is no more than was
// promised, and the log is whole for all that.
func TestCrashControl(t *testing.T) {
	for range 20 {
		state := t.TempDir()
		given := crash(t, state, *crashDuration/crashes/2, "--durability", "batched")
		recorded := exportLog(t, state)
		lost := missing(given, recorded)
		t.Logf("batched: %d decisions received, %d exported, %d lost", len(given), len(recorded), len(lost))
		if len(lost) > mostBehind {
			t.Errorf("a batched log has lost %d entries, and promises %d", len(lost), mostBehind)
		}
		if len(lost) > 0 {
			return
		}
	}
	t.Error("a batched log has lost nothing: would the check see it?")
}

// crash serves from a state for so long, kills the program, and returns the
// ids of the decisions that clients have received.
func crash(t *testing.T, state string, after time.Duration, args ...string) []string {
	t.Helper()
	s := serveToKill(t, state, args...)
	transport := &http.Transport{MaxIdleConnsPerHost: crashClients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var clients sync.WaitGroup
	received := make([][]string, crashClients)
	for i := range received {
		clients.Go(func() {
			for {
				id, err := ask(t, client, s.URL)
				if err != nil {
					return // killed
				}
				received[i] = append(received[i], id)
			}
		})
	}
	select {
	case <-time.After(after):
	case <-s.Done:
		t.Errorf("the server ended by itself:\n%s", s.Log())
	}
	s.Process.Process.Kill()
	<-s.Done
	clients.Wait()
	var all []string
	for _, ids := range received {
		all = append(all, ids...)
	}
	return all
}

// serveToKill starts the program on a state. Unlike serve, it does not mind
// how the program ends.
func serveToKill(t *testing.T, state string, args ...string) *server {
	t.Helper()
	return serveToKillDir(t, unpack(t, "certification"), state, args...)
}

// serveToKillDir is serveToKill for the policy store in a directory.
func serveToKillDir(t *testing.T, dir, state string, args ...string) *server {
	t.Helper()
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	return serveProgramToKill(t, path, dir, state, args...)
}

// serveProgramToKill is serveToKillDir for a program.
func serveProgramToKill(t *testing.T, path, dir, state string, args ...string) *server {
	t.Helper()
	return &server{process.LaunchToKill(t, exec.Command(path, append([]string{
		"serve", "--policies", dir, "--state", state,
		"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
	}, args...)...))}
}

const readsRecord1 = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"record","id":"record-1"}}`

// ask returns the Decision-ID of an answer that has arrived whole.
func ask(t *testing.T, client *http.Client, url string) (id string, err error) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+authzen.PathEvaluation, strings.NewReader(readsRecord1))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK || string(body) != `{"decision":true}` {
		t.Errorf("%s %s", response.Status, body)
	}
	return response.Header.Get("Decision-ID"), nil
}

// exportLog verifies the log of a state that nobody serves from, and returns
// the ids of its entries, the indexes of which must have no gap.
func exportLog(t *testing.T, state string) map[string]bool {
	t.Helper()
	logCommand(t, "verify", "--state", state)
	out := logCommand(t, "export", "--state", state)
	recorded := make(map[string]bool)
	var n int64
	for line := range bytes.Lines(out) {
		var entry struct {
			Index int64  `json:"index"`
			ID    string `json:"id"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if entry.Index != n || recorded[entry.ID] {
			t.Fatalf("line %d has the index %d and the id %s, which was there before: %t", n, entry.Index, entry.ID, recorded[entry.ID])
		}
		recorded[entry.ID] = true
		n++
	}
	return recorded
}

// logCommand runs a sub-command of log, which must succeed.
func logCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(path, append([]string{"log"}, args...)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("log %s: %v\n%s", args, err, &stderr)
	}
	return out
}

func missing(given []string, recorded map[string]bool) []string {
	var lost []string
	for _, id := range given {
		if !recorded[id] {
			lost = append(lost, id)
		}
	}
	return lost
}
