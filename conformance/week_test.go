package conformance_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var weekEntries = flag.Int("entries", 2000, "how many decisions the log of TestWeek has")

// weekClients ask at once.
const weekClients = 32

// weekRequest is what is asked as number n: some of three hundred subjects to
// use some of forty tools, with a secret once in a hundred times.
func weekRequest(n int) (path, body string) {
	context := fmt.Sprintf(`{"purpose":"Resolve user issue #%d","session":"s-%06d"}`, n, n/20)
	if n%100 == 7 {
		context = fmt.Sprintf(`{"purpose":"Resolve user issue #%d","api_key":"k-%d"}`, n, n)
	}
	impact := []string{"read", "read", "write", "destructive"}[n%4]
	if n%10 == 3 {
		return authzen.PathAuthorize, fmt.Sprintf(`{"tenant_id":"acme","actor":{"actor_id":"agent-%d","actor_type":"agent","roles":["workflow_orchestrator"]},"action":"tool.invoke",`+
			`"resource":{"type":"tool","id":"server-%d:call","labels":{"category":"internal","integration":"jira","impact":%q}},"purpose":"Resolve user issue #%d"}`, n%300, n%40, impact, n)
	}
	return authzen.PathEvaluation, fmt.Sprintf(`{"subject":{"type":"agent","id":"agent-%d","properties":{"roles":["tool_writer"]}},"action":{"name":"tool.invoke"},`+
		`"resource":{"type":"tool","id":"server-%d:call","properties":{"category":"internal","impact":%q}},"context":%s}`, n%300, n%40, impact, context)
}

// TestWeek makes a log as of a week, and does with it what an auditor and a
// policy author do: exports, verifies and replays it, all with the program.
// -entries 1000000 measures.
func TestWeek(t *testing.T) {
	store, state, dir := unpack(t, "agent-tools"), t.TempDir(), t.TempDir()
	if err := os.Remove(filepath.Join(store, "schema.cedarschema")); err != nil { // it has no room for secrets
		t.Fatal(err)
	}
	s := launch(t, serveCommand(t, store, state, "--durability", "batched"))
	start := time.Now()
	askAll(t, s, *weekEntries)
	t.Logf("%d decisions by %d clients, batched: %s", *weekEntries, weekClients, rate(*weekEntries, time.Since(start)))
	s.Process.Process.Signal(os.Interrupt)
	<-s.Done
	t.Logf("the log on disk: %s", perEntry(diskUse(t, filepath.Join(state, "log")), *weekEntries))

	lines := filepath.Join(dir, "entries.jsonl")
	timed(t, "log verify", nil, "log", "verify", "--state", state)
	timed(t, "log export", create(t, lines), "log", "export", "--state", state)
	text, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n != *weekEntries+1 { // and the entry about the policies
		t.Errorf("%d lines are exported, want %d", n, *weekEntries+1)
	}
	t.Logf("as JSON lines: %s", perEntry(int64(len(text)), *weekEntries))
	table := filepath.Join(dir, "entries.parquet")
	converter := exec.Command(shipped(t, "log-parquet"))
	converter.Stdin = bytes.NewReader(text)
	timedCommand(t, "log-parquet", create(t, table), converter)
	t.Logf("as Parquet: %s", perEntry(size(t, table), *weekEntries))
	bundle, keys := filepath.Join(dir, "week.zip"), filepath.Join(dir, "key.pub")
	timed(t, "log export --bundle", nil, "log", "export", "--state", state, "--bundle", bundle)
	t.Logf("as a bundle: %s", perEntry(size(t, bundle), *weekEntries))
	key, err := policyService(t, "log", "keys", "--state", state)
	if err != nil {
		t.Fatal(err)
	}
	place(t, keys, key)
	timed(t, "log verify --bundle", nil, "log", "verify", "--bundle", bundle, "--key", keys)
	out := timed(t, "log replay, on one core", nil, "log", "replay", "--state", state, "--candidate", store)
	if want := fmt.Sprintf("replayed %d decisions ", *weekEntries); !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "no difference\n") {
		t.Errorf("replay: %s", out)
	}
}

// askAll asks that many requests.
func askAll(t *testing.T, s *server, n int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: weekClients}, Timeout: process.Patience}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var asking sync.WaitGroup
	for range weekClients {
		asking.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				path, body := weekRequest(i)
				response, err := client.Post(s.URL+path, "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				answer, err := io.ReadAll(response.Body)
				response.Body.Close()
				if err != nil || response.StatusCode != http.StatusOK {
					t.Errorf("%s %s %v", response.Status, answer, err)
					return
				}
			}
		})
	}
	asking.Wait()
}

// timed runs the program on one core, logs how long that took, and returns what
// it printed, if that goes nowhere else.
func timed(t *testing.T, what string, to io.WriteCloser, args ...string) string {
	t.Helper()
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	return timedCommand(t, what, to, exec.Command(path, args...))
}

func timedCommand(t *testing.T, what string, to io.WriteCloser, command *exec.Cmd) string {
	t.Helper()
	var out, stderr bytes.Buffer
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	command.Stdout, command.Stderr = &out, &stderr
	if to != nil {
		defer to.Close()
		command.Stdout = to
	}
	start := time.Now()
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", what, err, out.String(), stderr.String())
	}
	used := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	t.Logf("%s: %s; of a core's time %s", what, rate(*weekEntries, time.Since(start)), rate(*weekEntries, used))
	return out.String()
}

func rate(n int, d time.Duration) string {
	return fmt.Sprintf("%.1f s, %.0f/s", d.Seconds(), float64(n)/d.Seconds())
}

func perEntry(bytes int64, n int) string {
	return fmt.Sprintf("%.1f MB, %.0f bytes per entry", float64(bytes)/1e6, float64(bytes)/float64(n))
}

func create(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// diskUse adds up the sizes of the files below a directory.
func diskUse(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			total += size(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}
