package decisionlog_test

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// acceptedIDs reads ids until the program ends.
func acceptedIDs(out io.Reader) (ids []string) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		ids = append(ids, lines.Text())
	}
	return ids
}

// TestKillAnywhere kills a program at any moment of its life, again and again
// on the same log, also while it opens the log, begins a segment, signs or
// prunes. Nothing that was accepted is lost, and the log always verifies. The control is TestKillLoses.
func TestKillAnywhere(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(7, 8))
	accepted, pruned := 0, int64(0)
	for range *kills {
		cmd, out := startChild(t, "restless", dir)
		kill := time.AfterFunc(time.Duration(r.Int64N(int64(150*time.Millisecond))), func() { cmd.Process.Kill() })
		ids := acceptedIDs(out)
		_ = cmd.Wait()
		kill.Stop()
		report, err := decisionlog.Verify(t.Context(), dir)
		if err != nil {
			if len(ids) == 0 && accepted == 0 {
				continue // killed before there was a log
			}
			t.Fatalf("after %d kills: %v", *kills, err)
		}
		if n := lost(t, dir, ids); n > 0 {
			t.Errorf("%d of %d accepted entries are lost", n, len(ids))
		}
		accepted, pruned = accepted+len(ids), report.Pruned
		if report.Entries < int64(accepted) {
			t.Errorf("%d entries, %d were accepted", report.Entries, accepted)
		}
	}
	t.Logf("%d kills: %d accepted, 0 lost, %d pruned", *kills, accepted, pruned)
}

// strace returns the path of strace, without which the test cannot be.
func strace(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("there is no strace here")
	}
	return path
}

// TestIOFaults lets system calls fail, one after the other. Whatever fails,
// nothing is accepted that is not there when the log is opened again, and the
// log verifies. The control is that the calls do fail.
func TestIOFaults(t *testing.T) {
	tracer := strace(t)
	r := rand.New(rand.NewPCG(9, 10))
	for _, fault := range []string{
		"fdatasync:error=EIO", "fsync:error=EIO", "pwrite64:error=EIO", "pwrite64:error=ENOSPC", "ftruncate:error=ENOSPC",
		"write:error=ENOSPC", "linkat:error=EIO", "renameat:error=EIO", "fdatasync:error=ENOSPC",
	} {
		hit := 0
		for n := range *faults {
			dir := t.TempDir()
			when := 1 + n
			if n >= 3 {
				when = 1 + r.IntN(200)
			}
			if ids, failed := injected(t, tracer, dir, fault+":when="+strconv.Itoa(when)); failed {
				hit++
				checkAccepted(t, fault, dir, ids)
			}
		}
		t.Logf("%s: %d of %d programs ended because of it", fault, hit, *faults)
		if hit == 0 && strings.HasSuffix(fault, "EIO") {
			t.Errorf("%s: no call failed", fault)
		}
	}
}

// injected runs a child in which a call fails. It returns what was accepted,
// and whether the child ended with an error.
func injected(t *testing.T, tracer, dir, fault string) (ids []string, failed bool) {
	t.Helper()
	cmd := exec.Command(tracer, "-f", "-qq", "-o", "/dev/null", "-e", "trace="+fault[:strings.Index(fault, ":")], "-e", "inject="+fault, os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"=brief")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ids = acceptedIDs(out)
	return ids, cmd.Wait() != nil
}

func checkAccepted(t *testing.T, fault, dir string, ids []string) {
	t.Helper()
	l, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		t.Errorf("%s: it does not open again: %v", fault, err)
		return
	}
	report, err := l.Verify(t.Context())
	if err := errors.Join(err, l.Close()); err != nil {
		t.Errorf("%s: %v", fault, err)
		return
	}
	if n := lost(t, dir, ids); int64(n) > report.Pruned || report.Entries < int64(len(ids)) {
		t.Errorf("%s: %d of %d accepted entries are lost", fault, n, len(ids))
	}
}

// TestDiskFull fills the disk, and makes room again: the log is unavailable
// meanwhile, loses nothing, and goes on by itself.
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
			accepted++ // a short one may still fit
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
