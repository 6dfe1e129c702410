package pdp_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	schedules    = flag.Int("schedules", 20, "fault schedules of TestFaultSchedules")
	scheduleSeed = flag.Uint64("schedules.seed", 0, "seed of the first schedule; 0 is one of the time")
)

// A schedule says which fault occurs after how many answers.
type schedule struct {
	log    decisionlog.Config
	limits pdp.Limits
	at     int // number of answers before the fault
	fault  string
}

// injections maps faults to functions that cause them.
var injections = map[string]func(t *testing.T, h *harmed){
	"nothing":           func(*testing.T, *harmed) {},
	"the log is closed": func(_ *testing.T, h *harmed) { _ = h.log.Close() },
	"a file is moved":   func(t *testing.T, h *harmed) { move(t, h.state, aside) },
	"a file is moved, and back": func(t *testing.T, h *harmed) {
		move(t, h.state, aside)
		move(t, h.state, back)
	},
	"the files are read-only": func(t *testing.T, h *harmed) {
		eachFile(t, h.state, func(name string) error { return os.Chmod(name, 0o400) })
	},
}

const moved = ".moved"

func aside(name string) (string, bool) { return name + moved, !strings.HasSuffix(name, moved) }
func back(name string) (string, bool) {
	return strings.TrimSuffix(name, moved), strings.HasSuffix(name, moved)
}

// move renames the files of the log.
func move(t *testing.T, state string, to func(string) (string, bool)) {
	t.Helper()
	eachFile(t, state, func(name string) error {
		if other, is := to(name); is {
			return os.Rename(name, other)
		}
		return nil
	})
}

func eachFile(t *testing.T, state string, do func(string) error) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(state, "log", "*"))
	if err != nil {
		t.Error(err)
	}
	for _, name := range files {
		if err := do(name); err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	}
}

// newSchedule returns a random schedule.
func newSchedule(r *rand.Rand) schedule {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	s := schedule{at: 1 + r.IntN(100), fault: one("nothing", "the log is closed", "a file is moved", "a file is moved, and back", "the files are read-only")}
	if r.IntN(3) == 0 {
		s.log.Queue = 1 + r.IntN(4)
	}
	if r.IntN(2) == 0 {
		s.limits.Deadline = time.Duration(1 + r.IntN(int(5*time.Millisecond)))
	}
	if r.IntN(3) == 0 { // a request waits for the full disk
		s.log.MaxSize, s.limits.Deadline = 1<<16+r.Int64N(1<<18), time.Duration(1+r.IntN(int(20*time.Millisecond)))
	}
	if r.IntN(3) == 0 {
		s.limits.InFlight, s.limits.Queue, s.limits.Wait = 1+r.IntN(4), 1+r.IntN(4), time.Duration(r.IntN(int(time.Millisecond)))
	}
	return s
}

// For every fault at any time, no permit is sent without an entry on disk.
func TestFaultSchedules(t *testing.T) {
	seed := *scheduleSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	said, failed := 0, 0
	for n := range *schedules {
		s := newSchedule(rand.New(rand.NewPCG(seed+uint64(n), 0)))
		t.Run(fmt.Sprint("seed ", seed+uint64(n)), func(t *testing.T) { // so that its files and servers are removed
			yes, other, missing := s.run(t)
			if len(missing) > 0 {
				t.Errorf("%+v: of %d that were told yes %d are not recorded: %q", s, len(yes), len(missing), missing[:1])
			}
			said, failed = said+len(yes), failed+other
		})
	}
	t.Logf("seed %d: %d schedules, %d times yes, %d times something else", seed, *schedules, said, failed)
	if said == 0 || failed == 0 {
		t.Error("nothing was tried")
	}
}

// The control: a log that acknowledges too early is detected.
func TestFaultSchedulesControl(t *testing.T) {
	for range 20 {
		s := schedule{log: decisionlog.Config{Durability: decisionlog.Batched, MaxSize: 1 << 16}, at: 100, fault: "a file is moved"}
		if _, _, missing := s.run(t); len(missing) > 0 {
			return
		}
	}
	t.Error("a batched log whose file is moved has lost nothing: would the check see it?")
}

// run sends requests while the fault occurs. It returns the ids of permits, the number of other
// answers, and the ids that are missing in the log.
func (s schedule) run(t *testing.T) (yes []string, others int, missing []string) {
	t.Helper()
	h := harmWithin(t, policySet(t, "certification"), s.log, s.limits)
	var mu sync.Mutex
	answers := 0
	note := func(id string) bool {
		mu.Lock()
		defer mu.Unlock()
		if answers++; id == "" {
			others++
		} else {
			yes = append(yes, id)
		}
		if answers == s.at {
			injections[s.fault](t, h)
		}
		return answers < s.at+50
	}
	var clients sync.WaitGroup
	for n := range 4 {
		r := rand.New(rand.NewPCG(uint64(n), uint64(s.at)))
		clients.Go(func() {
			for note(askYes(t, h, r)) {
			}
		})
	}
	clients.Wait()
	_ = h.log.Close() // it may have failed
	move(t, h.state, back)
	recorded := make(map[string]bool)
	for _, e := range decided(t, reopened(t, h.state)) {
		recorded[e.ID] = true
	}
	for _, id := range yes {
		if !recorded[id] {
			missing = append(missing, id)
		}
	}
	return yes, others, missing
}

// askYes sends a request that policies permit, and returns the id of a permit. Some clients do not
// wait for the answer.
func askYes(t *testing.T, h *harmed, r *rand.Rand) string {
	ctx := t.Context()
	if r.IntN(10) == 0 {
		gone, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(int(2*time.Millisecond))))
		defer cancel()
		ctx = gone
	}
	path := []string{authzen.PathEvaluation, authzen.PathEvaluations, authzen.PathAuthorize}[r.IntN(3)]
	response, body, err := send(ctx, h.main.Client(), http.MethodPost, h.main.URL+path, permitted[path])
	switch {
	case err != nil || !sayTrue.MatchString(body):
		return ""
	case response.StatusCode != http.StatusOK || response.Header.Get("Decision-ID") == "":
		t.Errorf("%s says yes with %s and the Decision-ID %q", path, response.Status, response.Header.Get("Decision-ID"))
	}
	return response.Header.Get("Decision-ID")
}

// reopened reopens the log in a copy of the state: a failed log is locked until its process ends.
func reopened(t *testing.T, state string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(state)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			err = os.Chmod(name, 0o600)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	log, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		t.Fatal(fmt.Errorf("open again: %w", err))
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}
