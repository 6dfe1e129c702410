package conformance_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

var reloadSwaps = flag.Int("reload.swaps", 40, "how often TestReload changes the policies")

// swapsOfARound are made at a time, with a third as long a time of quiet behind
// them, so that what else the machine does slows down both alike.
const swapsOfARound = 20

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
	for version < *reloadSwaps {
		start := time.Now()
		busy.add(*l.during(func() {
			for range swapsOfARound {
				version++
				publish(t, dir, version)
				s.apply(t, l, version)
			}
		}))
		end := time.After(time.Since(start) / 3)
		quiet.add(*l.during(func() { <-end }))
		opened = s.settled(t, opened)
	}
	busy.clean(t)
	quiet.clean(t)
	t.Logf("%d swaps in %v\nreloading: %v\nquiet: %v", version, time.Since(begin).Round(time.Millisecond), busy, quiet)
	s.explained(t)
	factor := slower(busy, quiet)
	t.Logf("p99 under reload is %.2f of the quiet one", factor)
	if factor > maxFactor && *reloadSwaps >= enoughSwaps {
		t.Errorf("p99 under reload is more than %.1f of the quiet one", maxFactor)
	}
}

// explained holds that in the log each revision stands for one version: what
// was answered is what the revision says that it is answered by.
func (s *server) explained(t *testing.T) {
	t.Helper()
	answers := 0
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
	t.Logf("the log has %d answers by %d revisions, each of one version", answers, len(versions))
}

// apply has the policy store read now, and checks that its version is in force.
func (s *server) apply(t *testing.T, l *load, version int) {
	t.Helper()
	if version%10 == 0 {
		must(t, s.Process.Process.Signal(syscall.SIGHUP))
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

// settled holds that the server has no more files open than it had at first,
// but for the connections of a load, and returns how many that were.
func (s *server) settled(t *testing.T, first int) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Process.Process.Pid))
	must(t, err)
	first = cmp.Or(first, len(open))
	if len(open) > first+loadClients {
		t.Errorf("the server has %d files open, and had %d", len(open), first)
	}
	return first
}

// TestReloadControl holds that two requests that are called one are seen as what
// they are.
func TestReloadControl(t *testing.T) {
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
