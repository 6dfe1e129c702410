package conformance_test

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

var reloadSwaps = flag.Int("reload.swaps", 60, "how often TestReload changes the policies")

// reloadRounds is in how many parts the swaps are made, with a third as long a
// time of quiet after each.
const reloadRounds = 4

// Under reload the slowest hundredth of the answers may take this much longer,
// where there are enough to tell.
const (
	maxFactor   = 1.5
	enoughSwaps = 1000
)

// TestReload holds that policies are changed under load without a request that
// is refused, an answer that is made of two versions, or one by an old version
// after the reload has been answered. Every tenth reload is a signal's.
func TestReload(t *testing.T) {
	dir := published(t)
	s := serveDir(t, dir)
	l := newLoad(t, s)
	busy, quiet := new(tally), new(tally)
	version, opened := 0, 0
	begin := time.Now()
	for range reloadRounds {
		start := time.Now()
		busy.add(*l.during(func() {
			for range *reloadSwaps / reloadRounds {
				version++
				publish(t, dir, version)
				s.load(t, l, version)
			}
		}))
		end := time.After(time.Since(start) / 3)
		quiet.add(*l.during(func() { <-end }))
		opened = s.settled(t, opened)
	}
	busy.clean(t)
	quiet.clean(t)
	decisions, revisions := s.explained(t)
	t.Logf("%d swaps in %v", version, time.Since(begin).Round(time.Millisecond))
	t.Logf("reloading: %v", busy)
	t.Logf("quiet: %v", quiet)
	factor := slower(busy, quiet)
	t.Logf("p99 under reload is %.2f of the quiet one", factor)
	if factor > maxFactor && *reloadSwaps >= enoughSwaps {
		t.Errorf("more than %.1f", maxFactor)
	}
	t.Logf("the log has %d answers by %d revisions, each of one version", decisions, revisions)
}

// explained holds that in the log each revision stands for one version: what
// was answered is what the revision says that it is answered by.
func (s *server) explained(t *testing.T) (answers, revisions int) {
	t.Helper()
	versions, revisionOf := map[string]string{}, map[string]string{}
	for line := range s.exported(t) {
		var entry struct {
			Kind     string `json:"kind"`
			Revision string `json:"revision"`
		}
		must(t, json.Unmarshal([]byte(line), &entry))
		decisions, answered := map[string]int{"evaluation": 1, "evaluations": batchItems}[entry.Kind]
		if !answered {
			continue
		}
		answers++
		version, err := versionOf(line, decisions)
		must(t, err)
		if was := cmp.Or(versions[entry.Revision], version); was != version {
			t.Fatalf("revision %s answers with the versions %s and %s", entry.Revision, was, version)
		}
		if was := cmp.Or(revisionOf[version], entry.Revision); was != entry.Revision {
			t.Fatalf("version %s is called %s and %s", version, was, entry.Revision)
		}
		versions[entry.Revision], revisionOf[version] = version, entry.Revision
	}
	return answers, len(versions)
}

// exported yields the lines of the log of the running server.
func (s *server) exported(t *testing.T) iter.Seq[string] {
	t.Helper()
	response, err := http.Get(s.Admin + "/admin/v1/log/export")
	must(t, err)
	return func(yield func(string) bool) {
		defer response.Body.Close()
		lines := bufio.NewReader(response.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil || !yield(line) {
				return
			}
		}
	}
}

// load has the policy store read now, and checks that its version is in force.
func (s *server) load(t *testing.T, l *load, version int) {
	t.Helper()
	if version%10 == 0 {
		must(t, s.process.Process.Signal(syscall.SIGHUP))
		l.await(t, version)
		return
	}
	if report := s.reload(t); !report.Loaded {
		t.Fatalf("version %d is refused: %s", version, report.Status.Problem)
	}
	l.answersBy(t, version)
}

// answersBy checks that the version in force is that one.
func (l *load) answersBy(t *testing.T, version int) {
	t.Helper()
	if got, err := l.version(); err != nil || got != strconv.Itoa(version) {
		t.Errorf("version %q answers, not %d: %v", got, version, err)
	}
}

// A reloadReport is the answer of the admin listener to a reload.
type reloadReport struct {
	Loaded bool `json:"loaded"`
	Status struct {
		Problem string `json:"problem"`
	} `json:"status"`
}

func (s *server) reload(t *testing.T) (report reloadReport) {
	t.Helper()
	response, err := http.Post(s.Admin+"/admin/v1/reload", "", nil)
	must(t, err)
	defer response.Body.Close()
	must(t, json.UnmarshalRead(response.Body, &report))
	if want := map[bool]int{true: http.StatusOK, false: http.StatusUnprocessableEntity}[report.Loaded]; response.StatusCode != want {
		t.Errorf("a reload that says loaded: %t has the status %s", report.Loaded, response.Status)
	}
	return report
}

// settled holds that the server has no more files open than it had, but for
// the connections of a load, and returns how many there are.
func (s *server) settled(t *testing.T, before int) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.process.Process.Pid))
	must(t, err)
	if before > 0 && len(open) > before+loadClients {
		t.Errorf("the server has %d files open, and had %d", len(open), before)
	}
	return len(open)
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !so(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// TestReloadControl holds that the check of TestReload sees versions that are
// mixed: files that are written over one by one, without a manifest, can be
// read between the two, which nobody can tell from a store that is meant.
func TestReloadControl(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, versioned(0))
	s := serveDir(t, dir)
	l := newLoad(t, s)
	torn := l.during(func() {
		for version := 1; version <= 10; version++ {
			for name, text := range versioned(version) {
				putByRename(t, filepath.Join(dir, name), text)
				s.reload(t)
			}
		}
	})
	t.Logf("one by one: %v", torn)
	if len(torn.mixed) == 0 || len(torn.refused) > 0 {
		t.Errorf("%d answers are mixed, %d refused: would the check see it?", len(torn.mixed), len(torn.refused))
	}
}

// With a manifest the same writing shows no mixture: what is between two
// versions is refused, and the last one goes on.
func TestReloadWithManifest(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, versioned(0))
	put(t, filepath.Join(dir, "manifest.json"), manifest(0))
	s := serveDir(t, dir, "--require-manifest")
	l := newLoad(t, s)
	whole := l.during(func() {
		for version := 1; version <= 10; version++ {
			for name, text := range versioned(version) {
				putByRename(t, filepath.Join(dir, name), text)
				if s.reload(t).Loaded {
					t.Errorf("%s of version %d is in force alone", name, version)
				}
			}
			putByRename(t, filepath.Join(dir, "manifest.json"), manifest(version))
			s.load(t, l, version)
		}
	})
	whole.clean(t)
}

// Two requests that are called one are seen as what they are.
func TestReloadControlOfTwoRequests(t *testing.T) {
	dir := published(t)
	s := serveDir(t, dir)
	var both string
	for version := 1; version <= 2; version++ {
		publish(t, dir, version)
		s.reload(t)
		_, answer := s.post(t, "/access/v1/evaluation", []byte(loadRequest))
		both += answer
	}
	if _, err := versionOf(both, 2); !errors.Is(err, errMixed) {
		t.Errorf("they pass for one: %v", err)
	}
}
