package decisionlog_test

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// acceptedIDs reads ids until the program ends, and tells of the first.
func acceptedIDs(out io.Reader, first func()) (ids []string) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if ids = append(ids, lines.Text()); len(ids) == 1 {
			first()
		}
	}
	return ids
}

// killsOfLog is the number of kills of one log. Pruned segments leave hashes, so a log that is used
// forever would take forever to read.
const killsOfLog = 100

// TestKillAnywhere kills a program at random times while it creates, opens, rotates, signs or
// prunes a log. Half of the kills follow a start, half an accepted entry. No accepted entry is
// lost, and the log verifies. The control is TestKillLosesBatchedEntries.
func TestKillAnywhere(t *testing.T) {
	var mu sync.Mutex
	var all killCount
	t.Run("logs", func(t *testing.T) {
		for n := range (*kills + killsOfLog - 1) / killsOfLog {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				count := killAnywhere(t, rand.New(rand.NewPCG(7, uint64(n))), min(killsOfLog, *kills-n*killsOfLog))
				mu.Lock()
				defer mu.Unlock()
				all.add(count)
			})
		}
	})
	t.Logf("%d kills: %d accepted, %d lost, %d pruned; %d kills before anything was accepted", all.kills, all.accepted, all.lost, all.pruned, all.early)
}

// A killCount is the result of kills.
type killCount struct {
	kills, early, accepted, lost int
	pruned                       int64
}

func (c *killCount) add(o killCount) {
	c.kills, c.early, c.accepted, c.lost, c.pruned = c.kills+o.kills, c.early+o.early, c.accepted+o.accepted, c.lost+o.lost, c.pruned+o.pruned
}

// killAnywhere kills the programs that write one log.
func killAnywhere(t *testing.T, r *rand.Rand, kills int) (out killCount) {
	dir := t.TempDir()
	for range kills {
		cmd, output := startChild(t, "restless", dir)
		soon := func() {
			time.AfterFunc(time.Duration(r.Int64N(int64(150*time.Millisecond))), func() { cmd.Process.Kill() })
		}
		later := func() {}
		if r.IntN(2) == 0 {
			soon, later = later, soon
		}
		soon()
		ids := acceptedIDs(output, later)
		err := cmd.Wait()
		if !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			t.Fatalf("the program ended by itself: %v", err)
		}
		out.kills++
		out.accepted += len(ids)
		if len(ids) == 0 {
			out.early++
		}
		out.check(t, dir, ids)
	}
	return out
}

// check verifies a log whose last accepted entries are ids.
func (c *killCount) check(t *testing.T, dir string, ids []string) {
	t.Helper()
	defer locked()()
	report, err := decisionlog.Verify(t.Context(), dir)
	if errors.Is(err, fs.ErrNotExist) && c.accepted == 0 {
		return // killed before the log existed
	}
	if err != nil {
		t.Fatalf("after %d kills: %v", c.kills, err)
	}
	if n := lost(t, dir, ids); n > 0 {
		t.Errorf("%d of %d accepted entries are lost", n, len(ids))
		c.lost += n
	}
	if c.pruned = report.Pruned; report.Entries < int64(c.accepted) {
		t.Errorf("%d entries, %d were accepted", report.Entries, c.accepted)
	}
}

// TestIOFaults lets the first calls of each kind fail, one in each program. Each accepted entry is
// in the log when it is opened again, and the log verifies. The control is that calls do fail.
func TestIOFaults(t *testing.T) {
	tracer := external.Program(t, "strace")
	for _, fault := range []string{
		"fdatasync:error=EIO", "fsync:error=EIO", "pwrite64:error=EIO", "pwrite64:error=ENOSPC", "ftruncate:error=ENOSPC",
		"write:error=ENOSPC", "linkat:error=EIO", "renameat:error=EIO", "fdatasync:error=ENOSPC", "fdatasync:error=EINTR",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			hit := 0
			for when := range *faults {
				dir := t.TempDir()
				ids, failed := injected(t, tracer, dir, fault+":when="+strconv.Itoa(1+when))
				if failed {
					hit++
				}
				checkAccepted(t, dir, ids)
			}
			t.Logf("%d of %d programs ended because of it", hit, *faults)
			if hit == 0 && strings.HasSuffix(fault, "EIO") {
				t.Error("no call failed")
			}
		})
	}
}

// injected runs a child in which a call fails. It returns the accepted ids, and whether the child
// ended with an error.
func injected(t *testing.T, tracer, dir, fault string) (ids []string, failed bool) {
	t.Helper()
	cmd := exec.Command(tracer, "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace="+fault[:strings.Index(fault, ":")], "-e", "inject="+fault, os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"=brief")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ids = acceptedIDs(out, func() {})
	return ids, cmd.Wait() != nil
}

func checkAccepted(t *testing.T, dir string, ids []string) {
	t.Helper()
	defer locked()()
	l, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		t.Errorf("it does not open again: %v", err)
		return
	}
	report, err := l.Verify(t.Context())
	if err := errors.Join(err, l.Close()); err != nil {
		t.Error(err)
		return
	}
	if n := lost(t, dir, ids); int64(n) > report.Pruned || report.Entries < int64(len(ids)) {
		t.Errorf("%d of %d accepted entries are lost", n, len(ids))
	}
}

// A log on a full disk is unavailable, loses nothing, and continues when there is space.
func TestDiskFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tmpfs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	l, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for ; err == nil; accepted++ {
		err = l.Append(t.Context(), bulky(100_000))
	}
	accepted--
	for range 20 {
		if err := l.Append(t.Context(), entry(0)); err == nil {
			accepted++ // a short entry may still fit
		} else if !errors.Is(err, decisionlog.ErrUnavailable) {
			t.Fatalf("on a full disk: %v, want ErrUnavailable", err)
		}
	}
	if accepted < 20 || l.Err() != nil {
		t.Errorf("%d accepted, then %v", accepted, l.Err())
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	mustAppend(t, l, bulky(100_000))
	t.Logf("%d accepted before the disk was full; with room again the next after %v", accepted, time.Since(start))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if report := verifyLog(t, dir); report.Entries != int64(accepted)+1 {
		t.Errorf("%d entries, %d were accepted", report.Entries, accepted+1)
	}
}
